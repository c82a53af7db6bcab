//! The host's services for one driver: passes its reports to their destination, writes its log lines without secrets
//! and within limits, makes its connections through the outbound guard, and gives it a folder.

mod counters;
mod on_pump;

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use satcast_plugin_api::driver_state::State;
use satcast_plugin_api::host::{Connected, LogLine, Services};
use satcast_plugin_api::recording::Recording;
use satcast_plugin_api::redact::Readings;
use satcast_plugin_api::{Asset, Class, Error, HttpResponse, Playback};
use tracing::Span;

use self::counters::Names;
pub(crate) use self::counters::{COUNTERS_MAX, is_counter_name};
pub use self::counters::{Counters, SENT_BYTES_PER_SEC_MAX};
use self::on_pump::{CONNECTS_MAX, Connecting, OnPump, connect_error};
use super::pump::Pump;
use super::quarantine::{Fault, QUARANTINE_RETRY, Quarantine};
use super::redact::{Redactor, Retired};
use super::reports::{self, RecordingParts};
use super::requests::{self, PendingRequests};
use crate::load::settings::OperatorSettings;
use crate::published::{Answer, Assets, Budget, Unanswered};
use satcast_core::clock::Clock;
use satcast_core::ids::DestinationId;
use satcast_core::log_limit::LogLimit;
use satcast_net::outbound::{Asker, Guard, GuardError};

/// Error for a late connect.
const ENDED: &str = "this driver has ended";
/// Log lines of one destination per second; further ones are counted and left out.
pub(crate) const LOG_LINES_PER_SEC_MAX: u32 = 200;
/// Log lines of one driver per second, of all its destinations and its process output.
pub(crate) const DRIVER_LOG_LINES_PER_SEC_MAX: u32 = 500;
/// Their bytes, approximately.
pub(crate) const DRIVER_LOG_BYTES_PER_SEC_MAX: usize = 64 * 1024;
/// Approximate bytes of a line beside the driver's text.
const LINE_HEAD_BYTES: usize = 128;
/// Further events of the destination are left out.
pub(crate) const EVENTS_PER_SEC_MAX: u32 = 5;
pub(crate) const DRIVER_EVENTS_PER_SEC_MAX: u32 = 50;
/// The rest is cut.
pub(crate) const EVENT_NAME_BYTES_MAX: usize = 64;
/// Longest log message, or all fields together, in bytes; the rest is cut.
pub(crate) const LOG_TEXT_BYTES_MAX: usize = 4 * 1024;
/// Longest error of a driver that is shown; the rest is cut.
pub(crate) const ERROR_TEXT_BYTES_MAX: usize = 1024;
/// Longer payloads are dropped.
pub const EVENT_BYTES_MAX: usize = 16 * 1024;
/// Reports of recordings of one driver per second; a later list finds the rest.
pub(crate) const REPORTS_PER_SEC_MAX: u32 = 1_000;
/// Limit of a connection attempt when the driver names none.
const CONNECT_TIMEOUT_DEFAULT_MS: u64 = 10_000;

/// Number for the driver itself in place of an opening.
const DRIVER_ITSELF: u64 = 0;

/// Gets the reports of a destination. Called on driver threads; must not block.
pub trait Observer: Send + Sync + 'static {
    /// The state, and why it is not live.
    fn state(&self, state: State, reason: Option<Error>);
    fn stopped(&self, outcome: Result<(), Error>);
    /// An event for the owner; `data` is JSON within [`EVENT_BYTES_MAX`].
    fn event(&self, name: &str, data: serde_json::Value);
}

/// State of one open opening.
pub(crate) struct Opened {
    pub(crate) destination: DestinationId,
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) assets: Arc<Assets>,
    pub(crate) redactor: RwLock<Arc<Redactor>>,
    pub(crate) log_limit: LogLimit,
    pub(crate) event_limit: LogLimit,
    pub(crate) account: i64,
    /// Lines of the driver about this opening are of this span.
    pub(crate) span: Span,
}

impl Opened {
    fn redactor(&self) -> Arc<Redactor> {
        self.redactor.read().clone()
    }
}

pub(crate) struct DriverServices {
    driver: String,
    data_dir: PathBuf,
    guard: Guard,
    runtime: tokio::runtime::Handle,
    clock: Clock,
    log_limit: LogLimit,
    driver_limit: LogLimit,
    event_limit: LogLimit,
    report_limit: LogLimit,
    counter_names: Names,
    opened: RwLock<HashMap<u64, Arc<Opened>>>,
    retired: Retired,
    /// With the redactor for the secrets in them.
    settings: RwLock<Arc<(OperatorSettings, Redactor)>>,
    /// Weak: a driver on threads leaves its host table, and with it this value, to late calls for ever.
    pump: Weak<Pump>,
    recordings: RecordingParts,
    requests: PendingRequests,
    quarantine: Mutex<Quarantine>,
    panicked: AtomicU64,
    assets: Arc<Budget>,
    /// Connections that are being made, or are made and not yet taken by the driver.
    connecting: Arc<AtomicU32>,
}

impl DriverServices {
    pub(crate) fn new(
        driver: &str,
        data_dir: PathBuf,
        guard: Guard,
        runtime: tokio::runtime::Handle,
        clock: Clock,
        settings: OperatorSettings,
        pump: &Arc<Pump>,
        recordings: RecordingParts,
    ) -> Self {
        let opened = RwLock::new(HashMap::new());
        let own_secrets = Redactor::new(settings.secrets.iter().cloned());
        let settings = RwLock::new(Arc::new((settings, own_secrets)));
        Self {
            driver: driver.to_string(),
            data_dir,
            guard,
            runtime,
            clock,
            log_limit: LogLimit::per_second(LOG_LINES_PER_SEC_MAX),
            driver_limit: LogLimit::per_second(DRIVER_LOG_LINES_PER_SEC_MAX)
                .with_bytes(DRIVER_LOG_BYTES_PER_SEC_MAX),
            event_limit: LogLimit::per_second(DRIVER_EVENTS_PER_SEC_MAX),
            counter_names: Names::default(),
            report_limit: LogLimit::per_second(REPORTS_PER_SEC_MAX),
            opened,
            retired: Retired::default(),
            settings,
            pump: Arc::downgrade(pump),
            recordings,
            requests: PendingRequests::default(),
            quarantine: Mutex::default(),
            panicked: AtomicU64::default(),
            assets: Arc::default(),
            connecting: Arc::default(),
        }
    }

    /// The redactor for a destination with these secrets; it also hides the secrets in the driver's own settings.
    pub(crate) fn redactor(&self, secrets: Vec<String>) -> Arc<Redactor> {
        let settings = self.own_settings();
        Arc::new(Redactor::new(secrets.into_iter().chain(settings.0.secrets.iter().cloned())))
    }

    /// Sets the operator's settings, once the driver's schema is known.
    pub(crate) fn set_settings(&self, settings: OperatorSettings) {
        let own_secrets = Redactor::new(settings.secrets.iter().cloned());
        let mut current = self.settings.write();
        *current = Arc::new((settings, own_secrets));
    }

    fn own_settings(&self) -> Arc<(OperatorSettings, Redactor)> {
        self.settings.read().clone()
    }

    /// Hides more texts of an open destination: those of a configuration that it is about to get.
    pub(crate) fn hide_more(&self, dest: u64, secrets: Vec<String>) {
        if let Some(opened) = self.find(dest) {
            let mut redactor = opened.redactor.write();
            *redactor = Arc::new(redactor.with(secrets));
        }
    }

    /// Limits the memory of the service that its published assets take.
    pub(crate) fn bound_assets(&self, bytes: u64) {
        self.assets.bound(bytes);
    }

    pub(crate) fn insert(&self, dest: u64, opened: Opened) {
        opened.assets.charge(&self.assets, opened.account);
        self.opened.write().insert(dest, Arc::new(opened));
    }

    pub(crate) fn remove(&self, dest: u64) {
        let removed = self.opened.write().remove(&dest);
        if let Some(opened) = removed {
            self.retired.keep(opened.redactor());
            opened.assets.end();
        }
        self.requests.end(dest);
    }

    /// `text` without secrets, then cut and made printable: a cut before that could leave half a secret. A text
    /// without an open destination is cleaned of the secrets of all current and recent destinations of this driver.
    fn clean(&self, opened: Option<&Opened>, text: &str) -> String {
        let text = Readings::of(text);
        let ranges = match opened {
            Some(opened) => opened.redactor().ranges(&text),
            None => {
                let mut ranges = self.own_settings().1.ranges(&text);
                let all = self.opened.read();
                ranges.extend(all.values().flat_map(|opened| opened.redactor().ranges(&text)));
                drop(all);
                ranges.extend(self.retired.ranges(&text));
                ranges
            }
        };
        printable(&text.hide(ranges))
    }

    pub(crate) fn driver(&self) -> &str {
        &self.driver
    }

    /// Its data folder, which exists then.
    pub(crate) fn folder(&self) -> Result<PathBuf, Error> {
        std::fs::create_dir_all(&self.data_dir).map(|()| self.data_dir.clone()).map_err(|error| {
            Error::internal(format!("cannot make the folder of driver {}: {error}", self.driver))
        })
    }

    /// Cleans a text that is about none of its openings.
    pub(crate) fn clean_text(&self, text: &str) -> String {
        shortened(&self.clean(None, text), ERROR_TEXT_BYTES_MAX)
    }

    /// Cleans the error of a recording.
    pub(crate) fn clean_recording(&self, recording: &mut Recording) {
        recording.error = recording.error.take().map(|error| self.clean_text(&error));
    }

    // A number that is no longer open finds nothing: late calls are harmless.
    fn find(&self, dest: u64) -> Option<Arc<Opened>> {
        self.opened.read().get(&dest).cloned()
    }

    /// Records an error of a destination of `account`, already cleaned, that may be a panic of the driver.
    pub(crate) fn note(&self, account: i64, error: &Error) {
        if error.class != Class::Panic {
            return;
        }
        self.panicked.fetch_add(1, Ordering::Relaxed);
        self.fault(account, Fault::Panicked, &error.message);
    }

    /// Records a fault in the work of `account`; its text has no secrets. True where the driver now does nothing new
    /// for the account.
    pub(crate) fn fault(&self, account: i64, fault: Fault, text: &str) -> bool {
        let why = self.quarantine.lock().add(self.clock.monotonic(), account, fault, text);
        if let Some(why) = &why {
            let driver = self.driver.as_str();
            tracing::error!(driver, account, "driver {driver} {why}");
        }
        why.is_some()
    }

    /// Number of recorded panics.
    pub(crate) fn panicked(&self) -> u64 {
        self.panicked.load(Ordering::Relaxed)
    }

    /// Why the driver is in quarantine; `None` when it is not.
    pub(crate) fn quarantine(&self) -> Option<String> {
        self.quarantine.lock().reason()
    }

    /// Accounts for which it does nothing new, and why.
    pub(crate) fn set_aside(&self) -> Vec<(i64, String)> {
        self.quarantine.lock().accounts().map(|(account, why)| (account, why.to_owned())).collect()
    }

    /// An operator wants the driver to be used again.
    pub(crate) fn clear_faults(&self) {
        *self.quarantine.lock() = Quarantine::default();
    }

    /// Sets it aside for an account in whose call it hung.
    pub(crate) fn hold(&self, account: i64) {
        self.fault(account, Fault::Hung, "");
    }

    /// Whether it may be called about a configuration of `account`.
    pub(crate) fn may_ask(&self, account: i64) -> Result<(), Error> {
        self.unless(self.quarantine.lock().reason_to_ask(account))
    }

    pub(crate) fn may_open(&self, account: i64) -> Result<(), Error> {
        self.unless(self.quarantine.lock().reason_for(account))
    }

    fn unless(&self, why: Option<String>) -> Result<(), Error> {
        let refused =
            |why| Error::internal(format!("driver {} {why}", self.driver)).retry_after(QUARANTINE_RETRY);
        why.map_or(Ok(()), |why| Err(refused(why)))
    }

    /// Viewers' requests that wait for the driver.
    pub(crate) fn requests(&self) -> &PendingRequests {
        &self.requests
    }

    /// Whether a line of this many bytes about a driver's action may be logged.
    pub(crate) fn may_log(&self, bytes: usize) -> bool {
        self.may_write(None, bytes)
    }

    /// Checks a driver's answer.
    pub(crate) fn accept(&self, response: HttpResponse) -> Result<Answer, Unanswered> {
        requests::accepted(response, &self.data_dir).map_err(|reason| {
            if self.may_write(None, reason.len()) {
                tracing::warn!(driver = %self.driver, reason, "driver's answer to a viewer refused");
            }
            Unanswered::Failed
        })
    }

    /// Writes a line, unless this destination or the driver exceeds its limit.
    fn write(&self, line: &LogLine) {
        let opened = self.find(line.dest);
        let _in_span = opened.as_ref().map(|opened| opened.span.enter());
        let texts = line.fields.iter().map(|(key, value)| key.len() + value.len() + 2).sum::<usize>();
        let bytes = texts.min(LOG_TEXT_BYTES_MAX) + line.message.len().min(LOG_TEXT_BYTES_MAX);
        if !self.may_write(opened.as_deref(), bytes) {
            return;
        }
        let clean = |text: &str| self.clean(opened.as_deref(), text);
        let dest = opened.as_ref().map_or(0, |opened| opened.destination.0);
        let fields: Vec<String> =
            line.fields.iter().map(|(key, value)| format!("{}={}", clean(key), clean(value))).collect();
        let fields = (!fields.is_empty()).then(|| shortened(&fields.join(" "), LOG_TEXT_BYTES_MAX));
        let (message, target) = (clean(&line.message), shortened(&clean(&line.target), LINE_HEAD_BYTES));
        let driver = self.driver.as_str();
        match line.level {
            1 => tracing::error!(target: "driver", driver, dest, target, fields, "{message}"),
            2 => tracing::warn!(target: "driver", driver, dest, target, fields, "{message}"),
            3 => tracing::info!(target: "driver", driver, dest, target, fields, "{message}"),
            4 => tracing::debug!(target: "driver", driver, dest, target, fields, "{message}"),
            _ => tracing::trace!(target: "driver", driver, dest, target, fields, "{message}"),
        }
    }

    /// Whether a line of this many bytes, about a destination or the driver itself, may be written. Logs how many
    /// were left out before.
    fn may_write(&self, opened: Option<&Opened>, bytes: usize) -> bool {
        let now = self.clock.monotonic();
        let limit = opened.map_or(&self.log_limit, |opened| &opened.log_limit);
        let Some(left_out) = limit.admit(now) else { return false };
        let Some(left_out) = self.driver_limit.admit_bytes(bytes + LINE_HEAD_BYTES, left_out, now) else {
            return false;
        };
        if left_out > 0 {
            let driver = self.driver.as_str();
            tracing::warn!(
                driver,
                left_out,
                "{left_out} log lines of driver {driver} suppressed: the driver logs too much"
            );
        }
        true
    }

    /// Makes a socket with `connect`, for an opening or the driver itself, within the limits.
    fn connect_by<F: Future<Output = Result<OwnedFd, GuardError>> + Send + 'static>(
        &self,
        dest: u64,
        timeout: Duration,
        done: Connected,
        connect: impl FnOnce(Guard, Duration) -> F + Send + 'static,
    ) {
        let asker = match self.find(dest) {
            Some(opened) => Asker::Account(opened.account),
            None if dest == DRIVER_ITSELF => Asker::Service(self.driver.as_str().into()),
            None => {
                done(Err(Error::internal("this destination is no longer open")));
                return;
            }
        };
        let Some(pump) = self.pump.upgrade() else {
            done(Err(Error::internal(ENDED)));
            return;
        };
        let Some(permit) = Connecting::begin(&self.connecting) else {
            let driver = &self.driver;
            done(Err(Error::internal(format!(
                "driver {driver} already waits for {CONNECTS_MAX} connections; it must wait until some of them are made"
            ))));
            return;
        };
        let timeout =
            if timeout.is_zero() { Duration::from_millis(CONNECT_TIMEOUT_DEFAULT_MS) } else { timeout };
        let guard = self.guard.asked_by(asker);
        let answer = OnPump { pump, done: Some(done), permit: Some(permit) };
        self.runtime.spawn(async move {
            let outcome = connect(guard, timeout).await;
            answer.give(outcome.map_err(connect_error));
        });
    }

    /// Passes an event on, unless it is invalid or there are too many.
    fn forward_event(&self, dest: u64, name: &str, json: &str) {
        let Some(opened) = self.find(dest) else { return };
        let _in_span = opened.span.enter();
        let now = self.clock.monotonic();
        let is_admitted = opened.event_limit.admit(now).is_some() && self.event_limit.admit(now).is_some();
        // Each event becomes a log line, so it counts as one.
        if !is_admitted || !self.may_write(Some(&opened), name.len() + json.len().min(LOG_TEXT_BYTES_MAX)) {
            return;
        }
        let (driver, dest) = (self.driver.as_str(), opened.destination.0);
        if json.len() > EVENT_BYTES_MAX {
            tracing::warn!(driver, dest, bytes = json.len(), "driver event too large, dropped");
            return;
        }
        match serde_json::from_str(json) {
            Ok(data) => {
                let name = shortened(&self.clean(Some(&opened), name), EVENT_NAME_BYTES_MAX);
                opened.observer.event(&name, opened.redactor().clean_json(data));
            }
            Err(_) => tracing::warn!(driver, dest, "driver event is not JSON, dropped"),
        }
    }
}

impl Services for DriverServices {
    fn log(&self, line: LogLine) {
        self.write(&line);
    }

    fn state(&self, dest: u64, state: State, reason: Option<Error>) {
        if let Some(opened) = self.find(dest) {
            opened.observer.state(state, reason.map(|reason| cleaned(&opened.redactor(), reason)));
        }
    }

    fn event(&self, dest: u64, name: &str, json: &str) {
        self.forward_event(dest, name, json);
    }

    fn metric(&self, dest: u64, name: &str) -> Option<Arc<AtomicU64>> {
        let opened = self.find(dest)?;
        if self.counter_names.admit(name) { opened.counters.get(name) } else { None }
    }

    fn stopped(&self, dest: u64, outcome: Result<(), Error>) {
        if let Some(opened) = self.find(dest) {
            let outcome = outcome.map_err(|error| cleaned(&opened.redactor(), error));
            if let Err(error) = &outcome {
                self.note(opened.account, error);
            }
            opened.observer.stopped(outcome);
        }
    }

    fn connect(&self, dest: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        self.connect_by(dest, timeout, done, move |guard, timeout| async move {
            guard.connect(&host, port, timeout).await.map(OwnedFd::from)
        });
    }

    fn connect_udp(&self, dest: u64, host: String, port: u16, timeout: Duration, done: Connected) {
        self.connect_by(dest, timeout, done, move |guard, timeout| async move {
            guard.connect_udp(&host, port, timeout).await.map(OwnedFd::from)
        });
    }

    fn take_pump(&self) -> Option<OwnedFd> {
        self.pump.upgrade()?.give_away()
    }

    fn run_pump(&self) {
        if let Some(pump) = self.pump.upgrade() {
            pump.run_due();
        }
    }

    fn give_back_pump(&self) {
        if let Some(pump) = self.pump.upgrade() {
            pump.take_back();
        }
    }

    fn data_dir(&self) -> Result<PathBuf, Error> {
        self.folder()
    }

    fn settings(&self) -> String {
        self.own_settings().0.json.clone()
    }

    fn publish(&self, dest: u64, asset: Asset) -> Result<(), Error> {
        let opened = self.find(dest).ok_or_else(|| Error::internal("this destination is no longer open"))?;
        opened.assets.publish(asset, &self.data_dir)
    }

    fn retract(&self, dest: u64, name: &str) {
        if let Some(opened) = self.find(dest) {
            opened.assets.retract(name);
        }
    }

    fn playback(&self, dest: u64, playback: Playback) -> Result<(), Error> {
        let opened = self.find(dest).ok_or_else(|| Error::internal("this destination is no longer open"))?;
        opened.assets.set_playback(playback, self.clock.monotonic());
        Ok(())
    }

    fn respond(&self, token: u64, response: Option<HttpResponse>) -> bool {
        self.requests.answer(token, response)
    }

    fn recording(&self, mut recording: Recording) -> Result<(), Error> {
        if self.report_limit.admit(self.clock.monotonic()).is_none() {
            return Ok(());
        }
        self.clean_recording(&mut recording);
        self.recordings.reports.put(&self.driver, recording);
        Ok(())
    }

    fn seal(&self, text: &str) -> Result<String, Error> {
        reports::seal(&self.recordings, &self.driver, text)
    }

    fn unseal(&self, sealed: &str) -> Result<String, Error> {
        reports::unseal(&self.recordings, &self.driver, sealed)
    }
}

fn cleaned(redactor: &Redactor, mut error: Error) -> Error {
    error.message = shown(redactor, &error.message);
    error
}

/// Cleans and cuts an error of a driver.
pub(crate) fn shown(redactor: &Redactor, text: &str) -> String {
    shortened(&redactor.clean(text), ERROR_TEXT_BYTES_MAX)
}

/// `text` cut to the limit and without characters that would break a log line or colour a terminal.
fn printable(text: &str) -> String {
    shortened(text, LOG_TEXT_BYTES_MAX)
}

fn shortened(text: &str, bytes_max: usize) -> String {
    let end = (0..=text.len().min(bytes_max)).rev().find(|end| text.is_char_boundary(*end));
    text[..end.unwrap_or(0)].chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
pub(super) mod tests;
