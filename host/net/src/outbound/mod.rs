//! The one guard for every address a user can give: RTMP destinations, webhooks, wallets, archive endpoints.
//!
//! A user's host is resolved here and nowhere else; every address of the answer is checked, and exactly the checked
//! addresses are used for the connection, so changing a name between check and connect has no effect. Addresses
//! that are not public are refused unless the operator lists them.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use url::Url;

pub mod http;
mod lookups;
mod ranges;
mod system;
mod target;

#[cfg(any(test, feature = "testing"))]
pub use lookups::Resolver;
pub use lookups::{Asker, Crowd, LOOKUPS_AT_ONCE_MAX, LOOKUPS_OF_ASKER_MAX, SLOW_LOOKUPS_OF_ASKER_MAX};
use lookups::{Lookups, Unknown};
pub use target::AllowError;
use target::{AllowList, Target};

/// Longest wait for a permit to look a name up and the resolver's answer together.
pub const LOOKUP_TIMEOUT_MS: u64 = 5_000;
/// Addresses of one name that are tried; further ones are checked, too, but not used.
pub const ADDRESSES_TRIED_MAX: usize = 8;
/// Longest time of one [`Guard::connect`], even if its caller allows more.
pub const CONNECT_TIMEOUT_MAX_MS: u64 = 60_000;

/// The setting named in refusals when [`Guard::new`] is used.
const OUTBOUND_SETTING: &str = "[outbound] allow";
/// Asker when no other is set.
const HOST_ITSELF: &str = "host";

/// Checks hosts, resolves them and connects to them. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Guard {
    allow: Arc<AllowList>,
    setting: &'static str,
    lookups: Arc<Lookups>,
    asker: Asker,
}

/// Answers of a test resolver, one per look-up.
#[cfg(any(test, feature = "testing"))]
/// Addresses that a name has, one answer after the other.
pub type Answers = Arc<parking_lot::Mutex<std::collections::VecDeque<Vec<IpAddr>>>>;

/// A destination this host must not connect to. Safe to show to its owner: it repeats no part of a text that
/// may be a whole URL with its key, and does not reveal the internal address of a name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The text is no host at all.
    #[error("the host is not a valid host name or IP address; give it without user, port or path")]
    Malformed,
    /// A literal address in a forbidden range.
    #[error("the address {address} is {why}; ask the operator to add it to {setting}")]
    Address {
        /// The parsed address.
        address: IpAddr,
        /// Class of the address, e.g. `private`.
        why: &'static str,
        /// The setting that can allow it.
        setting: &'static str,
    },
    /// A name with at least one address in a forbidden range.
    #[error(
        "the host {name} leads to an address that is {why}; ask the operator to add the name to {setting}"
    )]
    Name {
        /// The name as resolved.
        name: String,
        /// The offending address, for the operator's log only.
        address: IpAddr,
        /// Class of the address, e.g. `loopback`.
        why: &'static str,
        /// The setting that can allow it.
        setting: &'static str,
    },
}

/// Why a destination cannot be resolved or reached.
#[derive(Clone, Debug, thiserror::Error)]
pub enum GuardError {
    /// Forbidden until the destination or the allow list changes.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The name has no address, or the resolver failed.
    #[error("cannot resolve the host name {name}: {reason}; check the name")]
    Dns {
        /// The name as asked for.
        name: String,
        /// The resolver's error.
        reason: String,
    },
    /// Every address refused the connection or was unreachable.
    #[error(
        "cannot connect to {host} port {port}: {source}; check that the server runs and takes connections there"
    )]
    Connect {
        /// Name or address.
        host: String,
        /// TCP or UDP port.
        port: u16,
        /// The failure at the last address tried.
        source: Arc<io::Error>,
    },
    /// The resolver did not answer in time.
    #[error("the name server did not answer for {name} within {after_ms} ms; check the name")]
    NameServer {
        /// The name as asked for.
        name: String,
        /// Duration of the look-up in milliseconds.
        after_ms: u64,
    },
    /// The resolver was not asked in time, so nothing is known about the name.
    #[error("the name {name} was not looked up within {after_ms} ms because {because}; it is tried again")]
    NotLookedUp {
        /// The name as asked for.
        name: String,
        /// Time waited in milliseconds.
        after_ms: u64,
        /// The look-ups that use all permits.
        because: Crowd,
    },
    /// No answer of the destination in time.
    #[error(
        "no answer from {host} port {port} within {after_ms} ms; check that the server runs and takes connections there"
    )]
    Timeout {
        /// Name or address.
        host: String,
        /// TCP port.
        port: u16,
        /// Time waited in milliseconds.
        after_ms: u64,
    },
}

#[cfg(any(test, feature = "testing"))]
impl GuardError {
    /// Nothing listens at `address`.
    pub fn connection_refused(address: SocketAddr) -> Self {
        let source = Arc::new(io::Error::from_raw_os_error(libc::ECONNREFUSED));
        Self::Connect { host: address.ip().to_string(), port: address.port(), source }
    }
}

impl Guard {
    /// A guard with the operator's `[outbound] allow`: CIDR networks, single addresses, exact host names.
    ///
    /// # Errors
    /// The first entry of another form.
    pub fn new(allow: &[String]) -> Result<Self, AllowError> {
        Self::with_setting(allow, OUTBOUND_SETTING)
    }

    /// The same for another list, e.g. `[webhooks] allow_targets`, which refusals and errors then name.
    ///
    /// # Errors
    /// The first entry that cannot be read.
    pub fn with_setting(allow: &[String], setting: &'static str) -> Result<Self, AllowError> {
        Ok(Self {
            allow: Arc::new(AllowList::parse(allow, setting)?),
            setting,
            lookups: Arc::new(Lookups::of_system()),
            asker: Asker::Service(HOST_ITSELF.into()),
        })
    }

    /// This guard on behalf of `asker`, with the asker's share of the look-ups.
    #[must_use]
    pub fn asked_by(&self, asker: Asker) -> Self {
        Self { asker, ..self.clone() }
    }

    /// The same with a test resolver.
    #[cfg(any(test, feature = "testing"))]
    pub fn resolving(self, resolver: Resolver) -> Self {
        Self { lookups: Arc::new(Lookups::with_resolver(resolver)), ..self }
    }

    /// The same with a test resolver that has fixed answers.
    #[cfg(any(test, feature = "testing"))]
    pub fn answering(self, answers: Answers) -> Self {
        self.resolving(Arc::new(move |_| {
            let found = answers.lock().pop_front().unwrap_or_default();
            Box::pin(std::future::ready(Ok(found)))
        }))
    }

    /// Checks without a resolver: literal addresses in every spelling, and `localhost`. For the
    /// registration of a destination; [`Guard::connect`] checks again.
    ///
    /// # Errors
    /// The text is no host, or means a forbidden address.
    pub fn check_literal(&self, host: &str) -> Result<(), Refused> {
        let target = Target::parse(host).ok_or(Refused::Malformed)?;
        match &target {
            Target::Address(address) => self.check_address(*address),
            Target::Name(_) if !target.is_localhost() => Ok(()),
            Target::Name(name) => self.check_answer(name, &[IpAddr::from([127, 0, 0, 1])]),
        }
    }

    /// The same for the host of a URL; a text that is not a URL passes.
    ///
    /// # Errors
    /// The URL's host means a forbidden address.
    pub fn check_url(&self, text: &str) -> Result<(), Refused> {
        let Ok(url) = Url::parse(text) else { return Ok(()) };
        url.host_str().filter(|host| !host.is_empty()).map_or(Ok(()), |host| self.check_literal(host))
    }

    /// Whether the operator lists this host, by name or by literal address: rules for unlisted hosts only
    /// (such as https for webhooks) may then be relaxed.
    #[must_use]
    pub fn is_listed(&self, host: &str) -> bool {
        match Target::parse(host) {
            Some(Target::Address(address)) => self.allow.holds_address(address),
            Some(Target::Name(name)) => self.allow.holds_name(&name),
            None => false,
        }
    }

    /// All addresses of `host`, in the resolver's order, each of them checked; at most [`ADDRESSES_TRIED_MAX`].
    /// Waits at most `limit`, and never longer than [`LOOKUP_TIMEOUT_MS`].
    ///
    /// # Errors
    /// Refused when a single address of the answer is forbidden; a resolver's failure or silence; no permit for a look-up.
    pub async fn resolve(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<Vec<SocketAddr>, GuardError> {
        let target = Target::parse(host).ok_or(Refused::Malformed)?;
        let name = match target {
            Target::Address(address) => {
                self.check_address(address)?;
                return Ok(vec![SocketAddr::new(address, port)]);
            }
            Target::Name(name) => name,
        };
        let limit = limit.min(Duration::from_millis(LOOKUP_TIMEOUT_MS));
        let found = self.lookups.find(&name, &self.asker, limit).await;
        self.judge(name, port, limit, found)
    }

    /// Turns the result of a look-up into addresses or an error; the caller waited at most `limit`.
    fn judge(
        &self,
        name: String,
        port: u16,
        limit: Duration,
        found: Result<Vec<IpAddr>, Unknown>,
    ) -> Result<Vec<SocketAddr>, GuardError> {
        let found = match found {
            Ok(found) if found.is_empty() => {
                return Err(GuardError::Dns { name, reason: "it has no address".to_owned() });
            }
            Ok(found) => found,
            Err(Unknown::Failed(reason)) => return Err(GuardError::Dns { name, reason }),
            Err(Unknown::Silent(ran)) => {
                return Err(GuardError::NameServer { name, after_ms: whole_ms(ran) });
            }
            Err(Unknown::NoPermit(because)) => {
                return Err(GuardError::NotLookedUp { name, after_ms: whole_ms(limit), because });
            }
        };
        let addresses: Vec<IpAddr> = found.iter().map(IpAddr::to_canonical).collect();
        self.check_answer(&name, &addresses)?;
        Ok(addresses.into_iter().take(ADDRESSES_TRIED_MAX).map(|ip| SocketAddr::new(ip, port)).collect())
    }

    /// Resolves, checks and connects: the addresses are tried in order, each with an equal share of the time that is
    /// left. `limit` covers everything and is cut at [`CONNECT_TIMEOUT_MAX_MS`]. The socket is non-blocking and has
    /// TCP_NODELAY set.
    ///
    /// # Errors
    /// As [`Guard::resolve`]; the failure of the last address tried; a timeout.
    pub async fn connect(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<std::net::TcpStream, GuardError> {
        let limit = limit.min(Duration::from_millis(CONNECT_TIMEOUT_MAX_MS));
        let began = Instant::now();
        let deadline = began + limit;
        let shown = || Target::parse(host).map_or_else(String::new, |target| target.to_string());
        let addresses = self.resolve(host, port, limit).await?;
        // The time of the look-up does not count against the destination.
        let after_ms = whole_ms(limit).saturating_sub(whole_ms(began.elapsed()));
        let late = || GuardError::Timeout { host: shown(), port, after_ms };
        match connect_first(&addresses, deadline).await {
            Ok(stream) => Ok(stream),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(late()),
            Err(error) => Err(GuardError::Connect { host: shown(), port, source: Arc::new(error) }),
        }
    }

    /// Resolves, checks, and makes a UDP socket that sends to one of the addresses alone: the first to which the system
    /// has a way, IPv4 before IPv6. Nothing is sent. `limit` is that of [`Guard::resolve`]. The socket is non-blocking.
    ///
    /// # Errors
    /// As [`Guard::resolve`]; the failure at the last address.
    pub async fn connect_udp(
        &self,
        host: &str,
        port: u16,
        limit: Duration,
    ) -> Result<std::net::UdpSocket, GuardError> {
        let mut addresses = self.resolve(host, port, limit).await?;
        // A route is enough to connect, whether somebody listens or not, and most receivers listen at IPv4 alone.
        addresses.sort_by_key(SocketAddr::is_ipv6);
        let mut failure = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for address in addresses {
            match udp_to(address) {
                Ok(socket) => return Ok(socket),
                Err(error) => failure = error,
            }
        }
        let host = Target::parse(host).map_or_else(String::new, |target| target.to_string());
        Err(GuardError::Connect { host, port, source: Arc::new(failure) })
    }

    fn check_address(&self, address: IpAddr) -> Result<(), Refused> {
        match self.objection(address) {
            Some((address, why)) => Err(Refused::Address { address, why, setting: self.setting }),
            None => Ok(()),
        }
    }

    /// One forbidden address makes the whole answer invalid: a name with public and private addresses is an attack or a mistake, and using
    /// only the public ones would hide it.
    fn check_answer(&self, name: &str, addresses: &[IpAddr]) -> Result<(), Refused> {
        if self.allow.holds_name(name) {
            return Ok(());
        }
        match addresses.iter().find_map(|address| self.objection(*address)) {
            Some((address, why)) => {
                Err(Refused::Name { name: name.to_owned(), address, why, setting: self.setting })
            }
            None => Ok(()),
        }
    }

    /// The address and reason that forbid `address`, if any: itself, or the IPv4 address behind a translator.
    fn objection(&self, address: IpAddr) -> Option<(IpAddr, &'static str)> {
        let address = address.to_canonical();
        let behind = ranges::translated(address).map(IpAddr::V4);
        [Some(address), behind].into_iter().flatten().find_map(|address| {
            let why = ranges::forbidden(address)?;
            (!self.allow.holds_address(address)).then_some((address, why))
        })
    }
}

/// The first connection that succeeds; otherwise the last failure, of kind `TimedOut` where the time was over.
async fn connect_first(addresses: &[SocketAddr], deadline: Instant) -> io::Result<std::net::TcpStream> {
    let mut failure = io::Error::from(io::ErrorKind::TimedOut);
    let mut left = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let share = deadline.saturating_duration_since(Instant::now()) / left.max(1);
        left = left.saturating_sub(1);
        match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                stream.set_nodelay(true)?;
                return stream.into_std();
            }
            Ok(Err(error)) => failure = error,
            Err(_) => failure = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(failure)
}

fn udp_to(address: SocketAddr) -> io::Result<std::net::UdpSocket> {
    let any = if address.is_ipv4() { IpAddr::from([0; 4]) } else { IpAddr::from([0; 16]) };
    let socket = std::net::UdpSocket::bind((any, 0))?;
    socket.connect(address)?;
    socket.set_nonblocking(true)?;
    Ok(socket)
}

fn whole_ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
