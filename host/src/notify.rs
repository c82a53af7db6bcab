//! Tells the service manager what the service does (`NOTIFY_SOCKET`, sd_notify(3)). Without a manager it does nothing.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;
use std::{env, io, process};

use rustix::time::{ClockId, clock_gettime};

/// Longest wait for the manager to take a state.
const WRITE_WAIT: Duration = Duration::from_secs(1);

/// The connection to the service manager, or nothing if no manager started this process.
#[derive(Debug, Default)]
pub struct Manager {
    socket: Option<UnixDatagram>,
    /// Time in which the manager expects a sign of life.
    watchdog: Option<Duration>,
}

impl Manager {
    /// The manager of this process, if it has one.
    pub fn of_process() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|address| match connect(&address) {
            Ok(socket) => Some(socket),
            Err(error) => {
                tracing::warn!(%error, "cannot reach the service manager (NOTIFY_SOCKET)");
                None
            }
        });
        let text = |name| env::var(name).ok();
        let watchdog = watchdog(text("WATCHDOG_USEC").as_deref(), text("WATCHDOG_PID").as_deref());
        Self { socket, watchdog }
    }

    /// The ports are open, or a reload has ended.
    pub fn ready(&self) {
        self.tell("READY=1");
    }

    /// A reload begins. The manager compares the time with that of its own request.
    pub fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        let micros = now.tv_sec.saturating_mul(1_000_000).saturating_add(now.tv_nsec / 1_000);
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={micros}"));
    }

    /// The shutdown begins.
    pub fn stopping(&self) {
        self.tell("STOPPING=1");
    }

    /// Gives signs of life at half of the expected time, for as long as the runtime runs this task.
    pub async fn keep_watchdog(&self) {
        let Some(watchdog) = self.watchdog.filter(|_| self.socket.is_some()) else {
            return std::future::pending().await;
        };
        let mut due = tokio::time::interval(watchdog / 2);
        loop {
            due.tick().await;
            self.tell("WATCHDOG=1");
        }
    }

    fn tell(&self, state: &str) {
        let Some(socket) = &self.socket else { return };
        if let Err(error) = socket.send(state.as_bytes()) {
            tracing::warn!(%error, state, "cannot tell the service manager");
        }
    }
}

/// `address` is a path, or the name of an abstract socket after an `@`.
fn connect(address: &OsStr) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    match address.as_bytes().strip_prefix(b"@") {
        Some(name) => socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?,
        None => socket.connect(address)?,
    }
    // A busy manager gets every state; one that reads nothing must not stop the service.
    socket.set_write_timeout(Some(WRITE_WAIT))?;
    Ok(socket)
}

/// The time of the watchdog, if it is meant for this process.
fn watchdog(micros: Option<&str>, pid: Option<&str>) -> Option<Duration> {
    let is_ours = pid.is_none_or(|pid| pid == process::id().to_string());
    let micros = micros.filter(|_| is_ours)?.parse().ok()?;
    Some(Duration::from_micros(micros)).filter(|time| !(*time / 2).is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(manager: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = manager.recv(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[tokio::test]
    async fn the_manager_gets_every_state_and_signs_of_life() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let socket = Some(connect(path.as_os_str()).unwrap());
        let service = Manager { socket, watchdog: Some(Duration::from_millis(20)) };
        service.ready();
        assert_eq!(told(&manager), "READY=1");
        service.reloading();
        let text = told(&manager);
        let (state, time) = text.split_once("\nMONOTONIC_USEC=").unwrap();
        assert!(state == "RELOADING=1" && time.parse::<u64>().is_ok(), "{text}");
        service.stopping();
        assert_eq!(told(&manager), "STOPPING=1");
        let signs = service.keep_watchdog();
        let _ = tokio::time::timeout(Duration::from_millis(100), signs).await;
        assert_eq!((told(&manager), told(&manager)), ("WATCHDOG=1".into(), "WATCHDOG=1".into()));
    }

    #[test]
    fn abstract_sockets_are_reached() {
        let name = format!("satcast-notify-{}", process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let socket = Some(connect(OsStr::new(&format!("@{name}"))).unwrap());
        Manager { socket, watchdog: None }.ready();
        assert_eq!(told(&manager), "READY=1");
    }

    #[test]
    fn the_watchdog_is_ours_only_with_our_id() {
        let own = process::id().to_string();
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some("1000000"), Some(&own)), second);
        assert_eq!(watchdog(Some("1000000"), None), second);
        for (micros, pid) in
            [(Some("1000000"), Some("0")), (Some("0"), None), (Some("x"), None), (None, None)]
        {
            assert_eq!(watchdog(micros, pid), None);
        }
    }
}
