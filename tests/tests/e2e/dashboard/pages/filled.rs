//! A service with something on every page, and everything around it.

use satcast_tests::api::{Api, Stream, send, send_patiently};
use satcast_tests::dashboard::{Dashboard, PASSWORD};
use satcast_tests::database::Database;
use satcast_tests::encoder::{Encoder, Publish};
use satcast_tests::hosted::{STATUS, now_secs};
use satcast_tests::lnbits::LnbitsServer;
use satcast_tests::ports::Port;
use satcast_tests::receiver::Receiver;
use satcast_tests::s3::Store;
use satcast_tests::service::{Service, Setup};
use satcast_tests::sink::Sink;
use satcast_tests::source::{Recipe, Source};
use satcast_tests::wait::{seconds, until_api};
use serde_json::{Value, json};

use crate::archive::{archives, end, key_of};

/// The account, which operates the service. The screenshots show these names.
pub(super) const NAME: &str = "studio";
const LIVE: &str = "Sunday service";
pub(super) const EVENING: &str = "Evening show";
/// Title of the clip.
pub(super) const CLIP: &str = "The last song";
/// Label of the public key.
pub(super) const WEBSITE: &str = "website";
/// Other accounts; the last one is disabled.
pub(super) const OTHERS: [&str; 2] = ["Harbour choir", "Hill school"];

const DAY_MS: i64 = 24 * 3_600_000;
/// Evenings of the history.
const EVENINGS: i64 = 24;
/// What the customer's wallet holds at first, and what was bought from it.
const FUNDS_SATS: u64 = 50_000;
const BOUGHT_SATS: i64 = 2_000;
/// Amount of the invoice that is open.
const ASKED_SATS: i64 = 1_000;

/// The service with its peers, which end with it.
pub(super) struct Filled {
    pub(super) service: Service,
    pub(super) api: Api,
    /// Live, with destinations that are live and one that is tried again.
    pub(super) live: Stream,
    /// Offline, with recordings and a history.
    pub(super) evening: Stream,
    /// A webhook with deliveries.
    pub(super) webhook: i64,
    /// An invoice that is not paid.
    pub(super) invoice: i64,
    _encoder: Encoder,
    _peers: (Sink, Store, LnbitsServer),
    /// No server listens there.
    _nobody: Port,
}

impl Filled {
    /// Starts and fills it; leaves a dashboard open as its operator.
    #[track_caller]
    pub(super) fn start() -> (Self, Dashboard) {
        let lnbits = LnbitsServer::start();
        lnbits.fund(&lnbits.customer, FUNDS_SATS);
        let (sink, store, nobody) = (Sink::recording(), Store::start(), Port::lease());
        let mut service = Setup::default()
            .set("SATCAST_WEBHOOKS__ALLOW_TARGETS", "[\"127.0.0.0/8\"]")
            .set("SATCAST_INGEST__REFUSE_QUIET_SECS", "0")
            .set("SATCAST_WALLET__TYPE", "lnbits")
            .set("SATCAST_WALLET__URL", lnbits.url())
            .set("SATCAST_WALLET__SECRET", &lnbits.operator.invoice_key)
            .stopped();
        service.start();
        let mut page = Dashboard::launch(&service);
        page.set_up(&first_link(&service), NAME, PASSWORD);
        let key = ["key", "create", "--account", NAME, "--type", "permanent", "--label", "Control room"];
        let key = service.run(&key).trim().to_owned();
        let api = Api::new(&service.base(), Some(&key));

        let evening = recordings(&service, &api, &store);
        let _ = api.create_stream("Morning prayer");
        let live = api.create_stream(LIVE);
        let hosted = add(&api, &live, &json!({ "type": "self-hosted", "config": {} }));
        api.add_destination(&live, &sink.url(), "sunday");
        api.add_destination(&live, &format!("rtmp://{}/app", nobody.address()), "sunday");
        let limits = json!({ "maxSats": 5_000, "maxDurationMinutes": 180 });
        let _ = api.post(&format!("/api/streams/{}/limits", live.id), &limits).ok();
        history(&mut service, &evening, &live, hosted);
        // The connections of the first client ended with the service.
        let api = Api::new(&service.base(), Some(&key));

        let webhook = webhooks(&api, nobody.address().port());
        accounts(&service, &api);
        let invoice = money(&api, &key, &lnbits);
        let encoder = go_live(&service, &api, &live, hosted);
        let _ = api.post(&format!("/api/webhooks/{webhook}/test"), &json!({})).ok();
        let peers = (sink, store, lnbits);
        (
            Self {
                service,
                api,
                live,
                evening,
                webhook,
                invoice,
                _encoder: encoder,
                _peers: peers,
                _nobody: nobody,
            },
            page,
        )
    }

    /// The page of a path of the service, with identifiers and what else fills it.
    pub(super) fn address(&self, path: &str) -> String {
        match path {
            "/streams/:id" => format!("/streams/{}", self.live.id),
            "/webhooks/:id" => format!("/webhooks/{}", self.webhook),
            "/analytics" => "/analytics?range=year".to_owned(),
            "/wallet" => format!("/wallet?topup={}", self.invoice),
            other => other.to_owned(),
        }
    }

    /// Title of a type of destinations.
    #[track_caller]
    pub(super) fn title_of(&self, name: &str) -> String {
        let drivers = self.api.get("/api/drivers").ok();
        let types = drivers.as_array().into_iter().flatten().filter_map(|driver| driver["types"].as_array());
        let found = types.flatten().find(|one| one["name"] == name);
        let found = found.unwrap_or_else(|| panic!("no type is {name}: {drivers}"));
        found["title"].as_str().expect("a title").to_owned()
    }

    /// File name of the recording in this state.
    #[track_caller]
    pub(super) fn recording(&self, state: &str) -> String {
        let all = archives(&self.api);
        let found = all.iter().find(|one| one["state"] == state);
        let found = found.unwrap_or_else(|| panic!("no recording is {state}: {all:?}"));
        found["fileName"].as_str().expect("a name").to_owned()
    }
}

/// The link of the first start.
#[track_caller]
pub(super) fn first_link(service: &Service) -> String {
    let link = std::fs::read_to_string(service.folder().join("data/setup-link"));
    link.expect("the link of the first start").trim().to_owned()
}

fn add(api: &Api, stream: &Stream, body: &Value) -> i64 {
    let added = api.post(&format!("/api/streams/{}/destinations", stream.id), body).ok();
    added["id"].as_i64().expect("the id of the destination")
}

/// A stream with two recordings and a clip: one recording is at the store, and the upload of the other failed.
fn recordings(service: &Service, api: &Api, store: &Store) -> Stream {
    let stream = api.create_stream(EVENING);
    let hosted = add(api, &stream, &json!({ "type": "self-hosted", "config": {} }));
    let archive = add(api, &stream, &json!({ "type": "cloud-archive", "config": store.config() }));
    for state in ["ready", "failed"] {
        let source = Publish::of(&Source::of(Recipe::SMALL)).faster(4);
        let source = if state == "ready" { source.endless() } else { source };
        let mut encoder = source.to(&service.ingest_url(&stream.key));
        let running = newest_recording(api, "recording");
        if state == "failed" {
            // Another object already has the name, and is not overwritten.
            let file = store.file(&key_of(&running));
            std::fs::create_dir_all(file.parent().expect("a folder")).expect("a folder in the bucket");
            std::fs::write(&file, "another object").expect("an object");
            encoder.finish(seconds(60));
        } else {
            clip(api, &stream);
            encoder.cut();
            let _ = api.delete(&format!("/api/streams/{}/destinations/{hosted}", stream.id)).ok();
        }
        end(api, &stream);
        let _ = newest_recording(api, state);
        let _ = api.wait_for_stream(&stream, "idle");
    }
    // The page shows one that is disabled, too.
    let path = format!("/api/streams/{}/destinations/{archive}", stream.id);
    let _ = api.patch(&path, &json!({ "enabled": false })).ok();
    add(api, &stream, &json!({ "type": "youtube", "config": { "key": "evening-show-key-0123" } }));
    stream
}

/// Makes a clip as soon as the stream has a window.
#[track_caller]
fn clip(api: &Api, stream: &Stream) {
    let (path, wanted) =
        (format!("/api/streams/{}/clips", stream.id), json!({ "lastSeconds": 5, "title": CLIP }));
    until_api("a clip", || match api.post(&path, &wanted) {
        made if made.status == 200 => Ok(()),
        refused => Err(refused.text),
    });
    until_api("a clip that is ready", || match &api.get("/api/clips").ok()[0] {
        ready if ready["state"] == "ready" => Ok(()),
        other => Err(other.to_string()),
    });
}

#[track_caller]
fn newest_recording(api: &Api, state: &str) -> Value {
    until_api(&format!("a recording that is {state}"), || match archives(api).first() {
        Some(newest) if newest["state"] == state => Ok(newest.clone()),
        other => Err(format!("{other:?}")),
    })
}

/// Evenings of the last weeks, each with its cost and its viewers. The service is stopped meanwhile.
fn history(service: &mut Service, evening: &Stream, live: &Stream, hosted: i64) {
    let today_ms = now_secs() * 1_000 / DAY_MS * DAY_MS;
    let count =
        format!("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {EVENINGS})");
    let start = format!("{today_ms} - i * {DAY_MS} + 18 * 3600000");
    let length = "(60 + i * 37 % 75) * 60000";
    let bytes = "2000000000 + i * 13 % 7 * 900000000";
    let (evening, live) = (evening.id, live.id);
    let statements = format!(
        "{count} INSERT INTO sessions (id, stream_id, started_ms, heartbeat_ms, ended_ms, end_reason)
            SELECT 'ses_evening_' || i, {evening}, {start}, {start} + {length}, {start} + {length}, 'stopped' FROM n;
        {count} INSERT INTO session_destinations (session_id, destination_id, account_id, stream_id, platform, started_ms,
            ended_ms, cost_msat) SELECT 'ses_evening_' || n.i, d.id, s.account_id, s.id, d.platform, {start},
            {start} + {length}, (60 + i * 37 % 75) * 2000 FROM n JOIN streams s ON s.id = {evening}
            JOIN destinations d ON d.stream_id = s.id;
        {count} INSERT INTO bandwidth (destination_id, hour_ms, account_id, bytes, billed_bytes)
            SELECT {hosted}, {start}, s.account_id, {bytes}, {bytes} FROM n JOIN streams s ON s.id = {live};"
    );
    let _ = service.stop();
    Database::of(service.folder()).write(statements);
    service.start();
}

/// A webhook whose receiver answers, and one whose receiver is not there.
fn webhooks(api: &Api, closed: u16) -> i64 {
    let events =
        ["stream.started", "stream.ended", "destination.connected", "destination.failed", "recording.ready"];
    let receivers = [format!("http://127.0.0.1:{closed}/alerts"), Receiver::start(None).url()];
    let made = receivers.map(|url| {
        let body = json!({ "url": url, "events": events, "secret": "auto" });
        api.post("/api/webhooks", &body).ok()["id"].as_i64().expect("the id of the webhook")
    });
    made[1]
}

/// Accounts beside the operator's own, and keys.
fn accounts(service: &Service, api: &Api) {
    for name in OTHERS {
        let made =
            api.post("/api/accounts", &json!({ "name": name, "operator": false, "credit": 2_500 })).ok();
        if Some(&name) == OTHERS.last() {
            let _ = api.patch(&format!("/api/accounts/{}", made["id"]), &json!({ "disabled": true })).ok();
        }
    }
    let script = json!({ "type": "permanent", "label": "Programme script", "scopes": ["read"] });
    let _ = api.post("/api/keys", &script).ok();
    service.run(&["account", "credit", NAME, "5000"]);
}

/// A paid invoice, an open one, and a connected wallet. Gives the open one.
fn money(api: &Api, key: &str, lnbits: &LnbitsServer) -> i64 {
    let top_up = |sats: i64| api.post("/api/wallet/topup", &json!({ "amountSats": sats })).ok();
    let paid = top_up(BOUGHT_SATS);
    lnbits.pay(&lnbits.customer, paid["bolt11"].as_str().expect("an invoice"));
    until_api("the payment", || {
        let invoice = api.get(&format!("/api/wallet/topup/{}", paid["invoiceId"])).ok();
        if invoice["state"] == "settled" { Ok(()) } else { Err(invoice.to_string()) }
    });
    let refill = json!({ "thresholdSats": 1_000, "amountSats": 5_000, "dailyCapSats": 20_000 });
    let secret = &lnbits.customer.admin_key;
    let body = json!({ "type": "lnbits", "url": lnbits.url(), "secret": secret, "refill": refill });
    let _ = send(api.request("PUT", "/api/wallet/connection").bearer_auth(key).json(&body)).ok();
    top_up(ASKED_SATS)["invoiceId"].as_i64().expect("the id of the invoice")
}

/// Starts the encoder; ends when all destinations show what they are to show, and viewers can start.
fn go_live(service: &Service, api: &Api, live: &Stream, hosted: i64) -> Encoder {
    let body = json!({ "type": "public", "destinationId": hosted, "label": WEBSITE });
    let public = api.post("/api/keys", &body).ok()["key"].as_str().expect("a key").to_owned();
    let encoder = Publish::of(&Source::of(Recipe::SCREEN)).endless().to(&service.ingest_url(&live.key));
    until_api("two live destinations, and one that is tried again", || {
        let detail = api.stream(live);
        let all = detail["destinations"].as_array().into_iter().flatten();
        let count = |state: &str| all.clone().filter(|one| one["state"] == state).count();
        if (count("live"), count("retrying")) == (2, 1) { Ok(()) } else { Err(detail.to_string()) }
    });
    until_api("hlsReady", || {
        let status = send_patiently(&api.request("GET", STATUS).header("X-API-Key", &public)).ok();
        if status["hlsReady"] == true { Ok(()) } else { Err(status.to_string()) }
    });
    encoder
}
