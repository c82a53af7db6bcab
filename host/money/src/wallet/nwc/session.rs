//! A relay on which the wallet has announced itself, and sequential requests over it.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::seal::{self, Cipher, Info};
use super::socket::Socket;
use super::uri::Uri;
use crate::wallet::address::HttpAddress;
use crate::wallet::failure::{CONNECT_TIMEOUT, Trouble};
use crate::wallet::lightning::Fault;
use satcast_core::clock::Clock;
use satcast_net::outbound::http::Client;

/// Names of our two subscriptions; a relay keeps them separate for each connection.
const INFO: &str = "info";
const ANSWER: &str = "answer";

/// Reason why a request has no result.
#[derive(Debug)]
pub(super) enum Refusal {
    /// There was no readable answer.
    Trouble(Trouble),
    /// The relay did not pass the request on, or reports that.
    Relay(Fault),
    /// The wallet's error code.
    Wallet(String),
    /// The wallet's answer is invalid.
    Nonsense,
}

/// An open conversation; dropping it closes it.
pub(super) struct Session<'a> {
    uri: &'a Uri,
    clock: &'a Clock,
    socket: Socket,
    cipher: Cipher,
    /// Whether payments can be looked up.
    pub(super) looks_up: bool,
}

impl<'a> Session<'a> {
    /// Tries the relays one after the other, each with an equal share of the remaining time. Only a request for the
    /// wallet's announcement is sent.
    pub(super) async fn open(
        client: &Client,
        uri: &'a Uri,
        clock: &'a Clock,
        until: Instant,
    ) -> Result<Self, Refusal> {
        let mut last = Trouble::OpenLate;
        let mut left = u32::try_from(uri.relays().len()).unwrap_or(u32::MAX);
        for relay in uri.relays() {
            let share = until.saturating_duration_since(Instant::now()) / left.max(1);
            left = left.saturating_sub(1);
            match timeout_at(Instant::now() + share, announced(client, uri, relay, share)).await {
                Ok(Ok((socket, info))) => {
                    let cipher =
                        info.cipher.ok_or_else(|| Refusal::Wallet("UNSUPPORTED_ENCRYPTION".to_owned()))?;
                    return Ok(Self { uri, clock, socket, cipher, looks_up: info.looks_up });
                }
                Ok(Err(trouble)) if trouble.is_after() => last = Trouble::BrokeBefore,
                Ok(Err(trouble)) => last = trouble,
                Err(_) => last = Trouble::OpenLate,
            }
        }
        Err(Refusal::Trouble(last))
    }

    /// Sends one request; returns its `result`.
    pub(super) async fn ask(
        &mut self,
        method: &str,
        params: Value,
        until: Instant,
    ) -> Result<Value, Refusal> {
        timeout_at(until, self.exchange(method, params)).await.unwrap_or(Err(Refusal::Trouble(Trouble::Late)))
    }

    async fn exchange(&mut self, method: &str, params: Value) -> Result<Value, Refusal> {
        let body = json!({ "method": method, "params": params });
        let request = seal::request(self.uri, self.cipher, &body, self.clock.now());
        let request = request.ok_or(Refusal::Trouble(Trouble::BrokeBefore))?;
        let id = request.id.to_hex();
        let filter = json!({ "kinds": [23195], "authors": [self.uri.wallet().to_hex()], "#e": [id] });
        let event: Value = serde_json::from_str(&request.as_json()).map_err(|_| Refusal::Nonsense)?;
        self.socket.begin();
        // Subscribed first: a relay does not store answers.
        let asked = self.socket.say(&json!(["REQ", ANSWER, filter])).await;
        asked.map_err(|_| Refusal::Trouble(Trouble::BrokeBefore))?;
        self.socket.say(&json!(["EVENT", event])).await.map_err(Refusal::Trouble)?;
        let result = loop {
            let message = self.socket.receive().await.map_err(Refusal::Trouble)?;
            match parts(&message).as_slice() {
                ["EVENT", ANSWER] => {
                    let event = message.get(2).unwrap_or(&Value::Null);
                    if let Some(answer) = seal::answer(self.uri, self.cipher, &request, event) {
                        break result(method, &answer);
                    }
                }
                ["OK", of] if *of == id && message.get(2) == Some(&Value::Bool(false)) => {
                    break Err(Refusal::Relay(refusal(message.get(3))));
                }
                ["CLOSED", ANSWER] => break Err(Refusal::Relay(refusal(message.get(2)))),
                _ => {}
            }
        };
        self.socket.say(&json!(["CLOSE", ANSWER])).await.ok();
        result
    }
}

/// Connects to a relay and asks for the wallet's announcement.
async fn announced(
    client: &Client,
    uri: &Uri,
    relay: &HttpAddress,
    limit: Duration,
) -> Result<(Socket, Info), Trouble> {
    let mut socket = Socket::open(client, relay, limit.min(CONNECT_TIMEOUT)).await?;
    let filter = json!({ "kinds": [13194], "authors": [uri.wallet().to_hex()], "limit": 1 });
    socket.say(&json!(["REQ", INFO, filter])).await?;
    loop {
        let message = socket.receive().await?;
        match parts(&message).as_slice() {
            ["EVENT", INFO] => {
                if let Some(info) = message.get(2).and_then(|event| seal::info(uri, event)) {
                    socket.say(&json!(["CLOSE", INFO])).await?;
                    return Ok((socket, info));
                }
            }
            // The wallet is not on this relay.
            ["EOSE" | "CLOSED", INFO] => return Err(Trouble::BrokeBefore),
            _ => {}
        }
    }
}

/// The type of a message and its subject.
fn parts(message: &[Value]) -> Vec<&str> {
    message.iter().take(2).map_while(Value::as_str).collect()
}

/// The prefix of a relay's reason gives its kind (NIP-01, NIP-42).
fn refusal(reason: Option<&Value>) -> Fault {
    let reason = reason.and_then(Value::as_str).unwrap_or_default();
    match reason.split(':').next() {
        Some("rate-limited") => Fault::RateLimited,
        Some("auth-required" | "restricted" | "blocked") => Fault::Restricted,
        _ => Fault::Internal,
    }
}

/// The result in an answer. Unknown error codes are errors too.
fn result(method: &str, answer: &Value) -> Result<Value, Refusal> {
    if let Some(code) = answer["error"]["code"].as_str() {
        return Err(Refusal::Wallet(code.to_owned()));
    }
    let result = &answer["result"];
    if answer["result_type"].as_str() != Some(method) || !result.is_object() {
        return Err(Refusal::Nonsense);
    }
    Ok(result.clone())
}
