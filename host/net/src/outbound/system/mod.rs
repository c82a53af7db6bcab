//! The system's resolver without its threads: the hosts file, then the name servers of `resolv.conf` in their order, with search
//! domains and `ndots`. Both files are read again when they change. Deliberately absent: other sources of `nsswitch.conf` (mDNS,
//! NIS), and a cache.

use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hickory_resolver::config::{ResolveHosts, ResolverConfig};
use hickory_resolver::net::NetError;
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::system_conf::parse_resolv_conf;
use hickory_resolver::{Hosts, TokioResolver};
use parking_lot::Mutex;

use super::{LOOKUP_TIMEOUT_MS, LOOKUPS_AT_ONCE_MAX};

/// Name servers that are asked, as in the C library.
const SERVERS_MAX: usize = 3;
/// The name server when `resolv.conf` has none (resolv.conf(5)).
const NO_SERVERS: &str = "nameserver 127.0.0.1\n";

/// The two files, and their content when they were last read.
pub(super) struct System {
    hosts: PathBuf,
    resolv_conf: PathBuf,
    /// Port of name servers; differs in tests only.
    port: u16,
    read: Mutex<Option<(Stamps, Arc<Read>)>>,
}

/// Identifies the version of each file; `None` for a missing file.
type Stamps = [Option<(u64, u64, i64, i64)>; 2];

struct Read {
    hosts: Hosts,
    /// One for each name server.
    servers: Vec<TokioResolver>,
}

impl Default for System {
    fn default() -> Self {
        Self {
            hosts: "/etc/hosts".into(),
            resolv_conf: "/etc/resolv.conf".into(),
            port: 53,
            read: Mutex::default(),
        }
    }
}

impl System {
    /// The addresses of a name, alternating IPv6 and IPv4, so that an unreachable family does not use up all tries.
    pub(super) async fn look_up(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let read = self.current()?;
        let name = Name::from_str_relaxed(name).map_err(|_| io::Error::other("it is no host name"))?;
        let listed = read.listed(&name);
        let found = if listed.is_empty() { read.ask(name).await? } else { listed };
        let (v6, v4): (Vec<_>, Vec<_>) = found.into_iter().partition(IpAddr::is_ipv6);
        let indexes = 0..v6.len().max(v4.len());
        Ok(indexes.flat_map(|index| [v6.get(index), v4.get(index)]).flatten().copied().collect())
    }

    /// The current content of the files. They are small and local: reading them needs no thread.
    fn current(&self) -> io::Result<Arc<Read>> {
        let stamps = [&self.hosts, &self.resolv_conf].map(|path| {
            let file = fs::metadata(path).ok()?;
            Some((file.ino(), file.len(), file.mtime(), file.mtime_nsec()))
        });
        let mut read = self.read.lock();
        match &*read {
            Some((known, read)) if *known == stamps => Ok(Arc::clone(read)),
            _ => {
                let new = self.read_files().map_err(|_| io::Error::other("resolv.conf cannot be used"))?;
                let new = Arc::new(new);
                *read = Some((stamps, Arc::clone(&new)));
                Ok(new)
            }
        }
    }

    /// An unreadable file counts as empty; unreadable lines are ignored.
    fn read_files(&self) -> Result<Read, NetError> {
        let mut hosts = Hosts::default();
        hosts.read_hosts_conf(text_of(&self.hosts).as_bytes())?;
        let mut text: String = text_of(&self.resolv_conf).lines().map(readable).collect();
        let (config, mut options) = parse_resolv_conf(&text).or_else(|_| {
            text.push_str(NO_SERVERS);
            parse_resolv_conf(&text)
        })?;
        let ResolverConfig { domain, mut search, mut name_servers, .. } = config;
        if search.is_empty() {
            search.extend(domain);
        }
        name_servers.truncate(SERVERS_MAX);
        let share = Duration::from_millis(LOOKUP_TIMEOUT_MS) / u32::try_from(name_servers.len()).unwrap_or(1);
        let attempts = u32::try_from(options.attempts).unwrap_or(u32::MAX).max(1);
        options.timeout = options.timeout.saturating_mul(attempts).min(share);
        options.attempts = 0;
        options.cache_size = 0;
        options.max_active_requests = usize::try_from(2 * LOOKUPS_AT_ONCE_MAX).unwrap_or(usize::MAX);
        // The hosts file comes first, for both families.
        options.use_hosts_file = ResolveHosts::Never;
        let servers = name_servers.into_iter().map(|mut server| {
            server.connections.iter_mut().for_each(|connection| connection.port = self.port);
            let config = ResolverConfig::from_parts(None, search.clone(), vec![server]);
            let builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
            builder.with_options(options.clone()).build()
        });
        Ok(Read { hosts, servers: servers.collect::<Result<_, _>>()? })
    }
}

fn text_of(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// A line of `resolv.conf` without invalid search domains: one would make the whole file unusable.
fn readable(line: &str) -> String {
    let said = line.split(['#', ';']).next().unwrap_or_default();
    let mut words: Vec<&str> = said.split_whitespace().collect();
    if matches!(words.first(), Some(&("search" | "domain"))) {
        words.retain(|word| Name::from_str_relaxed(word).is_ok());
    }
    words.join(" ") + "\n"
}

impl Read {
    /// The addresses in the hosts file.
    fn listed(&self, name: &Name) -> Vec<IpAddr> {
        let both = [RecordType::AAAA, RecordType::A].into_iter();
        let found = both.filter_map(|kind| self.hosts.lookup_static_host(&Query::query(name.clone(), kind)));
        found
            .flat_map(|found| {
                found.answers().iter().filter_map(|record| record.data.ip_addr()).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Asks one name server after the other; the first with an answer, or with the answer that nothing exists, decides.
    async fn ask(&self, name: Name) -> io::Result<Vec<IpAddr>> {
        let mut failure = NetError::NoConnections;
        for server in &self.servers {
            match server.lookup_ip(name.clone()).await {
                Ok(found) => return Ok(found.iter().collect()),
                Err(error) if error.is_no_records_found() => {
                    let unknown = error.is_nx_domain().then(|| io::Error::other("no such name"));
                    return unknown.map_or(Ok(Vec::new()), Err);
                }
                Err(error) => failure = error,
            }
        }
        // Its own error would reveal the name server's address.
        Err(match failure {
            NetError::Timeout => io::ErrorKind::TimedOut.into(),
            _ => io::Error::other("the name server failed"),
        })
    }
}

#[cfg(test)]
mod tests;
