//! Start and shutdown of the service: every step in order, with its reason.

mod archive;
mod cors;
mod database;
mod node;
mod reload;
mod system;
mod traces;
mod wallets;

use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::activation::Sockets;
use crate::banner::{self, Facts};
use crate::data_dir::{self, DataDirError, DataDirLock};
use crate::first_link::{FirstLinkError, first_link};
use crate::logging::Level;
use crate::notify::Manager;
use crate::telemetry::Exporter;
pub use cors::BucketRule;
pub use database::vault;
use database::{DatabaseLock, open_store};
use node::Node;
use reload::{Reload, live_settings};
use satcast_core::clock::Clock;
use satcast_core::config::{Config, Current, IngestAddresses, Loaded};
use satcast_core::secret::VaultError;
use satcast_drivers::{Drivers, HostParts, LoadOptions, RecordingParts, State};
use satcast_live::Live;
use satcast_live::ingest::{self, BindError, Handed, Listener};
use satcast_money::billing::Billing;
use satcast_money::wallet::connection::ConnectionError;
use satcast_net::acme::{Acme, FolderError, Ports};
use satcast_net::certificates::CertificateError;
use satcast_net::http::{HttpError, Server, ServerLimits};
use satcast_net::outbound::{AllowError, Guard};
use satcast_store::{Address, Store, StoreError};
use satcast_web::api::{self, App};
use satcast_web::nodes::{self, Nodes};
use satcast_web::pages::Pages;
use satcast_web::playback::{Owners, Playback, PlaybackSecret};
use satcast_web::site::Site;
use satcast_webhooks::{Sender, Targets, TlsError, Webhooks};
use system::{driver_log_level, open_files, raise_open_files};
use traces::Traces;
pub use wallets::receiving_wallet;
use wallets::topups;

/// Folder below the data folder for private copies of driver libraries.
const IMAGES_FOLDER_NAME: &str = "driver-images";
/// Folder below the data folder in which each driver has its own.
const DRIVER_DATA_FOLDER_NAME: &str = "drivers";
/// The executable of this process.
const RUNNING_IMAGE: &str = "/proc/self/exe";
/// Longest wait of a shutdown for a listener after its connections were asked to end.
const LISTENER_WAIT: Duration = Duration::from_secs(15);

/// Why the service does not start.
#[derive(Debug, thiserror::Error)]
pub enum BootError {
    /// The data folder.
    #[error("{0}")]
    DataDir(#[from] DataDirError),
    /// The key of the stored secrets.
    #[error("{0}")]
    Vault(#[from] VaultError),
    /// The database.
    #[error("{0}")]
    Store(#[from] StoreError),
    /// The link for the first account.
    #[error("{0}")]
    FirstLink(#[from] FirstLinkError),
    /// `[outbound] allow` or `[webhooks] allow_targets`.
    #[error("{0}")]
    Allow(#[from] AllowError),
    /// The receiving wallet.
    #[error("[wallet] {0}")]
    Wallet(#[from] ConnectionError),
    /// TLS towards webhooks.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// The HTTP port.
    #[error("{0}")]
    Http(#[from] HttpError),
    /// A port for encoders.
    #[error("{0}")]
    Rtmp(#[from] BindError),
    /// The certificate for RTMPS.
    #[error("{0}")]
    Certificate(#[from] CertificateError),
    /// The folder of an ordered certificate.
    #[error("{0}")]
    Acme(#[from] FolderError),
    /// The system.
    #[error("cannot start: {0}")]
    System(#[from] std::io::Error),
    /// Another service took the database over while this one ran.
    #[error("another satcast took the database over; this one has shut down")]
    TakenOver,
}

/// Everything that runs; see [`Host::start`].
pub struct Host {
    app: Arc<App>,
    pages: Arc<Pages>,
    live: Live,
    store: Store,
    server: Server,
    listener: Listener<Live>,
    facts: Facts,
    node: Option<Node>,
    database_lock: DatabaseLock,
    _lock: DataDirLock,
}

/// Where drivers of `config` come from; `exe` runs their probes.
pub fn load_options(config: &Config, exe: PathBuf) -> LoadOptions<'_> {
    LoadOptions { config, exe, images: config.data_dir.join(IMAGES_FOLDER_NAME) }
}

/// Services of this process for the drivers of `config`.
///
/// # Errors
/// An entry of `[outbound] allow` that cannot be read.
pub fn host_parts(
    config: &Config,
    clock: &Clock,
    recordings: RecordingParts,
) -> Result<(Guard, HostParts), AllowError> {
    let guard = Guard::new(&Config::allow_texts(&config.outbound.allow))?;
    let parts = HostParts {
        guard: guard.clone(),
        runtime: tokio::runtime::Handle::current(),
        clock: clock.clone(),
        // Drivers always get an absolute path.
        data_dir: std::path::absolute(&config.data_dir)
            .unwrap_or_else(|_| config.data_dir.clone())
            .join(DRIVER_DATA_FOLDER_NAME),
        recordings,
    };
    Ok((guard, parts))
}

impl Host {
    /// Starts everything up to the open ports; nothing is served yet. `command` is how the user calls this program;
    /// `sockets` are used instead of opening ports.
    ///
    /// # Errors
    /// The first step that fails; the steps before it leave nothing that prevents another start.
    pub async fn start(
        loaded: Loaded,
        command: String,
        exe: PathBuf,
        sockets: Sockets,
    ) -> Result<Self, BootError> {
        let clock = Clock::system();
        let began = clock.monotonic();
        let config = Arc::new(loaded.config);
        // The lock comes before everything that a second process would disturb.
        let data_dir_created = data_dir::prepare(&config.data_dir)?;
        let lock = data_dir::lock(&config.data_dir)?;
        let address = Address::parse(config.database_url().expose())?;
        let database_lock = DatabaseLock::take(&address, &config).await?;
        let vault = vault(&config).await?;
        let (playback_secret, recordings) = (PlaybackSecret::of(&vault), archive::parts(&vault));
        let store = open_store(&config, vault, &clock).await?;
        let acme = prepare_acme(&config, &clock).await?;
        // This port is opened before drivers are loaded: a port in use is the most common failure and must show at once.
        let server = Server::open(&config.http, ServerLimits::within(open_files()), sockets.http).await?;
        system::look_at_certificate(&config.http, clock.now())?;
        let (guard, parts) = host_parts(&config, &clock, recordings.clone())?;
        let drivers = load_drivers(config.clone(), parts, exe).await?;
        let archive = archive::account(&store, &drivers, &recordings, &clock);
        let billing = Billing::new(store.clone(), clock.clone(), &config);
        let settings = live_settings(&config);
        let live = Live::metered(store.clone(), drivers.clone(), clock.clone(), settings, billing.gate());
        // As late as possible, because nothing renews the lease yet, and before the first encoder.
        let node = Node::join(&store, &clock, &config).await?;
        let listener = encoders(&config, (sockets.rtmp, sockets.rtmps), &store, &live, &clock).await?;
        let mut facts = Facts {
            command,
            config: loaded.file,
            data_dir: config.data_dir.clone(),
            data_dir_created,
            database: address.to_string(),
            drivers_dir: config.drivers_dir(),
            drivers_loaded: loaded_names(&drivers),
            drivers_not_loaded: not_loaded(&drivers),
            http: server.local_addr(),
            rtmp: listener.local_addr()?,
            rtmps: listener.secure_addr()?,
            srt: listener.srt_addr()?,
            whip: listener.whip_addr()?,
            ingest: ingest_addresses(&config, &listener)?,
            public_url: config.public_url.clone(),
            first_link: None,
            took: clock.monotonic().saturating_sub(began),
        };
        facts.first_link = first_link(&store, &config, &banner::base(&facts), clock.now()).await?;
        let limits = api::Limits::beside(server.per_network(), listener.per_network());
        let nodes = nodes(&store, &clock, &config)?;
        let playback = playback(&store, &live, &clock, &config, &playback_secret, &limits, nodes.clone());
        charge_counted_bytes(&billing, &playback);
        let app = Arc::new(App {
            store: store.clone(),
            live: live.clone(),
            wallets: topups(&billing, &store, &clock, &config, &guard)?,
            billing,
            drivers,
            playback,
            archive,
            guard,
            nodes,
            webhooks: Webhooks::new(store.clone(), Sender::new(Targets::new(&config)?)?, clock.clone()),
            ports: Ports::of(server.certificates(), listener.certificates(), acme),
            clock,
            current: Current::new(Config::clone(&config)),
            stopping: Default::default(),
            ingest: facts.ingest.clone(),
            whip: listener.whip(),
            limits,
            known: Default::default(),
            key_uses: Default::default(),
        });
        let pages = load_pages().await?;
        Ok(Self { app, pages, live, store, server, listener, facts, node, database_lock, _lock: lock })
    }

    /// Results of the start, for the banner.
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The addresses listened on: HTTP, RTMP.
    pub fn addresses(&self) -> (SocketAddr, SocketAddr) {
        (self.facts.http, self.facts.rtmp)
    }

    /// The parts that a reload changes.
    fn reload(&self, level: Level) -> Reload {
        let App { current, drivers, billing, live, ports, .. } = &*self.app;
        Reload {
            config: current.clone(),
            drivers: drivers.clone(),
            billing: billing.clone(),
            live: live.clone(),
            ports: ports.clone(),
            level,
        }
    }

    /// Serves until `shutdown` resolves, then ends in an order that loses nothing: encoders first, then sessions with
    /// their destinations, then open requests, last the database.
    ///
    /// # Errors
    /// [`BootError::TakenOver`]: it ended, in the same order, because another service has the database.
    pub async fn serve(self, shutdown: impl Future<Output = ()>) -> Result<(), BootError> {
        // Cancellation in three steps: everything, then the counting of viewers' bytes, then charging for them.
        let [all, counting, charging] = [(); 3].map(|()| CancellationToken::new());
        let drain = self.listener.drain();
        let mut ingest = tokio::spawn(self.listener.run(all.clone().cancelled_owned()));
        let playback = self.app.playback.clone();
        let site = Site::new(self.app.clone(), self.pages);
        let mut http = tokio::spawn(self.server.serve(site, all.clone().cancelled_owned()));
        let meter = tokio::spawn(playback.keep_meter(counting.clone().cancelled_owned()));
        let hours = tokio::spawn(self.app.billing.clone().keep_hours(charging.clone().cancelled_owned()));
        let heartbeat = tokio::spawn(self.live.clone().keep_heartbeat());
        let node = self.node.map(|node| tokio::spawn(node.keep(self.live.clone())));
        let commands = node.is_some().then(|| tokio::spawn(self.live.clone().keep_commands()));
        let events = self.app.nodes.clone().map(|nodes| tokio::spawn(nodes.keep_events()));
        let wallets = tokio::spawn(self.app.wallets.clone().run(all.clone().cancelled_owned()));
        // The port that the authority asks is served by now.
        let acme = self.app.ports.acme.clone().map(|acme| tokio::spawn(acme.keep()));
        let archive = archive::Keeping::begin(&self.app.archive);
        let webhooks = tokio::spawn(self.app.webhooks.clone().keep_sending(all.clone().cancelled_owned()));
        let ended = tokio::select! {
            () = shutdown => Ok(()),
            () = self.database_lock.lost() => Err(BootError::TakenOver),
        };
        match &ended {
            Ok(()) => tracing::info!("shutting down"),
            Err(error) => tracing::error!(%error, "shutting down"),
        }
        // Encoders that come now wait for the next process, if the service manager keeps the socket open.
        drain.cancel();
        self.app.stopping.store(true, Ordering::Relaxed);
        // Sessions end first, so that encoders get the reason.
        self.live.shut_down().await;
        // Event streams end by themselves: the HTTP listener waits for running requests.
        self.store.feed().close();
        // Webhook deliveries not yet started are sent at the next start. No more credit is spent; a pending payment is
        // credited now, or after the next start.
        all.cancel();
        if let Some(acme) = acme {
            acme.abort();
        }
        for (name, task) in [("rtmp", &mut ingest), ("http", &mut http)] {
            if tokio::time::timeout(LISTENER_WAIT, task).await.is_err() {
                tracing::error!(listener = name, "listener did not end in time");
            }
        }
        // An encoder may have come back between the two.
        self.live.shut_down().await;
        heartbeat.abort();
        // Bytes sent to viewers are counted until the last connection ends, and stored before the database closes.
        counting.cancel();
        if let Err(error) = meter.await {
            tracing::error!(%error, "some bytes sent to viewers were not counted");
        }
        if let Err(error) = wallets.await {
            tracing::error!(%error, "the invoice task ended early");
        }
        if let Err(error) = webhooks.await {
            tracing::error!(%error, "the webhook worker ended early");
        }
        // Sessions have ended, and their drivers have reported it.
        archive.end().await;
        // The last bytes are charged now at the current prices, which the next start may not have.
        charging.cancel();
        if let Err(error) = hours.await {
            tracing::error!(%error, "some playback was not charged");
        }
        self.app.billing.bill_playback().await;
        for task in [commands, events].into_iter().flatten() {
            task.abort();
        }
        if let Some(node) = node {
            node.abort();
            if let Err(error) = self.store.release_node().await {
                tracing::warn!(%error, "the lease of the node ends with its time");
            }
        }
        self.store.close().await;
        ended
    }
}

async fn load_drivers(config: Arc<Config>, parts: HostParts, exe: PathBuf) -> Result<Drivers, BootError> {
    let load = move || Drivers::load(&load_options(&config, exe), &parts);
    tokio::task::spawn_blocking(load).await.map_err(|error| BootError::System(std::io::Error::other(error)))
}

/// The orders of the certificate, if the configuration has them, with a file that the ports can read.
async fn prepare_acme(config: &Arc<Config>, clock: &Clock) -> Result<Option<Arc<Acme>>, BootError> {
    let (config, clock) = (config.clone(), clock.clone());
    let prepared = tokio::task::spawn_blocking(move || Acme::prepare(&config, &clock)).await;
    Ok(prepared.map_err(|error| BootError::System(std::io::Error::other(error)))??)
}

async fn load_pages() -> Result<Arc<Pages>, BootError> {
    let load = || Pages::load(&Pages::folder());
    let pages = tokio::task::spawn_blocking(load).await;
    pages.map(Arc::new).map_err(|error| BootError::System(std::io::Error::other(error)))
}

/// The other nodes, if there are some.
fn nodes(store: &Store, clock: &Clock, config: &Config) -> Result<Option<Arc<Nodes>>, BootError> {
    Ok(Nodes::of(&config.cluster, store.clone(), clock.clone(), any_address()?)?.map(Arc::new))
}

/// For addresses that only the operator sets.
fn any_address() -> Result<Guard, AllowError> {
    Guard::new(&nodes::ANY_ADDRESS.map(str::to_owned))
}

fn playback(
    store: &Store,
    live: &Live,
    clock: &Clock,
    config: &Arc<Config>,
    secret: &PlaybackSecret,
    limits: &api::Limits,
    nodes: Option<Arc<Nodes>>,
) -> Arc<Playback> {
    let owners = nodes.map(|nodes| -> Arc<dyn Owners> { nodes });
    let (live, clock, keys) = (live.clone(), clock.clone(), limits.invalid_keys.clone());
    Playback::new(store.clone(), live, clock, config.clone(), secret, keys, owners)
}

/// Opens the ports for encoders.
async fn encoders(
    config: &Config,
    (rtmp, rtmps): (Option<TcpListener>, Option<TcpListener>),
    store: &Store,
    live: &Live,
    clock: &Clock,
) -> Result<Listener<Live>, BootError> {
    let handed = Handed { rtmp, rtmps };
    let settings = ingest::Settings::of(&config.ingest, clock.now())?.within(open_files()).on(handed);
    Ok(Listener::bind(settings, store.clone(), live.clone(), clock.clone()).await?)
}

fn ingest_addresses(config: &Config, listener: &Listener<Live>) -> Result<IngestAddresses, BootError> {
    let (rtmp, rtmps) = (listener.local_addr()?, listener.secure_addr()?);
    let whip = listener.whip_addr()?.is_some();
    Ok(IngestAddresses::new(&config.public_url, rtmp, rtmps, listener.srt_addr()?, whip))
}

/// Stores counted bytes before playback is charged.
fn charge_counted_bytes(billing: &Billing, playback: &Arc<Playback>) {
    let playback = playback.clone();
    billing.set_before_pass(Arc::new(move || {
        let playback = playback.clone();
        Box::pin(async move { playback.flush_meter().await })
    }));
}

fn loaded_names(drivers: &Drivers) -> Vec<String> {
    let loaded = drivers.summaries().into_iter().filter(|summary| summary.state == State::Loaded);
    loaded.map(|summary| summary.id).collect()
}

fn not_loaded(drivers: &Drivers) -> Vec<(String, String)> {
    let others = drivers.summaries().into_iter().filter_map(|summary| {
        let why = match &summary.state {
            State::Loaded => return None,
            State::Failing(_) => "failing, see the log".to_string(),
            State::Disabled => "disabled".to_string(),
            State::Missing => "no file".to_string(),
            State::Refused(_) => "refused, see the log".to_string(),
        };
        Some((summary.id, why))
    });
    others.collect()
}

/// Runs the service in this process until a signal ends it; prints the banner when the ports are open.
///
/// SIGHUP reads the configuration again with `again`; [`Config::changes`] lists what is taken over at once. `exporter` sends
/// the traces.
///
/// # Errors
/// As [`Host::start`].
pub async fn run(
    loaded: Loaded,
    command: String,
    again: impl Fn() -> Result<Loaded, String>,
    sockets: Sockets,
    level: Level,
    exporter: Option<Exporter>,
) -> Result<(), BootError> {
    let traces = Traces::begin(exporter, any_address()?)?;
    raise_open_files();
    satcast_drivers::set_log_level(driver_log_level());
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut hangup = signal(SignalKind::hangup())?;
    // The running executable, even if its file is replaced: driver processes are started from it for as long as it
    // runs.
    let exe = PathBuf::from(RUNNING_IMAGE);
    let host = Host::start(loaded, command, exe, sockets).await?;
    announce(&host);
    let manager = Arc::new(Manager::of_process());
    manager.ready();
    let alive = manager.clone();
    tokio::spawn(async move { alive.keep_watchdog().await });
    let config = host.app.current.get();
    tokio::spawn(async move { cors::warn(&config).await });
    let reload = host.reload(level);
    let ended = async {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    let reloading = async {
        while hangup.recv().await.is_some() {
            manager.reloading();
            reload.run(again()).await;
            manager.ready();
        }
    };
    let served = host.serve(async {
        tokio::select! {
            () = ended => {}
            () = reloading => {}
        }
        manager.stopping();
    });
    let served = served.await;
    traces.end().await;
    served
}

/// Prints the banner, and logs that the ports are open.
fn announce(host: &Host) {
    let mut out = std::io::stdout();
    let text = banner::render(host.facts(), out.is_terminal());
    // Standard output may be closed; the service still runs.
    let _ = out.write_all(text.as_bytes());
    if let Some(link) = host.facts().first_link.as_ref().filter(|_| !out.is_terminal()) {
        tracing::info!(file = %link.file.display(), "first run: the link in this file makes the first account");
    }
    let (http, rtmp) = host.addresses();
    tracing::info!(%http, %rtmp, version = api::VERSION, "ready");
}
