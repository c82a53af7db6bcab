//! The exporter: takes spans from the queue and posts them in batches. A batch is tried once; a failed one is lost.

use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};
use url::Url;

use super::encode;
use super::spans::Ended;
use satcast_core::log_limit::LogLimit;
use satcast_core::trace;
use satcast_net::outbound::http::Client;

/// Most spans of one request.
pub(super) const BATCH_SPANS_MAX: usize = 512;
/// How long the first span of a batch waits for others.
const GATHER: Duration = Duration::from_millis(500);
/// Longest wait for the collector.
const POST_LIMIT: Duration = Duration::from_secs(10);
/// Longest wait for it at the end of the service.
const LAST_LIMIT: Duration = Duration::from_secs(3);
/// Bytes of an answer that are read, so that its connection can be used again.
const ANSWER_BYTES_MAX: usize = 16 * 1024;
/// Time between two lines about lost spans.
const LINE_PAUSE: Duration = Duration::from_secs(60);
const PATH: &str = "v1/traces";

/// Sends ended spans to the collector.
#[derive(Debug)]
pub struct Exporter {
    queue: mpsc::Receiver<Ended>,
    endpoint: Url,
    resource: Value,
    lines: LogLimit,
    limit: Duration,
}

impl Exporter {
    pub(super) fn new(queue: mpsc::Receiver<Ended>, base: &Url, resource: Value) -> Self {
        let mut endpoint = base.clone();
        endpoint.set_path(&format!("{}/{PATH}", base.path().trim_end_matches('/')));
        Self { queue, endpoint, resource, lines: LogLimit::new(1, LINE_PAUSE), limit: POST_LIMIT }
    }

    /// The same with another time limit.
    #[cfg(test)]
    pub(super) fn with_limit(self, limit: Duration) -> Self {
        Self { limit, ..self }
    }

    /// Sends spans until `stop` resolves, and then those that wait, for at most [`LAST_LIMIT`].
    pub async fn run(mut self, client: Client, stop: impl Future<Output = ()>) {
        let began = tokio::time::Instant::now();
        let mut batch = Vec::with_capacity(BATCH_SPANS_MAX);
        {
            let sending = async {
                loop {
                    let max = BATCH_SPANS_MAX - batch.len();
                    if self.queue.recv_many(&mut batch, max).await == 0 {
                        return;
                    }
                    if self.queue.len() + batch.len() < BATCH_SPANS_MAX {
                        sleep(GATHER).await;
                    }
                    self.fill(&mut batch);
                    self.send(&client, &mut batch, began.elapsed()).await;
                }
            };
            tokio::select! {
                () = stop => {}
                () = sending => {}
            }
        }
        let rest = async {
            loop {
                self.fill(&mut batch);
                if batch.is_empty() {
                    return;
                }
                self.send(&client, &mut batch, began.elapsed()).await;
            }
        };
        if timeout(LAST_LIMIT, rest).await.is_err() {
            trace::count_lost(batch.len() + self.queue.len());
        }
    }

    /// Adds spans that wait, up to the size of a batch.
    fn fill(&mut self, batch: &mut Vec<Ended>) {
        while batch.len() < BATCH_SPANS_MAX {
            let Ok(ended) = self.queue.try_recv() else { return };
            batch.push(ended);
        }
    }

    /// Sends the batch and empties it. A batch stays in `batch` if this future is dropped before the end.
    async fn send(&self, client: &Client, batch: &mut Vec<Ended>, now: Duration) {
        let post = timeout(self.limit, self.post(client, batch)).await;
        match post.unwrap_or_else(|_| Err("no answer in time".to_owned())) {
            Ok(()) => trace::count_sent(batch.len()),
            Err(error) => {
                trace::count_lost(batch.len());
                if self.lines.admit(now).is_some() {
                    let spans = batch.len();
                    tracing::warn!(
                        error,
                        spans,
                        "the collector of [telemetry] did not take traces, and they are lost"
                    );
                }
            }
        }
        batch.clear();
    }

    async fn post(&self, client: &Client, batch: &[Ended]) -> Result<(), String> {
        let mut request = Request::new(Method::POST, self.endpoint.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        *request.body_mut() = Some(encode::body(&self.resource, batch).into());
        let mut answer = client.send(request).await.map_err(|error| error.to_string())?;
        let status = answer.head().status();
        // Only the status counts.
        let _ = answer.read(&mut Vec::new(), ANSWER_BYTES_MAX).await;
        if status.is_success() { Ok(()) } else { Err(format!("it answered {}", status.as_u16())) }
    }
}
