//! Events of the other nodes, so that a watcher at any node sees those of all: each node reads those of each other by one long answer.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use poem::http::Method;
use poem::http::header::{CONTENT_TYPE, HeaderValue};
use poem::{Body, Response};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use super::{EVENTS_PATH, Nodes};
use crate::playback::Peer;
use satcast_core::feed::{Event, Seen, Watch};
use satcast_core::ids::{AccountId, UnixMillis};

/// An answer without events sends a line break this often.
const BEAT: Duration = Duration::from_secs(5);
/// Longest wait for the head of the answer.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Longest silence: then the connection is dead.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// How often nodes that come and go are looked for, and pause before a node is asked again.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Largest line; events are much smaller.
const LINE_BYTES_MAX: usize = 256 * 1024;

/// A line of the answer.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    account: i64,
    name: String,
    at: i64,
    data: Value,
}

impl Nodes {
    /// Answers another node with the events of this one, one line of JSON each. The caller has checked the secret.
    pub(crate) fn give_events(&self) -> Response {
        let watch = self.store.feed().watch_own();
        let lines = futures_util::stream::unfold(watch, |mut watch| async move {
            let line = next_line(&mut watch).await?;
            Some((Ok::<_, io::Error>(line), watch))
        });
        let mut response = Response::from(Body::from_bytes_stream(lines));
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
        response
    }

    /// Follows the events of all other living nodes. Never returns.
    pub async fn keep_events(self: Arc<Self>) {
        let mut followed: HashMap<(String, String), JoinHandle<()>> = HashMap::new();
        loop {
            match self.store.other_nodes().await {
                Ok(living) => {
                    followed.retain(|node, task| {
                        let stays = living.contains(node) && !task.is_finished();
                        if !stays {
                            task.abort();
                        }
                        stays
                    });
                    for node in living {
                        let this = self.clone();
                        let peer = Peer { name: node.0.as_str().into(), address: node.1.as_str().into() };
                        followed.entry(node).or_insert_with(|| tokio::spawn(this.follow(peer)));
                    }
                }
                Err(error) => tracing::warn!(%error, "the other nodes cannot be read; retrying"),
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Follows the events of one node until the connection breaks.
    async fn follow(self: Arc<Self>, peer: Peer) {
        let Some(headers) = self.proof() else { return };
        // It lasts, so it gives its permit back.
        let Some((answer, _)) = self.send(Method::GET, &peer, EVENTS_PATH, headers, ANSWER_WAIT).await else {
            return;
        };
        if !answer.head().status().is_success() {
            let status = answer.head().status().as_u16();
            tracing::warn!(
                node = &*peer.name,
                status,
                "a node does not give its events; check [cluster] secret there"
            );
            return;
        }
        // What happened before is not in the answer.
        self.store.feed().foreign_gap();
        let (mut body, mut lines) = (answer.into_response(), Vec::new());
        while let Ok(Ok(Some(bytes))) = timeout(SILENCE_MAX, body.chunk()).await {
            lines.extend_from_slice(&bytes);
            self.take_lines(&mut lines);
            if lines.len() > LINE_BYTES_MAX {
                break;
            }
        }
        tracing::info!(node = &*peer.name, "the events of a node have ended; asking again");
    }

    /// Takes the whole lines; the rest stays.
    fn take_lines(&self, lines: &mut Vec<u8>) {
        let Some(end) = lines.iter().rposition(|byte| *byte == b'\n') else { return };
        for line in lines.drain(..=end).collect::<Vec<_>>().split(|byte| *byte == b'\n') {
            if line.is_empty() {
                continue;
            }
            match serde_json::from_slice::<Option<Line>>(line) {
                Ok(Some(line)) => {
                    let at = UnixMillis(line.at);
                    self.store.feed().send_foreign(AccountId(line.account), line.name, at, line.data);
                }
                // A gap there, or a line of another version.
                Ok(None) | Err(_) => self.store.feed().foreign_gap(),
            }
        }
    }
}

/// The next line: an event, `null` for a gap, or nothing to show that the connection lives. `None` at the end.
async fn next_line(watch: &mut Watch) -> Option<Bytes> {
    match timeout(BEAT, watch.next()).await {
        Ok(Some(Seen::Event(event))) => Some(line_of(&event)),
        Ok(Some(Seen::Gap)) => Some(Bytes::from_static(b"null\n")),
        Ok(None) => None,
        Err(_) => Some(Bytes::from_static(b"\n")),
    }
}

fn line_of(event: &Event) -> Bytes {
    let line =
        Line { account: event.account.0, name: event.name.clone(), at: event.at.0, data: event.data.clone() };
    let mut text = serde_json::to_string(&line).unwrap_or_else(|_| "null".to_owned());
    text.push('\n');
    text.into()
}
