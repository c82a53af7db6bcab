use rcgen::{CertificateParams, KeyPair, date_time_ymd};
use tempfile::TempDir;

use super::*;

const NOW: UnixMillis = UnixMillis(1_763_596_800_000);

/// A folder with a self-signed certificate.
struct Pair {
    folder: TempDir,
}

impl Pair {
    fn new(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let pair = Self { folder: tempfile::tempdir().unwrap() };
        pair.renew(change);
        pair
    }

    fn renew(&self, change: impl FnOnce(&mut CertificateParams)) {
        let mut params = CertificateParams::new(vec!["live.example".to_owned()]).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap();
        self.write("cert.pem", &pem("CERTIFICATE", certificate.der()));
        self.write("key.pem", &pem("PRIVATE KEY", &key.serialize_der()));
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn load(&self) -> Result<Certificates, CertificateError> {
        Certificates::load(Section::Ingest, &self.path("cert.pem"), &self.path("key.pem"))
    }

    fn refused(&self) -> CertificateError {
        self.load().unwrap_err()
    }

    fn objection(&self) -> Option<&'static str> {
        Certificates::objection(Section::Ingest, &self.path("cert.pem"), &self.path("key.pem"), NOW).unwrap()
    }
}

#[test]
fn every_fault_names_its_file() {
    let pair = Pair::new(|_| {});
    pair.load().unwrap();
    let good_key = std::fs::read_to_string(pair.path("key.pem")).unwrap();
    let good_cert = std::fs::read_to_string(pair.path("cert.pem")).unwrap();
    // The setting whose file lacks the expected content; `None`: TLS cannot use the content.
    for (name, text, empty) in [
        ("cert.pem", "", Some("tls_cert")),
        ("cert.pem", good_key.as_str(), Some("tls_cert")),
        ("cert.pem", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", None),
        ("key.pem", good_cert.as_str(), Some("tls_key")),
        ("key.pem", "hunter2", Some("tls_key")),
    ] {
        pair.write("cert.pem", &good_cert);
        pair.write("key.pem", &good_key);
        pair.write(name, text);
        let refused = pair.refused();
        assert!(!refused.to_string().contains("hunter2"), "{refused}");
        let (file, of) = match refused {
            CertificateError::Empty { file, setting, .. } => (file, Some(setting)),
            CertificateError::Unusable { file, .. } => (file, None),
            other => panic!("{other}"),
        };
        assert_eq!((file, of), (pair.path(name), empty));
    }
    pair.write("cert.pem", &good_cert);
    let other = Pair::new(|_| {});
    std::fs::copy(other.path("key.pem"), pair.path("key.pem")).unwrap();
    let (cert, key) = (pair.path("cert.pem"), pair.path("key.pem"));
    let section = Section::Ingest;
    assert_eq!(pair.refused(), CertificateError::Mismatch { section, cert, key: key.clone() });
    let over = usize::try_from(CERTIFICATE_BYTES_MAX).unwrap() + 1;
    pair.write("key.pem", &" ".repeat(over));
    let unreadable = |reason: String| {
        let (setting, file) = ("tls_key", key.clone());
        CertificateError::Unreadable { section, setting, file, reason }
    };
    assert_eq!(pair.refused(), unreadable(TOO_LARGE.to_owned()));
    std::fs::remove_file(&key).unwrap();
    assert_eq!(pair.refused(), unreadable(std::fs::read(&key).unwrap_err().to_string()));
}

#[test]
fn faults_of_certificates_texts() {
    let (section, file) = (Section::Ingest, PathBuf::from("a.pem"));
    let reason = TOO_LARGE.to_owned();
    let unreadable = CertificateError::Unreadable { section, setting: "tls_key", file: file.clone(), reason };
    assert_eq!(
        unreadable.to_string(),
        "cannot read [ingest] tls_key a.pem: it is larger than 1 MiB; correct the path or the file's rights"
    );
    let empty = |setting, wanted| CertificateError::Empty { section, setting, file: file.clone(), wanted };
    assert_eq!(
        empty("tls_cert", WANTED_CERT).to_string(),
        "[ingest] tls_cert a.pem holds no certificate in PEM; name the right file"
    );
    assert_eq!(
        empty("tls_key", WANTED_KEY).to_string(),
        "[ingest] tls_key a.pem holds no unencrypted private key in PEM; name the right file"
    );
    let (cert, key) = (file.clone(), PathBuf::from("b.pem"));
    assert_eq!(
        CertificateError::Mismatch { section, cert, key }.to_string(),
        "[ingest] tls_key b.pem does not belong to the certificate in tls_cert a.pem; use the two that were made \
         together"
    );
    let unusable = CertificateError::Unusable { section, file, reason: "BadEncoding".to_owned() };
    assert_eq!(unusable.to_string(), "[ingest] tls_cert a.pem cannot be used: BadEncoding");
}

#[test]
fn a_certificate_outside_its_validity_is_reported() {
    assert_eq!(Pair::new(|_| {}).objection(), None);
    let late = Pair::new(|params| params.not_after = date_time_ymd(2020, 1, 1));
    assert_eq!(late.objection(), Some("has expired; renew it"));
    let early = Pair::new(|params| params.not_before = date_time_ymd(2999, 1, 1));
    assert_eq!(early.objection(), Some("is not valid yet; check the clock"));
    late.load().unwrap();
}

#[test]
fn a_warning_comes_before_the_certificate_expires() {
    // NOW is 20 November 2025.
    let end = |pair: Pair| pair.load().unwrap().end(NOW);
    assert_eq!(end(Pair::new(|_| {})), None);
    let ends = |day: u8| Pair::new(|params| params.not_after = date_time_ymd(2025, 11, day));
    assert_eq!(end(ends(28)), None);
    assert_eq!(end(ends(26)), Some("expires within seven days; renew it"));
    assert_eq!(end(ends(19)), Some("has expired; renew it"));
}

#[test]
fn a_renewed_pair_is_used_and_a_broken_one_is_not() {
    let pair = Pair::new(|_| {});
    let certificates = pair.load().unwrap();
    let first = certificates.current();
    assert_eq!(certificates.look(), Ok(Look::Same));
    pair.renew(|_| {});
    assert_eq!(certificates.look(), Ok(Look::Renewed));
    let second = certificates.current();
    assert!(!Arc::ptr_eq(&first, &second));
    let good = std::fs::read_to_string(pair.path("key.pem")).unwrap();
    std::fs::copy(Pair::new(|_| {}).path("key.pem"), pair.path("key.pem")).unwrap();
    assert!(matches!(certificates.look(), Err(CertificateError::Mismatch { .. })));
    assert!(Arc::ptr_eq(&second, &certificates.current()), "the current pair stays in use");
    pair.write("key.pem", &good);
    assert_eq!(certificates.look(), Ok(Look::Same));
}

#[test]
fn a_pair_of_other_files_is_taken_over_and_looked_at() {
    let (old, new) = (Pair::new(|_| {}), Pair::new(|_| {}));
    let certificates = old.load().unwrap();
    assert!(!certificates.take_over(old.load().unwrap()), "the same pair");
    assert!(certificates.take_over(new.load().unwrap()));
    assert_eq!(certificates.look(), Ok(Look::Same));
    old.renew(|_| {});
    assert_eq!(certificates.look(), Ok(Look::Same), "the files of before are not looked at");
    new.renew(|_| {});
    assert_eq!(certificates.look(), Ok(Look::Renewed));
}

#[test]
fn a_lasting_fault_is_reported_repeatedly() {
    let fault = |reason: &str| CertificateError::Unusable {
        section: Section::Ingest,
        file: "cert.pem".into(),
        reason: reason.into(),
    };
    let mut reports = FaultReports::default();
    let reported: Vec<u32> =
        (1..=2 * CERTIFICATE_REPORT_LOOKS + 2).filter(|_| reports.is_due(&fault("a"))).collect();
    assert_eq!(reported, [2, 2 + CERTIFICATE_REPORT_LOOKS, 2 + 2 * CERTIFICATE_REPORT_LOOKS]);
    assert!(!reports.is_due(&fault("b")) && reports.is_due(&fault("b")), "another fault starts again");
    assert!(!reports.is_due(&fault("a")), "half-written files alternate");
}
