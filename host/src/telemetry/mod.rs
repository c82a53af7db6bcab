//! Traces for an OpenTelemetry collector (`[telemetry]`): a layer makes them of the spans, and a task sends them over HTTP.
//!
//! A span that ends never waits: the queue is bounded, and what does not fit, or what the collector does not take, is counted as lost.

mod encode;
mod export;
mod spans;
#[cfg(test)]
mod tests;

use tokio::sync::mpsc;

pub use self::export::Exporter;
pub use self::spans::Spans;
use satcast_core::config::Telemetry;
use satcast_core::trace;

/// Most spans that wait for the exporter; further ones are lost. A span takes about half a KiB.
pub const QUEUE_SPANS_MAX: usize = 8_192;

/// The layer and the exporter of its spans; `None` without a collector. `node` names this one of several.
pub fn start(config: &Telemetry, node: Option<&str>) -> Option<(Spans, Exporter)> {
    let endpoint = config.otlp_endpoint.as_ref()?;
    let (sender, queue) = mpsc::channel(QUEUE_SPANS_MAX);
    trace::exports();
    let resource = encode::resource(&config.service_name, node);
    Some((Spans::new(sender, config.sample_ratio), Exporter::new(queue, endpoint, resource)))
}
