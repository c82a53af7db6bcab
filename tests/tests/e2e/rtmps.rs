//! TLS from the encoder and to the server: every byte as without TLS, certificates renewed during a stream, and bad ones named.

use satcast_tests::encoder::Publish;
use satcast_tests::record::assert_complete;
use satcast_tests::said;
use satcast_tests::service::Setup;
use satcast_tests::sink::Sink;
use satcast_tests::source::Source;
use satcast_tests::tls::{Authority, no_tls};
use satcast_tests::wait;

const HERE: &[&str] = &["127.0.0.1"];
/// Media that flows on after the renewal: five seconds.
const RENEWED_PACKETS: usize = 385;
/// Ten seconds of media.
const CARRIED_PACKETS: usize = 770;

#[test]
fn every_packet_goes_encrypted_through_two_services_while_a_certificate_is_renewed() {
    let source = Source::shared();
    let sink = Sink::recording();
    let (authority, successor) = (Authority::new("first"), Authority::new("second"));
    let (first_pair, second_pair) = (authority.pair("first", HERE), authority.pair("second", HERE));
    let window = ("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2");
    let target = Setup::default().set(window.0, window.1).rtmps(&second_pair).start();
    let root = authority.root_file();
    let service = Setup::default()
        .set(window.0, window.1)
        .set("SSL_CERT_FILE", &root.to_string_lossy())
        .rtmps(&first_pair)
        .start();
    let (there, here) = (target.api(), service.api());
    let received = there.create_stream("received");
    there.add_destination(&received, &sink.url(), "copy");
    let stream = here.create_stream("forwarded");
    let url = format!("rtmps://{}/live", target.rtmps_address());
    let forwarded = here.add_destination(&stream, &url, &received.key);

    let mut encoder = Publish::until_end(&source).to(&service.secure_ingest_url(&stream.key));
    let shown = here.wait_for_destination(&stream, forwarded, "live");
    assert!(shown["url"].as_str().is_some_and(|shown| shown.starts_with(&url)), "{shown}");
    assert!(!shown.to_string().contains(&received.key), "{shown}");
    sink.wait_for_media(300);

    assert!(authority.vouches_for(service.rtmps_address()));
    successor.renew(&first_pair, HERE);
    service.wait_for_log("the renewal", |line| line.contains(said::CERTIFICATE_RENEWED));
    assert!(successor.vouches_for(service.rtmps_address()), "new connections get the new certificate");
    assert!(!authority.vouches_for(service.rtmps_address()));
    let before = sink.wait_for_media(0);
    sink.wait_for_media(before + RENEWED_PACKETS);

    let sent = encoder.end();
    here.wait_for_stream(&stream, "idle");
    sink.wait_until_left();
    assert_complete("the sink behind both", &sent, &sink.records());
    assert_eq!(sink.publishes(), 1);
    for (service, times) in [(&service, 1), (&target, 1)] {
        let log = service.log();
        assert_eq!(log.matches("encoder publishes").count(), times, "{log}");
        service.assert_not_logged(&[
            ("a stream key", &stream.key),
            ("a stream key", &received.key),
            ("a private key", "BEGIN PRIVATE KEY"),
        ]);
    }
}

#[test]
fn servers_that_fail_at_tls_are_reported_and_harm_no_others() {
    let source = Source::shared();
    let healthy = Sink::recording();
    let (known, unknown) = (Authority::new("known"), Authority::new("unknown"));
    let target = Setup::default().rtmps(&unknown.pair("target", HERE)).start();
    let other_name = Setup::default().rtmps(&known.pair("other", &["other.example"])).start();
    let service = Setup::default()
        .set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "2")
        .set("SSL_CERT_FILE", &known.root_file().to_string_lossy())
        .start();
    let api = service.api();
    let stream = api.create_stream("tls failures");
    api.add_destination(&stream, &healthy.url(), "healthy");
    let bad = [
        (format!("rtmps://{}/live", target.rtmps_address()), said::UNKNOWN_AUTHORITY, true),
        (format!("rtmps://{}/live", other_name.rtmps_address()), said::ANOTHER_NAME, true),
        (format!("rtmps://{}/live", no_tls()), said::NO_TLS, false),
    ]
    .map(|(url, words, slow)| (api.add_destination(&stream, &url, "some-secret-key"), words, slow));

    let mut encoder = Publish::until_end(&source).to(&service.ingest_url(&stream.key));
    let started = api.wait_for_stream(&stream, "live")["startedAt"].as_i64().expect("a start");
    for (id, words, slow) in bad {
        // During the next attempt the state is `connecting` for a moment, without the reason.
        let shown = wait::until_api(words, || {
            let shown = api.destination(&stream, id);
            match shown["error"].as_str().is_some_and(|error| error.contains(words)) {
                true => Ok(shown),
                false => Err(shown.to_string()),
            }
        });
        assert_eq!(shown["bytesSent"], 0, "{shown}");
        if slow {
            assert!(shown["nextRetryAt"].as_i64() > Some(started + 30_000), "{shown}");
        }
    }
    healthy.wait_for_media(CARRIED_PACKETS);
    let sent = encoder.end();
    healthy.wait_until_left();
    assert_complete("the healthy server", &sent, &healthy.records());
    service.assert_not_logged(&[("the key of a destination", "some-secret-key")]);
}

#[test]
fn faults_of_certificate_files_are_reported_before_the_start() {
    let authority = Authority::new("files");
    let (good, other) = (authority.pair("good", HERE), authority.pair("other", HERE));
    let service = Setup::default().rtmps(&good).stopped();
    let doctor = String::from_utf8_lossy(&service.command(&["doctor"]).stdout).into_owned();
    let line = |name: &str| doctor.lines().find(|line| line.contains(name)).unwrap_or_default().to_owned();
    assert!(line("] certificate").contains("ok"), "{doctor}");
    assert!(line("] rtmps listener").contains("ok"), "{doctor}");

    std::fs::copy(&other.key, &good.key).expect("another key");
    let checked = service.command(&["check-config"]);
    let said = String::from_utf8_lossy(&checked.stderr).into_owned();
    assert_eq!(checked.status.code(), Some(2), "{said}");
    assert!(said.contains(said::NO_PAIR), "{said}");
    let doctor = service.command(&["doctor"]);
    assert!(!doctor.status.success());
    let run = service.command(&["run"]);
    assert!(!run.status.success(), "it does not start with half a pair");
    assert!(String::from_utf8_lossy(&run.stderr).contains(said::NO_PAIR));

    std::fs::remove_file(&good.cert).expect("the certificate is there");
    let said = String::from_utf8_lossy(&service.command(&["check-config"]).stderr).into_owned();
    assert!(said.contains(said::NO_CERTIFICATE), "{said}");
}
