//! Requests of viewers that a driver answers itself, on threads of the service and in a process of its own.

use satcast_tests::api::{Answer, Api};
use satcast_tests::author::lay;
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::Hosted;
use satcast_tests::scene::children;
use satcast_tests::service::{Service, Setup, binary};
use satcast_tests::source::Source;
use satcast_tests::wait::{until, until_api};
use serde_json::json;

/// Asks below the address of the destination, without a key of the account.
fn get(service: &Service, path: &str) -> (u16, String) {
    let answer = reqwest::blocking::get(format!("{}{path}", service.base())).expect("an answer");
    let status = answer.status().as_u16();
    assert!(answer.headers().get("set-cookie").is_none(), "{path}");
    (status, answer.text().expect("text"))
}

fn answers_viewers(isolation: &str) {
    let folder = tempfile::tempdir().expect("a folder for drivers");
    let built = binary().parent().expect("the folder of the binary").to_owned();
    lay(&built.join("libsatcast_test_driver.so"), &folder.path().join("panic.so"));
    let mut service = Setup::default()
        .set("SATCAST_DRIVERS__DIR", folder.path().to_str().expect("a path in UTF-8"))
        .set("SATCAST_DRIVERS__ENABLED", "[\"panic\"]")
        .set("SATCAST_DRIVER__PANIC__ISOLATION", isolation)
        .start();
    let (api, source) = (service.api(), Source::shared());
    let stream = api.create_stream("answers");
    let config = json!({ "place": "nowhere", "token": "very-secret-token" });
    let added: Answer = api.post(
        &format!("/api/streams/{}/destinations", stream.id),
        &json!({ "type": "answers", "config": config }),
    );
    let id = added.ok()["id"].as_i64().expect("an id");
    let key = Hosted::key(&service, id);
    let _encoder = Publish::of(&source).endless().to(&service.ingest_url(&stream.key));
    let _ = api.wait_for_destination(&stream, id, "live");
    let address = address_of(&api, stream.id, id);
    let asked = |rest: &str| format!("{address}/{rest}?q=1&apiKey={key}");

    let (status, text) = get(&service, &asked("ask/memory"));
    let process = match children(&service)[..] {
        [child] => child.to_string(),
        _ => service.process().id().to_string(),
    };
    assert_eq!((status, text), (200, format!("{process} q=1")), "its process, and no key");
    assert_eq!(get(&service, &asked("ask/file")), (200, "12345678".into()));
    assert_eq!(get(&service, &asked("ask/nothing")).0, 404);
    assert_eq!(get(&service, &asked("elsewhere")).0, 404);
    for failing in ["ask/split", "ask/panic"] {
        let (status, text) = get(&service, &asked(failing));
        assert_eq!(status, 500, "{text}");
        assert!(!text.contains("very-secret-token"), "{text}");
    }
    assert_eq!(get(&service, &format!("{address}/ask/memory?apiKey=pk_wrong")).0, 401);
    if isolation == "process" {
        // The viewer that sent the fatal request gets an error. Other viewers get answers once the driver runs again.
        assert!(get(&service, &asked("ask/abort")).0 >= 400);
        until("answers of the next process", || match get(&service, &asked("ask/memory")) {
            (200, text) if !text.starts_with(&process) => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    service.assert_not_logged(&[("the driver's token", "very-secret-token")]);
    service.assert_running();
}

/// The path of a destination's playback.
fn address_of(api: &Api, stream: i64, destination: i64) -> String {
    until_api("the address of the playback", || {
        let detail = api.get(&format!("/api/streams/{stream}")).ok().to_string();
        let found = detail.split("/hls/").nth(1).and_then(|rest| rest.split('/').next().map(str::to_owned));
        found.map(|path| format!("/hls/{path}")).ok_or_else(|| format!("{destination}: {detail}"))
    })
}

#[test]
fn a_driver_on_threads_answers_viewers() {
    answers_viewers("thread");
}

#[test]
fn a_driver_in_a_process_answers_viewers_and_dies_alone() {
    answers_viewers("process");
}
