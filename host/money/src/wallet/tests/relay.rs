//! A relay and its wallet in one: a scripted announcement, and scripted steps for each request.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use futures_util::{SinkExt as _, StreamExt as _};
use nostr::event::{Event, EventBuilder, FinalizeEvent as _, Kind, Tag};
use nostr::key::{Keys, SecretKey};
use nostr::nips::{nip04, nip44};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{WebSocketStream, accept_async};

use super::NOW;

/// A step of the relay for a request.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// The wallet's answer with this `result`, for the requested method.
    Result(Value),
    /// The wallet's answer with this error code.
    Code(&'static str),
    /// The wallet's answer with this text inside.
    Inside(String),
    /// A forged answer, or one for another request.
    Forged(Forgery),
    /// A message as it stands.
    Raw(String),
    /// The same message many times.
    Flood(String, usize),
    /// The relay refuses the request.
    NotTaken(&'static str),
    /// The relay ends the subscription.
    Closed(&'static str),
    /// The connection ends.
    HangUp,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Forgery {
    Author,
    Signature,
    /// The right author with an id that is not the content's.
    Content,
    Request,
    Kind,
}

/// The wallet's announcement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Announced {
    /// With this tag `encryption`, and these methods.
    As(Option<&'static str>, &'static str),
    /// Only one by another author.
    ByAnother,
    Never,
    /// None, not even the end of stored events.
    Silent,
}

/// A request, decrypted.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) event: Event,
    pub(super) body: Value,
}

pub(super) struct Relay {
    address: SocketAddr,
    state: Arc<State>,
    task: JoinHandle<()>,
}

struct State {
    wallet: Keys,
    client: Keys,
    announced: Announced,
    steps: Mutex<VecDeque<Vec<Step>>>,
    asked: Mutex<Vec<Asked>>,
    /// Open connections.
    open: watch::Sender<usize>,
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn keys(byte: u8) -> Keys {
    Keys::new(SecretKey::from_slice(&[byte; 32]).unwrap())
}

impl Relay {
    /// A wallet that supports NIP-44 and looks up payments.
    pub(super) async fn new() -> Self {
        let methods = "pay_invoice get_balance make_invoice lookup_invoice";
        Self::announcing(Announced::As(Some("nip44_v2 nip04"), methods)).await
    }

    pub(super) async fn announcing(announced: Announced) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            wallet: keys(3),
            client: keys(4),
            announced,
            steps: Mutex::default(),
            asked: Mutex::default(),
            open: watch::Sender::new(0),
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            loop {
                let (socket, _) = listener.accept().await.unwrap();
                let state = Arc::clone(&shared);
                tokio::spawn(async move {
                    state.open.send_modify(|open| *open += 1);
                    serve(socket, &state).await;
                    state.open.send_modify(|open| *open -= 1);
                });
            }
        });
        Self { address, state, task }
    }

    pub(super) fn url(&self) -> String {
        format!("ws://{}", self.address)
    }

    /// The connection text with this relay only.
    pub(super) fn uri(&self) -> String {
        self.uri_over(&[&self.url()])
    }

    pub(super) fn uri_over(&self, relays: &[&str]) -> String {
        let relays: Vec<String> = relays.iter().map(|relay| format!("relay={relay}")).collect();
        let (wallet, secret) =
            (self.state.wallet.public_key().to_hex(), self.state.client.secret_key().to_secret_hex());
        format!("nostr+walletconnect://{wallet}?{}&secret={secret}", relays.join("&"))
    }

    pub(super) fn secret(&self) -> String {
        self.state.client.secret_key().to_secret_hex()
    }

    /// Steps for the following requests, one list for each; later requests get no steps.
    pub(super) fn will(&self, steps: impl IntoIterator<Item = Vec<Step>>) {
        *self.state.steps.lock() = steps.into_iter().collect();
    }

    pub(super) fn take_asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.state.asked.lock())
    }

    /// Methods of the requests since the last call.
    pub(super) fn take_methods(&self) -> Vec<String> {
        self.take_asked().iter().map(|asked| asked.body["method"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits until no connection is open.
    pub(super) async fn left_alone(&self) {
        let mut open = self.state.open.subscribe();
        open.wait_for(|open| *open == 0).await.unwrap();
    }

    /// Waits for a request.
    pub(super) async fn was_asked(&self) {
        while self.state.asked.lock().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}

type Socket = WebSocketStream<TcpStream>;

/// Errors of a client that has disconnected.
async fn say(socket: &mut Socket, message: &Value) {
    let _ = socket.send(Message::text(message.to_string())).await;
}

async fn serve(socket: TcpStream, state: &State) {
    let Ok(mut socket) = accept_async(socket).await else { return };
    let mut subscribed = false;
    while let Some(Ok(message)) = socket.next().await {
        let Ok(text) = message.to_text() else { continue };
        let Ok(message) = serde_json::from_str::<Value>(text) else { continue };
        match message[0].as_str() {
            Some("REQ") if message[1] == "info" => {
                assert_eq!(message[2]["kinds"], json!([13194]));
                assert_eq!(message[2]["authors"], json!([state.wallet.public_key().to_hex()]));
                announce(&mut socket, state).await;
            }
            Some("REQ") => {
                assert_eq!(message[2]["kinds"], json!([23195]));
                assert_eq!(message[2]["authors"], json!([state.wallet.public_key().to_hex()]));
                assert_eq!(message[2]["#e"].as_array().unwrap().len(), 1);
                subscribed = true;
                say(&mut socket, &json!(["EOSE", "answer"])).await;
            }
            Some("EVENT") => {
                assert!(subscribed, "an answer would be missed");
                let event = Event::from_json(message[1].to_string()).unwrap();
                event.verify().unwrap();
                if !request(&mut socket, state, event).await {
                    return;
                }
            }
            _ => {}
        }
    }
}

async fn announce(socket: &mut Socket, state: &State) {
    let info = |tag: Option<&str>, methods: &str, keys: &Keys| {
        let mut builder = EventBuilder::new(Kind::WalletConnectInfo, methods);
        if let Some(tag) = tag {
            builder = builder.tag(Tag::custom("encryption", [tag]));
        }
        let event = builder.finalize(keys).unwrap();
        json!(["EVENT", "info", serde_json::from_str::<Value>(&event.as_json()).unwrap()])
    };
    match &state.announced {
        Announced::As(tag, methods) => say(socket, &info(*tag, methods, &state.wallet)).await,
        Announced::ByAnother => say(socket, &info(None, "get_balance", &keys(9))).await,
        Announced::Never => {}
        Announced::Silent => return,
    }
    say(socket, &json!(["EOSE", "info"])).await;
}

/// A request in progress.
struct Answering<'a> {
    state: &'a State,
    event: Event,
    nip04: bool,
    method: String,
}

impl Answering<'_> {
    fn decrypted(&self) -> Value {
        let (secret, client) = (self.state.wallet.secret_key(), &self.event.pubkey);
        let body = if self.nip04 {
            nip04::decrypt(secret, client, &self.event.content)
        } else {
            nip44::decrypt(secret, client, &self.event.content)
        };
        serde_json::from_str(&body.unwrap()).unwrap()
    }

    fn seal(&self, keys: &Keys, kind: Kind, id: &str, text: &str) -> Value {
        let (secret, client) = (keys.secret_key(), &self.event.pubkey);
        let content = if self.nip04 {
            nip04::encrypt(secret, client, text).unwrap()
        } else {
            nip44::encrypt(secret, client, text, nip44::Version::V2).unwrap()
        };
        let event = EventBuilder::new(kind, content).tag(Tag::custom("e", [id])).finalize(keys).unwrap();
        serde_json::from_str(&event.as_json()).unwrap()
    }

    fn honest(&self, text: &str) -> Value {
        self.seal(&self.state.wallet, Kind::WalletConnectResponse, &self.event.id.to_hex(), text)
    }

    fn forged(&self, forgery: Forgery) -> Value {
        let (wallet, id) = (&self.state.wallet, self.event.id.to_hex());
        let text = json!({ "result_type": self.method, "result": { "balance": 666 } }).to_string();
        let taken_over = |part: &str| {
            let (mut one, two) = (self.honest("{}"), self.honest(&text));
            one[part] = two[part].clone();
            one
        };
        match forgery {
            Forgery::Author => self.seal(&keys(9), Kind::WalletConnectResponse, &id, &text),
            Forgery::Kind => self.seal(wallet, Kind::WalletConnectRequest, &id, &text),
            Forgery::Request => self.seal(wallet, Kind::WalletConnectResponse, &"0".repeat(64), &text),
            Forgery::Signature => taken_over("sig"),
            Forgery::Content => taken_over("content"),
        }
    }

    /// What a step sends; `None` ends the connection.
    fn messages(&self, step: Step) -> Option<Vec<String>> {
        let id = self.event.id.to_hex();
        let method = &self.method;
        let answer = match step {
            Step::Result(result) => {
                self.honest(&json!({ "result_type": method, "result": result }).to_string())
            }
            Step::Code(code) => {
                let error = json!({ "code": code, "message": "hunter2" });
                self.honest(&json!({ "result_type": method, "error": error, "result": null }).to_string())
            }
            Step::Inside(text) => self.honest(&text),
            Step::Forged(forgery) => self.forged(forgery),
            Step::Raw(text) => return Some(vec![text]),
            Step::Flood(text, times) => return Some(vec![text; times]),
            Step::NotTaken(reason) => return Some(vec![json!(["OK", id, false, reason]).to_string()]),
            Step::Closed(reason) => return Some(vec![json!(["CLOSED", "answer", reason]).to_string()]),
            Step::HangUp => return None,
        };
        Some(vec![json!(["EVENT", "answer", answer]).to_string()])
    }
}

/// Takes the steps for one request; `false` ends the connection.
async fn request(socket: &mut Socket, state: &State, event: Event) -> bool {
    let nip04 = event.tags.iter().any(|tag| tag.as_slice() == ["encryption", "nip04"]);
    let mut answering = Answering { state, event, nip04, method: String::new() };
    let body = answering.decrypted();
    answering.method = body["method"].as_str().unwrap().to_owned();
    state.asked.lock().push(Asked { event: answering.event.clone(), body });
    let steps = state.steps.lock().pop_front().unwrap_or_default();
    for step in steps {
        let Some(messages) = answering.messages(step) else { return false };
        for message in messages {
            let _ = socket.feed(Message::text(message)).await;
        }
        let _ = socket.flush().await;
    }
    true
}

/// Seconds of the test's clock.
pub(super) fn now_secs() -> u64 {
    u64::try_from(NOW.to_secs_floor()).unwrap()
}
