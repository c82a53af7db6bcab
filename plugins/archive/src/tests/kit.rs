//! A driver that can be killed, and a host that records its reports.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use parking_lot::Mutex;
use satcast_media::Packet;
use satcast_plugin_api::{Error, Secret};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};

use super::server::{ACCESS_KEY, BUCKET, SECRET_KEY, Server};
use crate::config::{Config, Settings, Target};
use crate::core::Core;
use crate::disk::disk_failed;
use crate::full::stopped;
use crate::keeper;
use crate::limits::Limits;
use crate::outside::Outside;
use crate::recorder::{Order, Recorder};
use crate::rules::Rules;
use crate::upload::attempts::Pauses;
use crate::upload::sockets::Times;
use satcast_plugin_api::driver::{About, Answer, Recording, RecordingState};

/// Whose streams are recorded.
pub(crate) const ACCOUNT: i64 = 3;

/// What the host says of a connection while it is down.
pub(crate) const DOWN: &str = "the store cannot be reached";

/// What stops a recording when the system says that the disk is full.
pub(crate) fn disk_full() -> Error {
    stopped(&disk_failed(enospc()).message)
}

fn enospc() -> io::Error {
    io::Error::from_raw_os_error(nix::errno::Errno::ENOSPC as i32)
}

/// The host.
#[derive(Debug, Default)]
pub(crate) struct Host {
    /// Nothing can be reached.
    pub(crate) is_down: AtomicBool,
    /// The local disk is full.
    pub(crate) is_full: AtomicBool,
    /// Space for this many bytes of each file; 0 = unlimited.
    pub(crate) space: AtomicU64,
    /// Milliseconds that have passed beyond those of this machine.
    pub(crate) ahead_ms: AtomicI64,
    /// Milliseconds by which the clock was changed.
    pub(crate) set_ms: AtomicI64,
    pub(crate) reports: Mutex<Vec<Recording>>,
}

#[async_trait]
impl Outside for Host {
    async fn connect(&self, host: &str, port: u16, _: Duration) -> Result<TcpStream, Error> {
        if self.is_down.load(Ordering::SeqCst) {
            return Err(Error::network(DOWN));
        }
        let host = if host.ends_with("s3.test") { "127.0.0.1" } else { host };
        TcpStream::connect((host, port)).await.map_err(|error| Error::network(error.to_string()))
    }

    fn report(&self, recording: &Recording) {
        self.reports.lock().push(recording.clone());
    }

    fn seal(&self, text: &str) -> Result<String, Error> {
        Ok(text.bytes().map(|byte| format!("{:02x}", byte ^ 0x5a)).collect())
    }

    fn unseal(&self, sealed: &str) -> Result<String, Error> {
        let byte = |at: usize| u8::from_str_radix(&sealed[at..at + 2], 16).unwrap() ^ 0x5a;
        Ok(String::from_utf8((0..sealed.len()).step_by(2).map(byte).collect()).unwrap())
    }

    fn now_ms(&self) -> i64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        since.as_millis() as i64 + self.ahead_ms.load(Ordering::SeqCst) + self.set_ms.load(Ordering::SeqCst)
    }

    fn elapsed(&self) -> Duration {
        static START: OnceLock<Instant> = OnceLock::new();
        let ahead = u64::try_from(self.ahead_ms.load(Ordering::SeqCst)).unwrap();
        START.get_or_init(Instant::now).elapsed() + Duration::from_millis(ahead)
    }

    fn write_at(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let space = self.space.load(Ordering::SeqCst);
        if self.is_full.load(Ordering::SeqCst) || (space > 0 && offset + bytes.len() as u64 > space) {
            file.write_all_at(&bytes[..bytes.len() / 2], offset)?;
            return Err(enospc());
        }
        file.write_all_at(bytes, offset)
    }
}

/// A server, a host, a folder, and a driver that can be restarted.
pub(crate) struct Kit {
    pub(crate) server: Server,
    pub(crate) host: Arc<Host>,
    pub(crate) folder: tempfile::TempDir,
    pub(crate) limits: Limits,
    pub(crate) settings: Settings,
    _server_runtime: Runtime,
    driver: Option<(Runtime, Arc<Core>)>,
}

/// A driver that was replaced.
pub(crate) struct Earlier(Runtime, Arc<Core>);

impl Earlier {
    /// Its last destination has ended.
    pub(crate) fn end(self) {
        self.0.shutdown_timeout(Duration::from_secs(10));
        drop(self.1);
    }
}

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap()
}

/// Those of the driver, with pauses that a test can wait for.
pub(crate) fn limits() -> Limits {
    let ms = Duration::from_millis;
    Limits {
        pauses: Pauses {
            usual: (ms(5), ms(40)),
            refused: (ms(10), ms(40)),
            give_up: Duration::from_secs(24 * 3600),
        },
        // A request that is left in the middle leaves parts at the test's store that nothing ends.
        times: Times {
            connect: Duration::from_secs(5),
            stall: Duration::from_secs(30),
            answer: Duration::from_secs(30),
        },
        free_min: 0,
        report_every: ms(0),
        keep_every: ms(20),
        files_per_minute: 1000,
        ..Limits::new(&Settings::default())
    }
}

impl Kit {
    pub(crate) fn new() -> Self {
        Kit::with(limits())
    }

    /// One that leaves a store that hangs after a time that no request takes, also on a busy machine.
    pub(crate) fn impatient() -> Self {
        let ms = Duration::from_millis;
        Kit::with(Limits {
            times: Times { connect: ms(5000), stall: ms(4000), answer: ms(5000) },
            ..limits()
        })
    }

    pub(crate) fn with(limits: Limits) -> Self {
        let server_runtime = runtime();
        let server = server_runtime.block_on(Server::start());
        let settings = Settings {
            endpoint: Some(format!("http://{}", server.address)),
            bucket: Some(BUCKET.into()),
            access_key: Some(ACCESS_KEY.into()),
            secret_key: Some(Secret::new(SECRET_KEY.into())),
            prefix: Some("pre/fix".into()),
            ..Settings::default()
        };
        let folder = tempfile::tempdir().unwrap();
        let mut kit = Kit {
            server,
            host: Arc::default(),
            folder,
            limits,
            settings,
            _server_runtime: server_runtime,
            driver: None,
        };
        kit.load();
        kit
    }

    /// Starts the driver on the existing folder.
    pub(crate) fn load(&mut self) {
        let runtime = runtime();
        let core = runtime
            .block_on(async {
                keeper::start(self.folder.path(), &self.settings, self.limits, self.host.clone())
            })
            .unwrap();
        self.driver = Some((runtime, core));
    }

    /// Drops everything the driver was doing. Only running system calls complete.
    pub(crate) fn kill(&mut self) {
        let (runtime, core) = self.driver.take().unwrap();
        runtime.shutdown_timeout(Duration::from_secs(10));
        // A test may have kept a recorder, as no kill would.
        core.table.give_back();
        drop(core);
    }

    /// Starts another driver beside the one that works.
    pub(crate) fn replace(&mut self) -> Earlier {
        let earlier = self.driver.take().unwrap();
        self.load();
        Earlier(earlier.0, earlier.1)
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.driver.as_ref().unwrap().1
    }

    /// Runs something on the driver's runtime.
    pub(crate) fn run<T>(&self, work: impl Future<Output = T>) -> T {
        self.driver.as_ref().unwrap().0.block_on(work)
    }

    /// A store of a destination's own: the same server with these keys.
    pub(crate) fn own(&self, secret: &str) -> (Target, String) {
        let config = json!({
            "endpoint": format!("http://{}", self.server.address), "bucket": BUCKET,
            "accessKey": ACCESS_KEY, "secretKey": secret,
        });
        let target = serde_json::from_value::<Config>(config).unwrap().target().unwrap().unwrap();
        let sealed = self.host.seal(&serde_json::to_string(&target).unwrap()).unwrap();
        (target, sealed)
    }

    pub(crate) fn order(&self, session: &str) -> Order {
        let about = About {
            destination_id: 7,
            session_id: session.into(),
            stream_key_id: 1,
            label: "My stream".into(),
            session_started_ms: 0,
            account_id: ACCOUNT,
            ..About::default()
        };
        Order { about, own: None, rules: Rules::default() }
    }

    /// The same for another account.
    pub(crate) fn order_of(&self, account_id: i64, session: &str) -> Order {
        let mut order = self.order(session);
        (order.about.account_id, order.about.destination_id) = (account_id, 100 + account_id);
        order
    }

    pub(crate) fn recorder(&self, order: Order) -> Recorder {
        Recorder::new(self.core().clone(), order)
    }

    /// Records a whole session.
    pub(crate) fn record(&self, session: &str, packets: Vec<Packet>) {
        self.record_for(self.order(session), packets);
    }

    pub(crate) fn record_for(&self, order: Order, packets: Vec<Packet>) {
        let mut recorder = self.recorder(order);
        self.run(async {
            for packet in packets {
                recorder.push(packet);
                recorder.write().await.unwrap();
            }
            recorder.finish().await.unwrap();
        });
    }

    /// The listed recordings without those that are gone.
    pub(crate) fn recordings(&self) -> Vec<Recording> {
        self.reported().into_iter().filter(|recording| !recording.gone).collect()
    }

    pub(crate) fn reported(&self) -> Vec<Recording> {
        self.core().table.recordings().unwrap()
    }

    /// Recordings of a session.
    pub(crate) fn of(&self, session: &str) -> Vec<Recording> {
        self.recordings().into_iter().filter(|recording| recording.session_id == session).collect()
    }

    /// The only recording.
    pub(crate) fn only(&self) -> Recording {
        let all = self.recordings();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].clone()
    }

    /// Waits until there are recordings and all are in this state.
    pub(crate) fn until_all(&self, state: RecordingState) {
        let done = until(|| {
            let all = self.recordings();
            !all.is_empty() && all.iter().all(|recording| recording.state == state)
        });
        assert!(done, "{:?} {:?}", self.recordings(), self.server.asked());
    }

    /// Waits until every upload that is not done has failed at least once.
    pub(crate) fn until_failing(&self) {
        let is_failing = |item: &Arc<crate::table::Item>| {
            let data = item.data();
            !matches!(data.entry.state, crate::entry::State::Uploading { .. }) || data.failed_at.is_some()
        };
        assert!(until(|| self.core().table.all().iter().all(is_failing)));
    }

    /// Files in a folder of the driver.
    pub(crate) fn files(&self, folder: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join(folder)).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect();
        names.sort();
        names
    }

    /// Waits for the answer to the request of `ask`.
    pub(crate) fn answer(&self, ask: impl FnOnce(&Arc<Core>, Answer)) -> Result<(), Error> {
        let (give, take) = std::sync::mpsc::channel();
        let answer = Answer::calling(move |outcome| give.send(outcome).unwrap());
        self.run(async { ask(self.core(), answer) });
        take.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// One object, these bytes, no open upload, nothing on the local disk.
    pub(crate) fn assert_whole(&self, expected: &[u8]) {
        let objects = self.server.objects();
        assert_eq!(objects.len(), 1, "{:?}", objects.iter().map(|(key, _)| key).collect::<Vec<_>>());
        assert!(objects[0].1 == expected, "{} bytes, expected {}", objects[0].1.len(), expected.len());
        assert!(until(|| self.files("spool").is_empty()), "{:?}", self.files("spool"));
    }
}

impl Drop for Kit {
    fn drop(&mut self) {
        if let Some((runtime, _)) = self.driver.take() {
            runtime.shutdown_background();
        }
    }
}

/// Longest wait of a test: on a busy machine a request needs several tries within the kit's short times.
const UNTIL_MAX: Duration = Duration::from_secs(90);

pub(crate) fn until(is_met: impl Fn() -> bool) -> bool {
    let end = Instant::now() + UNTIL_MAX;
    while !is_met() {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    true
}

/// True when no file below a folder has this text.
pub(crate) fn is_nowhere(folder: &Path, text: &str) -> bool {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).all(|path| match path.is_dir() {
        true => is_nowhere(&path, text),
        false => {
            // A file that is replaced at this moment may be gone.
            let bytes = std::fs::read(path).unwrap_or_default();
            !bytes.windows(text.len()).any(|window| window == text.as_bytes())
        }
    })
}
