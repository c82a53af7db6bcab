//! Servers near this machine, for platforms that publish a list of them. A list is fetched when it is needed, and cached for a day in
//! the driver's folder. Without a list the platform's usual server is used; no opening waits longer than [`LIST_WAIT`] for a list.

mod fetch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use satcast_driver_rtmp::target::Target;
use satcast_driver_rtmp::tls::Trust;
use satcast_plugin_api::Error;
use satcast_plugin_api::driver::Ctx;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use fetch::ListAddress;

/// Longest an opening waits for a list.
pub const LIST_WAIT: Duration = Duration::from_secs(2);
/// How long a list is valid.
pub const LIST_KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// Minimum time between two attempts to fetch a list.
pub const LIST_PAUSE: Duration = Duration::from_secs(10 * 60);
/// Largest list, in bytes.
pub const LIST_BYTES_MAX: usize = 256 * 1024;
/// Number of servers that are used of a list: the nearest ones.
pub const SERVERS_MAX: usize = 2;

/// The key's placeholder in a template.
const KEY_PLACEHOLDER: &str = "/{stream_key}";

const UNKNOWN_FORMAT: &str = "the list of servers does not have the expected format";
const NO_SERVER: &str = "the list of servers has no usable server";

/// The list of one platform.
pub struct Ingests {
    address: String,
    list: ListAddress,
    /// The cache file.
    file: Option<PathBuf>,
    trust: Trust,
    /// Known servers, nearest first. Never locked for long.
    servers: Mutex<Arc<[String]>>,
    /// Locked during the search for a newer list.
    search: tokio::sync::Mutex<Search>,
}

#[derive(Default)]
struct Search {
    /// The file was read.
    has_begun: bool,
    good_until: Option<Instant>,
    tried_at: Option<Instant>,
}

/// The form of the cache file.
#[derive(Serialize, Deserialize)]
struct Kept {
    /// Address of the list: a list from another address is not used.
    address: String,
    servers: Vec<String>,
}

/// The published form; other fields are ignored.
#[derive(Deserialize)]
struct List {
    ingests: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    url_template: String,
    url_template_secure: Option<String>,
    availability: Option<f64>,
}

impl Ingests {
    /// The list at `address` (`https://` or `http://`), cached as `name` in `folder`.
    ///
    /// # Errors
    /// A sentence about an invalid address.
    pub fn new(name: &str, address: &str, folder: Option<&Path>, trust: Trust) -> Result<Self, String> {
        let list = ListAddress::parse(address)?;
        let file = folder.map(|folder| folder.join(format!("ingests-{name}.json")));
        let (servers, search) = (Mutex::new(Vec::new().into()), tokio::sync::Mutex::default());
        Ok(Self { address: address.to_owned(), list, file, trust, servers, search })
    }

    /// Servers without a key, nearest first; empty when none is known. Returns within [`LIST_WAIT`].
    pub async fn nearest(&self, ctx: &Ctx) -> Arc<[String]> {
        if timeout(LIST_WAIT, self.look(ctx)).await.is_err() {
            tracing::warn!(address = %self.list, "the list of servers did not arrive in time; using the known servers");
        }
        self.known().clone()
    }

    fn known(&self) -> parking_lot::MutexGuard<'_, Arc<[String]>> {
        self.servers.lock()
    }

    /// Updates the known servers if they are too old; one caller at a time.
    async fn look(&self, ctx: &Ctx) {
        let mut search = self.search.lock().await;
        if !search.has_begun {
            search.has_begun = true;
            self.read_kept(&mut search).await;
        }
        let now = Instant::now();
        let is_good = search.good_until.is_some_and(|until| now < until);
        let is_early = search.tried_at.is_some_and(|at| now < at + LIST_PAUSE);
        if is_good || is_early {
            return;
        }
        search.tried_at = Some(now);
        let fetched = fetch::get(&self.list, ctx, &self.trust).await;
        match fetched.and_then(|body| servers_of(&body)) {
            Ok(servers) => {
                tracing::info!(address = %self.list, ?servers, "fetched the list of servers");
                self.keep(servers.clone()).await;
                *self.known() = servers.into();
                search.good_until = Some(now + LIST_KEPT);
            }
            Err(error) => {
                tracing::warn!(address = %self.list, %error, "cannot fetch the list of servers; using the known servers");
            }
        }
    }

    /// Reads the cache of an earlier process, however old it is: better than nothing.
    async fn read_kept(&self, search: &mut Search) {
        let Some(file) = self.file.clone() else { return };
        let read = spawn_blocking(move || {
            let age = std::fs::metadata(&file)?.modified()?.elapsed().unwrap_or(LIST_KEPT);
            Ok::<_, std::io::Error>((std::fs::read(&file)?, age))
        });
        // A missing file is normal at first.
        let Ok(Ok((text, age))) = read.await else { return };
        let Ok(kept) = serde_json::from_slice::<Kept>(&text) else { return };
        if kept.address != self.address {
            return;
        }
        *self.known() =
            kept.servers.into_iter().filter(|server| is_server(server)).take(SERVERS_MAX).collect();
        search.good_until = LIST_KEPT.checked_sub(age).map(|left| Instant::now() + left);
    }

    /// Writes the cache. After a failure the next process fetches the list again.
    async fn keep(&self, servers: Vec<String>) {
        let Some(file) = self.file.clone() else { return };
        let kept = Kept { address: self.address.clone(), servers };
        let written = spawn_blocking(move || {
            let half = file.with_extension(format!("{}.new", unique()));
            std::fs::write(&half, serde_json::to_vec(&kept)?)?;
            std::fs::rename(&half, &file)
        });
        if let Ok(Err(error)) = written.await {
            tracing::warn!(%error, "cannot cache the list of servers");
        }
    }
}

/// Distinguishes half-written files.
fn unique() -> u128 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_nanos()
}

/// The nearest servers of a list, which is sorted by distance; with TLS if possible.
fn servers_of(body: &[u8]) -> Result<Vec<String>, Error> {
    let list: List = serde_json::from_slice(body).map_err(|_| Error::remote(UNKNOWN_FORMAT))?;
    let available =
        list.ingests.into_iter().filter(|entry| entry.availability.is_none_or(|share| share > 0.0));
    let servers = available.filter_map(|entry| {
        let secure = entry.url_template_secure.as_deref().and_then(without_key);
        secure.or_else(|| without_key(&entry.url_template))
    });
    let servers: Vec<String> = servers.take(SERVERS_MAX).collect();
    if servers.is_empty() {
        return Err(Error::remote(NO_SERVER));
    }
    Ok(servers)
}

fn without_key(template: &str) -> Option<String> {
    template.strip_suffix(KEY_PLACEHOLDER).filter(|server| is_server(server)).map(str::to_owned)
}

fn is_server(server: &str) -> bool {
    Target::parse(server, Some("key")).is_ok()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn servers(ingests: Value) -> Result<Vec<String>, String> {
        servers_of(json!({ "ingests": ingests, "more": 1 }).to_string().as_bytes())
            .map_err(|error| error.message)
    }

    #[test]
    fn the_nearest_servers_with_tls_are_taken() {
        let entry = |host: &str| {
            json!({
                "name": "x", "availability": 1.0,
                "url_template": format!("rtmp://{host}/app/{{stream_key}}"),
                "url_template_secure": format!("rtmps://{host}/app/{{stream_key}}"),
            })
        };
        let mut away = entry("a.example");
        away["availability"] = json!(0.0);
        let plain = json!({ "url_template": "rtmp://b.example/app/{stream_key}" });
        let list = json!([away, plain, entry("c.example"), entry("d.example")]);
        assert_eq!(servers(list).unwrap(), ["rtmp://b.example/app", "rtmps://c.example/app"]);
    }

    #[test]
    fn invalid_servers_are_skipped_and_an_empty_list_is_an_error() {
        let strange = json!([
            { "url_template": "rtmp://a.example/app" },
            { "url_template": "https://a.example/app/{stream_key}" },
            { "url_template": "{stream_key}" },
        ]);
        assert_eq!(servers(strange).unwrap_err(), NO_SERVER);
        assert_eq!(servers(json!([])).unwrap_err(), NO_SERVER);
        assert_eq!(servers(json!({})).unwrap_err(), UNKNOWN_FORMAT);
        assert_eq!(servers_of(b"<html>").unwrap_err().message, UNKNOWN_FORMAT);
    }

    #[test]
    fn faults_texts() {
        assert_eq!(UNKNOWN_FORMAT, "the list of servers does not have the expected format");
        assert_eq!(NO_SERVER, "the list of servers has no usable server");
    }
}
