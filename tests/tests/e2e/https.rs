//! Playback over https: both versions of HTTP, every byte metered, certificates renewed under way.

use satcast_tests::database::Database;
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::player::secure_viewer;
use satcast_tests::service::Setup;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::tls::Authority;
use satcast_tests::wait::{self, seconds};
use serde_json::json;

const HERE: &[&str] = &["127.0.0.1"];
/// How long counted bytes may be on their way to the database.
const STORED_AFTER_SECONDS: u64 = 12;
/// An aborted answer may be counted this much too high.
const ABORT_EXCESS_BYTES: u64 = 512 * 1024;
/// Bytes of the window: with so many, a hundredth of them is more than the answers around it.
const WHOLE_BYTES_MIN: u64 = 5_000_000;

#[test]
fn viewers_over_https_get_and_pay_every_byte_and_certificates_are_renewed() {
    let authority = Authority::new("web");
    let pair = authority.pair("web", HERE);
    let mut service = Setup::default().start();
    let hosted = Hosted::new(&service, "secure");
    let index = hosted.page(&service).replace("/watch/", "/hls/") + "/index.m3u8";
    assert!(service.stop().success());
    service.use_https(&pair);
    service.start();
    let index = index.replace("http://", "https://");
    let url = format!("{index}?apiKey={}", hosted.key);
    let view = |what: &str| secure_viewer(&authority.root_file(), &url, what);
    let _encoder =
        Publish::of(&Source::of(Recipe::HEAVY)).endless().to(&service.ingest_url(&hosted.stream.key));
    wait::until("enough of the stream over https", || match view("whole")? {
        whole if whole["bytes"].as_u64() > Some(WHOLE_BYTES_MIN) => Ok(()),
        whole => Err(whole.to_string()),
    });
    let mut database = Database::of(service.folder());
    let mut stored = |wanted: u64| {
        wait::within("the metered bytes", seconds(STORED_AFTER_SECONDS), || {
            match database.bytes_sent(hosted.destination) {
                bytes if bytes >= wanted => Ok(bytes),
                bytes => Err(format!("{bytes} of {wanted} bytes")),
            }
        })
    };

    // The bytes that were loaded during the wait are counted before the measurement begins.
    std::thread::sleep(seconds(STORED_AFTER_SECONDS / 2));
    let before = stored(1);
    let whole = view("whole").expect("every answer a 200");
    assert_eq!(whole["versions"], json!(["h2", "http/1.1"]), "{whole}");
    let received = whole["bytes"].as_u64().expect("bytes");
    let metered = stored(before + received) - before;
    println!("{received} bytes received, {metered} metered");
    assert!(
        received > WHOLE_BYTES_MIN && metered.abs_diff(received) * 100 <= received,
        "{whole}: {metered} metered"
    );

    let given_up = view("give-up").expect("every answer a 200");
    let (bytes, given) =
        (given_up["bytes"].as_u64().expect("bytes"), given_up["given"].as_u64().expect("given"));
    let times = given_up["times"].as_u64().expect("times");
    let due = before + metered + bytes + given;
    let after = stored(due);
    std::thread::sleep(seconds(STORED_AFTER_SECONDS / 2));
    let excess = stored(after) - due;
    println!("{times} given up after {given} bytes in all, {excess} more metered");
    assert!(excess <= times * ABORT_EXCESS_BYTES, "{excess} bytes too many for {times} answers given up");

    let shown = |what: &str| view(what).expect("a certificate")["fingerprint"].clone();
    let old = shown("certificate");
    authority.renew(&pair, HERE);
    wait::until("the new certificate", || match shown("certificate") {
        new if new != old => Ok(()),
        _ => Err("still the old one".into()),
    });
    view("whole").expect("every answer a 200 with the new certificate");
    service.assert_not_logged(&[("the public key", &hosted.key)]);
}
