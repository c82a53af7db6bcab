//! The exporter of traces as a task of the service: begun before everything that makes spans, ended after it.

use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::telemetry::Exporter;
use satcast_net::outbound::Guard;
use satcast_net::outbound::http::{Client, TlsError};

/// Longest time for a connection to the collector.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// The running exporter, if there is one.
pub(super) struct Traces(Option<(JoinHandle<()>, CancellationToken)>);

impl Traces {
    /// `guard` lets the exporter reach its collector.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn begin(exporter: Option<Exporter>, guard: Guard) -> Result<Self, TlsError> {
        let Some(exporter) = exporter else { return Ok(Self(None)) };
        let client = Client::new(guard, CONNECT_LIMIT)?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(exporter.run(client, stop.clone().cancelled_owned()));
        Ok(Self(Some((task, stop))))
    }

    /// Sends the last spans.
    pub(super) async fn end(self) {
        let Some((task, stop)) = self.0 else { return };
        stop.cancel();
        if let Err(error) = task.await {
            tracing::error!(%error, "the export of traces ended early");
        }
    }
}
