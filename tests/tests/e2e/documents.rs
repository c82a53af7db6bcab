//! The commands of the documents: every shell block is run in order against a real service, as a reader pastes them, and has the
//! outcome that the text promises. `reader.sh` of the harness has the commands that are replaced, each with its reason.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use satcast_tests::api::{Api, Stream, client, send, send_patiently, stream_of};
use satcast_tests::author::{root, run};
use satcast_tests::encoder::Publish;
use satcast_tests::hosted::{STATUS, now_secs};
use satcast_tests::lnbits::LnbitsServer;
use satcast_tests::ports::Port;
use satcast_tests::postgres::{PASSWORD, Postgres};
use satcast_tests::reader::{Reader, blocks, documents, read};
use satcast_tests::s3::{ACCESS_KEY, BUCKET, SECRET_KEY, Store};
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until, until_api};
use serde_json::{Value, json};

use crate::packages::installs_packages;

/// The account of the documents.
const ACCOUNT: &str = "me";
/// Where the documents forward to.
const TARGET: &str = "rtmp://live.example.com/app";
/// Packets that show that a destination got the stream.
const PACKETS: usize = 60;
/// The releases of the installation and its upgrade.
const RELEASES: [&str; 2] = ["0.1.0", "0.2.0"];
/// What the customer's wallet holds at first.
const FUNDS_SATS: u64 = 20_000;
/// Made from the default file, which `satcast config` prints: `operator` checks that.
const GENERATED: &str = "docs/configuration.md";

/// A test for each document that has shell blocks, and the list of these documents.
macro_rules! scenes {
    ($($test:ident: $scene:ident of $document:literal;)*) => {
        const DOCUMENTS: &[&str] = &[$($document),*];
        $(#[test]
        fn $test() {
            $scene($document);
        })*
    };
}

scenes! {
    the_readme_leads_to_a_first_stream: first_stream of "README.md";
    the_streaming_page_forwards: forwards of "docs/streaming.md";
    the_playback_page_plays: plays of "docs/playback.md";
    the_recording_page_records_and_recovers: records of "docs/recording.md";
    the_billing_page_sells_credit: sells_credit of "docs/billing.md";
    the_webhooks_page_verifies_a_delivery: verifies of "docs/webhooks.md";
    the_api_page_follows_events_and_generates_clients: generates_clients of "docs/api.md";
    the_installation_upgrades_and_goes_back: installs of "docs/install.md";
    the_operation_page_backs_up_and_restores: restores of "docs/operate.md";
    the_packages_page_installs_and_removes: installs_packages of "docs/packages.md";
}

#[test]
fn every_document_with_shell_blocks_has_a_scene() {
    let with_blocks: BTreeSet<String> =
        documents().into_iter().filter(|document| !blocks(&read(document), "sh").is_empty()).collect();
    let scenes: BTreeSet<String> = DOCUMENTS.iter().map(|document| (*document).to_owned()).collect();
    assert_eq!(with_blocks, scenes);
}

#[test]
fn the_project_commands_of_the_documents_exist() {
    let source = read("host/xtask/src/main.rs");
    let help = source.split("const HELP").nth(1).and_then(|rest| rest.split("\";").next());
    let listed = help.expect("the help of xtask").lines().filter_map(|line| line.strip_prefix("  "));
    let known: BTreeSet<&str> = listed.filter_map(|line| line.split(' ').next()).chain(["help"]).collect();
    for document in documents() {
        let text = read(&document);
        for rest in text.split("cargo xtask ").skip(1) {
            let name = rest.split(|letter: char| !letter.is_ascii_lowercase()).next().unwrap_or_default();
            assert!(name.is_empty() || known.contains(name), "{document}: cargo xtask {name}");
        }
    }
}

#[test]
fn every_configuration_in_the_documents_passes_the_check() {
    let service = Setup::default().stopped();
    let file = service.folder().join("document.toml");
    let mut checked = 0;
    for document in documents().iter().filter(|document| document.as_str() != GENERATED) {
        for block in blocks(&read(document), "toml") {
            std::fs::write(&file, &block).expect("a configuration file");
            let output =
                service.command(&["check-config", "--config", file.to_str().expect("a path in UTF-8")]);
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{document}: {errors}\n{block}");
            checked += 1;
        }
    }
    assert!(checked >= 4, "{checked} blocks");
}

/// A running service with the account of the documents.
fn started(setup: Setup) -> Service {
    let mut service = setup.stopped();
    service.start();
    service.run(&["account", "create", ACCOUNT]);
    service
}

/// Makes key and stream as every page tells the reader to, and opens `document`.
fn begin(reader: &mut Reader, service: &Service, document: &str) -> (Api, Stream) {
    reader.open("docs/streaming.md");
    reader.paste();
    reader.open(document);
    made(reader, service)
}

/// The API with the reader's key, and the reader's stream.
fn made(reader: &mut Reader, service: &Service) -> (Api, Stream) {
    let api = Api::new(&service.base(), Some(reader.value("KEY").as_str()));
    (api, stream_of(&json_of(&reader.value("MADE"))))
}

#[track_caller]
fn json_of(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

/// Asks for the status until a player can start.
fn ready(service: &Service, public: &str) {
    let api = Api::new(&service.base(), None);
    until("hlsReady", || {
        let status = send_patiently(&api.request("GET", STATUS).header("X-API-Key", public)).ok();
        if status["hlsReady"] == true {
            return Ok(());
        }
        // The key has sixty requests a minute.
        std::thread::sleep(seconds(1));
        Err(status.to_string())
    });
}

fn first_stream(document: &str) {
    let sink = Sink::recording();
    // As `cargo xtask run` starts it, with the variable that the text gives for a first try.
    let mut service = Setup::default().stopped();
    service.start();
    let mut reader = Reader::new(&service, &[(TARGET, sink.url().as_str())]);
    reader.open(document);
    reader.paste_to("cargo xtask run");
    let calls = reader.calls();
    for command in ["cargo xtask run", "cargo xtask test"] {
        assert!(calls.lines().any(|call| call == command), "{command}: {calls}");
    }
    reader.paste_to("account create");
    let (api, stream) = made(&mut reader, &service);
    reader.paste_to("ffmpeg -nostdin");
    sink.wait_for_media(PACKETS);
    assert_eq!(sink.names(), ["their-key"]);
    let shown = json_of(&reader.paste());
    assert_eq!((&shown["state"], shown["destinations"].as_array().map(Vec::len)), (&json!("live"), Some(1)));
    reader.paste_to("dvrSeconds");
    ready(&service, &reader.value("PUBLIC"));
    assert_eq!(api.stream(&stream)["destinations"].as_array().map(Vec::len), Some(2));
    reader.finish();
}

fn forwards(document: &str) {
    let sink = Sink::recording();
    let service = started(Setup::default());
    let mut reader = Reader::new(&service, &[(TARGET, sink.url().as_str())]);
    reader.open(document);
    reader.paste_to("KEY=");
    let (api, stream) = made(&mut reader, &service);
    reader.paste_to("ffmpeg -nostdin");
    api.wait_for_stream(&stream, "live");
    reader.paste();
    sink.wait_for_media(PACKETS);
    assert_eq!(sink.names(), ["their-key"]);
    let destinations = api.stream(&stream)["destinations"].clone();
    let id = destinations[0]["id"].as_i64().expect("the id of the destination");
    api.wait_for_destination(&stream, id, "live");
    reader.paste_to("\"type\":\"srt\"");
    assert_eq!(api.stream(&stream)["destinations"].as_array().map(Vec::len), Some(2));
    reader.finish();
}

fn plays(document: &str) {
    let service = started(Setup::default());
    let mut reader = Reader::new(&service, &[]);
    let (_, stream) = begin(&mut reader, &service, document);
    reader.paste_to("dvrSeconds");
    reader.paste_to("/api/keys");
    let offline = json_of(&reader.paste_to("/api/public/stream/status"));
    assert_eq!((&offline["isLive"], &offline["hlsUrl"]), (&json!(false), &Value::Null), "{offline}");
    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&stream.key));
    ready(&service, &reader.value("PUBLIC"));
    reader.paste_to("ffplay");
    reader.finish();
}

/// The newest recording, once it is in this state.
fn newest(api: &Api, count: usize, state: &str) -> Value {
    until_api(&format!("recording {count} to be {state}"), || {
        let all = api.get("/api/archives").ok();
        let is_so = all.as_array().map(Vec::len) == Some(count) && all[0]["state"] == state;
        if is_so { Ok(all[0].clone()) } else { Err(all.to_string()) }
    })
}

fn records(document: &str) {
    let (store, source) = (Store::start(), Source::of(Recipe::SMALL));
    // The session ends with its encoder.
    let service = started(Setup::default().set("SATCAST_INGEST__RECONNECT_WINDOW_SECS", "1"));
    let places = [
        ("https://s3.example.com", store.endpoint()),
        ("\"bucket\":\"shows\"", format!("\"bucket\":\"{BUCKET}\"")),
        ("\"ACCESS_KEY\"", format!("\"{ACCESS_KEY}\"")),
        ("\"SECRET_KEY\"", format!("\"{SECRET_KEY}\"")),
    ];
    let mut reader = Reader::new(&service, &places.each_ref().map(|(from, to)| (*from, to.as_str())));
    let (api, stream) = begin(&mut reader, &service, document);
    reader.paste_to("cloud-archive");
    let publish = || Publish::of(&source).faster(4).to(&service.ingest_url(&stream.key));
    let object = |archive: &Value| {
        store.file(&format!("live/{}", archive["fileName"].as_str().expect("the name of a recording")))
    };

    publish().finish(seconds(60));
    let first = newest(&api, 1, "ready");
    assert!(object(&first).is_file(), "{:?}", store.keys());
    let listed = json_of(&reader.paste_to("/api/archives | jq"));
    assert_eq!(listed[0]["fileName"], first["fileName"]);

    // The second fails, because the store has another object of its name.
    let mut encoder = publish();
    let second = object(&newest(&api, 2, "recording"));
    std::fs::create_dir_all(second.parent().expect("a folder")).expect("a folder in the bucket");
    std::fs::write(&second, "another object").expect("an object");
    encoder.finish(seconds(60));
    newest(&api, 2, "failed");
    std::fs::remove_file(&second).expect("the other object goes");
    reader.paste_to("recover-pay");
    newest(&api, 2, "ready");
    assert!(second.is_file(), "{:?}", store.keys());
    reader.finish();
}

fn sells_credit(document: &str) {
    let lnbits = LnbitsServer::start();
    lnbits.fund(&lnbits.customer, FUNDS_SATS);
    let places = [
        ("https://lnbits.example.com", lnbits.url()),
        ("INVOICE_KEY", lnbits.operator.invoice_key.as_str()),
        ("ADMIN_KEY", lnbits.customer.admin_key.as_str()),
    ];
    let mut service = Setup::default().stopped();
    let mut reader = Reader::new(&service, &places);
    reader.open(document);
    std::fs::write(service.folder().join("satcast.toml"), reader.blocks_of("toml").concat())
        .expect("a configuration file");
    service.start();
    service.run(&["account", "create", ACCOUNT]);
    let (api, stream) = begin(&mut reader, &service, document);

    reader.paste_to("/limits");
    assert_eq!(api.stream(&stream)["limits"], json!({"maxSats": 500, "maxDurationMinutes": 120}));
    reader.paste_to("format=csv");
    reader.paste_to("bolt11");
    let topup = json_of(&reader.value("TOPUP"));
    lnbits.pay(&lnbits.customer, topup["bolt11"].as_str().expect("an invoice"));
    until_api("the credit", || {
        let balance = api.get("/api/wallet/balance").ok();
        if balance["balance"] == 1_000 { Ok(()) } else { Err(balance.to_string()) }
    });
    assert_eq!(reader.paste_to("invoiceId"), "\"settled\"\n1000\n");
    reader.paste_to("/api/wallet/connection");
    let connected = api.get("/api/wallet/connection").ok();
    assert_eq!((&connected["state"], &connected["refill"]["amountSats"]), (&json!("active"), &json!(1_000)));
    service.run(&["ledger", "check"]);
    reader.finish();
}

fn verifies(document: &str) {
    let port = Port::lease();
    let url = format!("http://{}/", port.address());
    let listens = format!("(\"127.0.0.1\", {})", port.address().port());
    let service = started(Setup::default().set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]"));
    let places =
        [("https://hooks.example.com/satcast", url.as_str()), ("(\"127.0.0.1\", 9000)", listens.as_str())];
    let mut reader = Reader::new(&service, &places);
    let (_, stream) = begin(&mut reader, &service, document);
    std::fs::write(service.folder().join("receiver.py"), reader.blocks_of("python").concat())
        .expect("the receiver of the document");
    reader.paste_to("/api/webhooks");
    reader.paste_to("receiver.py");
    until("the receiver to listen", || {
        std::net::TcpStream::connect(port.address()).map_err(|error| error.to_string())
    });
    let log = || std::fs::read_to_string(service.folder().join("receiver.log")).unwrap_or_default();
    let said = reader.paste_to("/test");
    assert!(said.contains("\"ok\": true") && said.contains("\"test.ping\""), "{said}");

    let _encoder = Publish::of(&Source::shared()).endless().to(&service.ingest_url(&stream.key));
    until("the start of the stream at the receiver", || {
        let is_there = |line: &str| line.starts_with("verified {") && line.contains("\"stream.started\"");
        if log().lines().any(is_there) { Ok(()) } else { Err(log()) }
    });
    let forged = client(seconds(10))
        .post(&url)
        .header("webhook-id", "evt_forged")
        .header("webhook-timestamp", now_secs().to_string())
        .header("webhook-signature", "v1,AAAA")
        .body("{}");
    assert_eq!(send(forged).status, 401);
    reader.finish();
}

fn generates_clients(document: &str) {
    let service = started(Setup::default());
    let mut reader = Reader::new(&service, &[]);
    begin(&mut reader, &service, document);
    std::os::unix::fs::symlink(root().join("openapi"), service.folder().join("openapi"))
        .expect("the sources");
    let said = reader.paste_to("/api/events");
    assert!(said.lines().any(|line| line == "event: ready"), "{said}");
    reader.paste_to("openapi-generator-cli");
    let types = std::fs::read_to_string(service.folder().join("api.d.ts")).expect("the types");
    assert!(types.contains("streamKey"), "{types}");
    assert!(service.folder().join("client/pyproject.toml").is_file(), "the client in Python");
    reader.finish();
}

/// Packs a release of the build under test in `folder`, once for each version, as `cargo xtask dist` does.
fn pack(folder: &Path) {
    let stage = tempfile::tempdir().expect("a folder for a release");
    let release = stage.path().join(format!("satcast-{}", RELEASES[0]));
    satcast_tests::release::lay(&release);
    for file in ["packaging/systemd/satcast.service", "README.md"] {
        let to = release.join(file.rsplit('/').next().unwrap_or_default());
        std::fs::copy(root().join(file), to).expect("a file of a release");
    }
    for version in RELEASES {
        let archive = format!("satcast-{version}-x86_64-unknown-linux-gnu.tar.gz");
        let mut tar = Command::new("tar");
        tar.args(["--create", "--use-compress-program=gzip -1", "--mode=u=rwX,go=rX"]);
        tar.arg(format!("--transform=s/^satcast-{}/satcast-{version}/", RELEASES[0]));
        tar.arg("--file").arg(folder.join(&archive)).arg("--directory").arg(stage.path());
        run(tar.arg(format!("satcast-{}", RELEASES[0])));
        let checksum = run(Command::new("sha256sum").arg(&archive).current_dir(folder));
        std::fs::write(folder.join(format!("{archive}.sha256")), checksum).expect("a checksum");
    }
}

/// Follows the installation until there are a running service, an account of an operator and a key; gives the API.
fn install(reader: &mut Reader, service: &Service) -> Api {
    pack(service.folder());
    // The configuration is in the file alone.
    reader.run("unset \"${!SATCAST_@}\"\n");
    reader.open("docs/install.md");
    reader.paste_to("VERSION=");
    reader.paste_to("satcast config");
    // The printed file holds the defaults: these keys are those that the text names.
    let file = service.folder().join("root/etc/satcast/satcast.toml");
    let printed = std::fs::read_to_string(&file).expect("the printed configuration");
    assert!(printed.contains("rtmp_listen"), "{printed}");
    std::fs::write(&file, reader.blocks_of("toml").concat()).expect("the configuration");
    reader.paste_to("systemctl enable");
    reader.paste_to("account create");
    Api::new(&service.base(), Some(reader.value("KEY").as_str()))
}

/// The binary of the running unit.
fn running(reader: &mut Reader) -> String {
    reader.run("readlink \"/proc/$UNIT/exe\"\n").trim().to_owned()
}

fn installs(document: &str) {
    let service = Setup::default().stopped();
    let mut reader = Reader::new(&service, &[]);
    let api = install(&mut reader, &service);
    let [old, new] = RELEASES.map(|version| format!("satcast-{version}/satcast"));
    assert!(running(&mut reader).ends_with(&old));
    let kept = api.create_stream("kept");
    unit_is_explained(&service, document);

    reader.paste_to("NEW=");
    reader.paste_to("check-config");
    reader.paste_to("before-$NEW.db");
    reader.paste_to("systemctl start");
    assert!(running(&mut reader).ends_with(&new));
    reader.paste_to("ledger check");
    assert_eq!(api.stream(&kept)["label"], "kept");
    let lost = api.create_stream("lost");

    reader.paste_to("satcast.db-wal");
    assert!(running(&mut reader).ends_with(&old));
    assert_eq!(api.stream(&kept)["label"], "kept");
    api.get(&format!("/api/streams/{}", lost.id)).assert_error(404, None);
    reader.paste_to("cargo xtask run");
    reader.paste_to("cargo xtask dist");
    let calls = reader.calls();
    for command in [
        "useradd --system",
        "chown root:satcast",
        "systemctl daemon-reload",
        "systemctl enable --now satcast",
        "systemctl stop satcast",
        "cargo xtask run",
        "cargo xtask dist",
    ] {
        assert!(calls.lines().any(|call| call.starts_with(command)), "{command}: {calls}");
    }
    reader.finish();
}

/// Every line of the unit is a section, a comment or a key with a value, and has the keys that the document explains.
fn unit_is_explained(service: &Service, document: &str) {
    let file = service.folder().join("root/etc/systemd/system/satcast.service");
    let unit = std::fs::read_to_string(file).expect("the installed unit");
    let mut keys = BTreeSet::new();
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
        let (key, value) = line.split_once('=').unwrap_or_else(|| panic!("no key: {line}"));
        assert!(!value.is_empty() && keys.insert(key.to_owned()), "{line}");
    }
    let text = read(document);
    let explained: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("- `")?.split(['=', '`']).next())
        .filter(|key| key.starts_with(|letter: char| letter.is_ascii_uppercase()))
        .collect();
    assert!(explained.len() >= 4, "{explained:?}");
    assert!(explained.iter().all(|key| keys.contains(*key)), "{explained:?} in {keys:?}");
}

fn restores(document: &str) {
    let (server, service) = (Postgres::start(), Setup::default().stopped());
    let address = server.server();
    let port = address.rsplit(':').next().expect("the server's port").to_owned();
    // The role `satcast` of this server is its superuser.
    let toml = server.url("reader").replace("satcast:", "reader:");
    let toml = toml.trim_start_matches("postgres://").to_owned();
    let dumped = format!("reader@localhost:{port}/reader");
    let moved = toml.replace(&format!(":{PASSWORD}@"), "@");
    let places = [
        ("--pwprompt satcast", "--pwprompt reader"),
        ("--owner satcast", "--owner reader"),
        ("template0 satcast", "template0 reader"),
        ("dropdb satcast", "dropdb reader"),
        ("satcast:PASSWORD@HOST:5432/satcast?sslmode=verify-full", toml.as_str()),
        ("satcast@HOST:5432/satcast?sslmode=verify-full", moved.as_str()),
        ("satcast@HOST:5432/satcast", dumped.as_str()),
    ];
    let mut reader = Reader::new(&service, &places);
    let api = install(&mut reader, &service);
    reader.run(&format!("export PGHOST=localhost PGPORT={port} PGUSER=satcast PGPASSWORD='{PASSWORD}'\n"));
    reader.open(document);
    reader.paste_to("createuser");
    let configuration = reader.blocks_of("toml").into_iter().find(|block| block.starts_with("[database]"));
    let configuration = configuration.expect("the address of a database");
    let data = service.folder().join("root/var/lib/satcast");
    std::fs::write(service.folder().join("server.toml"), format!("data_dir = {data:?}\n{configuration}"))
        .expect("a configuration file");
    reader.paste_to("migrate --to");
    assert_eq!(server.ask("reader", "SELECT name FROM accounts"), "me");
    // The rest of the document goes on with the file.
    reader.run("systemctl start satcast\n");
    reader.run("command satcast --config server.toml account create dumped\n");

    let kept = api.create_stream("kept");
    reader.paste_to("satcast backup");
    assert!(service.folder().join("satcast-secret.key").is_file());
    let lost = api.create_stream("lost");
    reader.paste_to("satcast.db-wal");
    assert_eq!(api.stream(&kept)["label"], "kept");
    api.get(&format!("/api/streams/{}", lost.id)).assert_error(404, None);

    reader.paste_to("pg_dump");
    reader.run("command satcast --config server.toml account create later\n");
    reader.paste_to("pg_restore");
    assert_eq!(server.ask("reader", "SELECT name FROM accounts WHERE name IN ('dumped', 'later')"), "dumped");
    reader.run("command satcast --config server.toml ledger check\n");
    let said = reader.paste_to("/metrics");
    assert!(said.contains("satcast_build_info"), "{said}");
    commands_exist(&service, document);
    reader.finish();
}

/// Every command in the first column of the table is one of the binary.
fn commands_exist(service: &Service, document: &str) {
    let text = read(document);
    let rows: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix("| `satcast ")).collect();
    assert!(rows.len() >= 10, "{} commands", rows.len());
    for row in rows {
        let is_word = |word: &&str| word.bytes().all(|byte| byte == b'-' || byte.is_ascii_lowercase());
        let words = row.split(['`', ' ']).take_while(|word| !word.is_empty() && !word.starts_with('-'));
        let mut words: Vec<&str> = words.take_while(is_word).collect();
        words.push("--help");
        let _ = service.run(&words);
    }
}
