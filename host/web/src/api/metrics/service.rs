//! Metrics of requests, money, the database and its outbox.

use std::time::Duration;

use super::text::Text;
use crate::api::app::App;
use crate::base::Requests;
use satcast_core::trace;

/// Requests by the template of their path and the class of their status: both sets are fixed.
pub(super) fn requests(text: &mut Text, requests: &Requests) {
    const NAME: &str = "satcast_http_requests_total";
    text.family(
        NAME,
        "counter",
        "Requests by route and class of the status; a pair without requests is left out",
    );
    for (route, class, count) in requests.counts() {
        text.sample(NAME, &[("route", route), ("class", class)], count);
    }
}

pub(super) fn playback(text: &mut Text, app: &App) {
    text.single(
        "satcast_playback_sent_bytes_total",
        "counter",
        "Metered bytes sent to viewers, as far as they are stored",
        app.playback.stored_bytes(),
    );
}

pub(super) fn billing(text: &mut Text, app: &App) {
    let backlog = app.billing.backlog();
    text.single(
        "satcast_charges_waiting",
        "gauge",
        "Slots of minutes that wait for the database",
        backlog.waiting,
    );
    text.single(
        "satcast_charge_failures_total",
        "counter",
        "Charges that the database did not accept; each is tried again",
        backlog.failures,
    );
}

/// Traces, if the service exports them.
pub(super) fn traces(text: &mut Text) {
    if trace::is_exported() {
        let (sent, lost) = trace::counts();
        let about = "Spans that the collector of traces has taken";
        text.single("satcast_trace_spans_sent_total", "counter", about, sent);
        let about = "Spans that were lost because the collector did not take them in time";
        text.single("satcast_trace_spans_lost_total", "counter", about, lost);
    }
}

/// Certificates in use. One that was not ordered yet has expired.
pub(super) fn certificates(text: &mut Text, app: &App) {
    const EXPIRY: &str = "satcast_certificate_expiry_seconds";
    let ports = &app.ports;
    text.family(EXPIRY, "gauge", "Unix time until which the certificate of a port is valid");
    for (port, certificates) in [("http", &ports.http), ("rtmps", &ports.rtmps)] {
        if let Some(validity) = certificates.as_ref().and_then(|certificates| certificates.validity()) {
            text.sample(EXPIRY, &[("port", port)], validity.until.0 / 1_000);
        }
    }
    text.single(
        "satcast_certificate_order_failures_total",
        "counter",
        "Orders of a certificate that failed since the start",
        ports.acme.as_ref().map_or(0, |acme| acme.failures()),
    );
}

pub(super) fn database(text: &mut Text, app: &App) {
    const CONNECTIONS: &str = "satcast_database_connections";
    let figures = app.store.database_figures();
    let statements = "Time of statements, the wait for a connection included";
    text.summary("satcast_database_statement_seconds", statements, figures.statements);
    text.single("satcast_database_failures_total", "counter", "Statements that failed", figures.failed);
    let waits = "Wait of writing transactions for a connection and for the lock of the writer";
    text.summary("satcast_database_begin_seconds", waits, figures.transactions);
    text.family(CONNECTIONS, "gauge", "Open connections by pool and use");
    for pool in app.store.connections() {
        let used = pool.open.saturating_sub(pool.idle);
        for (state, count) in [("idle", pool.idle), ("used", used)] {
            text.sample(CONNECTIONS, &[("pool", pool.kind), ("state", state)], count);
        }
    }
}

/// What only the database knows. It is left out while the database does not answer.
pub(in crate::api) async fn stored(text: &mut Text, app: &App) {
    const UP: &str = "satcast_database_up";
    /// Longest wait for the database: Prometheus itself waits 10 s.
    const WAIT: Duration = Duration::from_secs(3);
    let figures = tokio::time::timeout(WAIT, app.store.figures()).await;
    let figures = figures.map_err(|_| "no answer in time".to_owned());
    let figures = figures.and_then(|figures| figures.map_err(|error| error.to_string()));
    text.single(
        UP,
        "gauge",
        "1 if the database answered for these figures, otherwise 0",
        u8::from(figures.is_ok()),
    );
    let figures = match figures {
        Ok(figures) => figures,
        Err(error) => return tracing::warn!(error, "figures of the database are left out of /metrics"),
    };
    let oldest = figures.outbox_since.map_or(0, |since| app.clock.now().0.saturating_sub(since.0).max(0));
    text.single(
        "satcast_outbox_deliveries",
        "gauge",
        "Deliveries of webhooks that wait for an attempt",
        figures.outbox,
    );
    text.single(
        "satcast_outbox_oldest_seconds",
        "gauge",
        "Age of the oldest delivery that waits; 0 if none waits",
        Duration::from_millis(oldest.unsigned_abs()).as_secs_f64(),
    );
    text.single("satcast_ledger_accounts", "gauge", "Accounts with a balance", figures.balances);
    text.single("satcast_ledger_balance_msat", "gauge", "Sum of all balances", figures.balance_sum.0);
    const RECORDINGS: &str = "satcast_recordings";
    text.family(RECORDINGS, "gauge", "Recordings by state");
    for state in &figures.archives {
        text.sample(RECORDINGS, &[("state", state.state.as_str())], state.count);
    }
    const BYTES: &str = "satcast_recording_bytes";
    text.family(BYTES, "gauge", "Bytes of recordings by state");
    for state in &figures.archives {
        text.sample(BYTES, &[("state", state.state.as_str())], state.bytes);
    }
    const UPLOADED: &str = "satcast_recording_uploaded_bytes";
    text.family(UPLOADED, "gauge", "Bytes of recordings that their store has confirmed, by state");
    for state in &figures.archives {
        text.sample(UPLOADED, &[("state", state.state.as_str())], state.uploaded_bytes);
    }
}
