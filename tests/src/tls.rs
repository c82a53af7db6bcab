//! Certificate authorities of the tests, and certificates signed by them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use tempfile::TempDir;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned, crypto::ring};

/// Characters of a line of PEM.
const LINE_CHARS: usize = 64;
/// Longest wait for a server in a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// An authority with a folder of its own.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
    folder: TempDir,
}

/// A certificate and its key, in files.
#[derive(Clone, Debug)]
pub struct Pair {
    /// The certificate.
    pub cert: PathBuf,
    /// The key.
    pub key: PathBuf,
}

impl Authority {
    /// A new authority with this name.
    ///
    /// # Panics
    /// When it cannot be made.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("parameters without names");
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = tempfile::tempdir().expect("a folder for certificates");
        write(&folder.path().join("root.pem"), "CERTIFICATE", issuer.der());
        Self { issuer, folder }
    }

    /// The file with its own certificate, for `SSL_CERT_FILE`.
    #[must_use]
    pub fn root_file(&self) -> PathBuf {
        self.folder.path().join("root.pem")
    }

    /// Signs a certificate for `names`, in files called after `name`.
    ///
    /// # Panics
    /// When it cannot.
    #[must_use]
    pub fn pair(&self, name: &str, names: &[&str]) -> Pair {
        let cert = self.folder.path().join(format!("{name}.pem"));
        let pair = Pair { cert, key: self.folder.path().join(format!("{name}-key.pem")) };
        self.renew(&pair, names);
        pair
    }

    /// Signs another certificate into the same files, as a renewal does.
    ///
    /// # Panics
    /// When it cannot.
    pub fn renew(&self, pair: &Pair, names: &[&str]) {
        let names: Vec<String> = names.iter().map(ToString::to_string).collect();
        let key = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(names).expect("names of a certificate");
        let certificate = params.signed_by(&key, &self.issuer).expect("a certificate");
        write(&pair.cert, "CERTIFICATE", certificate.der());
        write(&pair.key, "PRIVATE KEY", &key.serialize_der());
    }

    /// Whether the server at `address` shows a certificate that this authority signed for its address.
    ///
    /// # Panics
    /// When no server listens there.
    #[must_use]
    pub fn vouches_for(&self, address: SocketAddr) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).expect("an authority's certificate");
        let builder = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().expect("TLS 1.2 and 1.3");
        let config = Arc::new(builder.with_root_certificates(roots).with_no_client_auth());
        let session = ClientConnection::new(config, ServerName::from(address.ip())).expect("a TLS client");
        let socket = TcpStream::connect(address).expect("a server that listens");
        socket.set_read_timeout(Some(HANDSHAKE_LIMIT)).expect("a limit");
        let mut stream = StreamOwned::new(session, socket);
        // The first byte of RTMP: the server's answer shows that it accepts RTMP.
        stream.write_all(&[3]).and_then(|()| stream.flush()).is_ok() && !stream.conn.is_handshaking()
    }
}

/// A server without TLS: it reads once and answers with other bytes.
///
/// # Panics
/// When it cannot listen.
#[must_use]
pub fn no_tls() -> SocketAddr {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    std::thread::spawn(move || {
        for mut socket in listener.incoming().map_while(Result::ok) {
            // A client that leaves at once needs no answer.
            let _ = socket.read(&mut [0; 64]);
            let _ = socket.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n");
        }
    });
    address
}

fn write(path: &Path, kind: &str, der: &[u8]) {
    let text = STANDARD.encode(der);
    let mut pem = format!("-----BEGIN {kind}-----\n");
    for (index, character) in text.chars().enumerate() {
        if index > 0 && index.is_multiple_of(LINE_CHARS) {
            pem.push('\n');
        }
        pem.push(character);
    }
    pem.push_str(&format!("\n-----END {kind}-----\n"));
    std::fs::write(path, pem).expect("a file of a certificate");
}
