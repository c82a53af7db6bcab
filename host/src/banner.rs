//! The output of `satcast run` when it is ready: everything at the first start, five lines at later starts.
//!
//! Text only, without colour; every address and path is complete, ready to be copied. The one secret is the link of the first
//! start, and only a terminal shows it.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use url::Url;

use crate::first_link::FirstLink;
use satcast_core::config::IngestAddresses;
use satcast_web::api::VERSION;

/// Results of the start.
#[derive(Clone, Debug)]
pub struct Facts {
    /// The command with the flags for the same data: `./satcast --data-dir /srv/x`.
    pub command: String,
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// The data folder.
    pub data_dir: PathBuf,
    /// This start created it.
    pub data_dir_created: bool,
    /// The database, as `SQLite, data/satcast.db`.
    pub database: String,
    /// The drivers folder.
    pub drivers_dir: PathBuf,
    /// Drivers that serve their types.
    pub drivers_loaded: Vec<String>,
    /// Drivers that do not, each with a short reason.
    pub drivers_not_loaded: Vec<(String, String)>,
    /// The HTTP listener.
    pub http: SocketAddr,
    /// The RTMP listener.
    pub rtmp: SocketAddr,
    /// The RTMPS listener.
    pub rtmps: Option<SocketAddr>,
    /// The SRT port.
    pub srt: Option<SocketAddr>,
    /// The UDP port of WHIP.
    pub whip: Option<SocketAddr>,
    /// The servers for encoders.
    pub ingest: IngestAddresses,
    /// The configured public address.
    pub public_url: Url,
    /// The link for the first account; `None` when there is an account.
    pub first_link: Option<FirstLink>,
    /// How long the start took.
    pub took: Duration,
}

/// Hint when the listeners accept this machine only.
const ONLY_HERE: &str =
    "only this machine can connect; to open it set public_url, http.listen and ingest.rtmp_listen";

/// The text for standard output; ends with a line end. `is_terminal`: a person reads it, and no log keeps it.
pub fn render(facts: &Facts, is_terminal: bool) -> String {
    facts.first_link.as_ref().map_or_else(|| again(facts), |link| first(facts, link, is_terminal))
}

fn first(facts: &Facts, link: &FirstLink, is_terminal: bool) -> String {
    let mut text = headline();
    // Writing to a String cannot fail.
    let _ = writeln!(text);
    let config = match &facts.config {
        Some(file) => file.display().to_string(),
        None => format!("none found, using defaults; write one: {} config > satcast.toml", program(facts)),
    };
    let created = if facts.data_dir_created { " (created)" } else { "" };
    let _ = writeln!(text, "  config     {config}");
    let _ =
        writeln!(text, "  data       {}{created}    database: {}", facts.data_dir.display(), facts.database);
    let _ = writeln!(text, "  drivers    {}", drivers(facts));
    let _ = writeln!(text, "  listening  {}", listeners(facts));
    if facts.http.ip().is_loopback() && facts.rtmp.ip().is_loopback() {
        let _ = writeln!(text, "             {ONLY_HERE}");
    }
    let place = if is_terminal {
        format!("with this link, which works once and for a day\n  {}", link.address.expose())
    } else {
        format!("with the link in this file, which works once and for a day\n  {}", link.file.display())
    };
    let _ = write!(
        text,
        "\nFirst run: make your account {place}\n\n\
         Then send video:\n  \
         OBS        Server      {}\n             Stream key  in the dashboard\n  \
         API docs   {}/docs\n\n{}\n",
        facts.ingest.rtmp,
        base(facts),
        ready(facts)
    );
    text
}

fn again(facts: &Facts) -> String {
    let config = facts.config.as_ref().map_or("defaults".to_owned(), |file| file.display().to_string());
    format!(
        "{}  config     {config}\n  data       {}\n  listening  {}\n{}\n",
        headline(),
        facts.data_dir.display(),
        listeners(facts),
        ready(facts)
    )
}

fn headline() -> String {
    format!("satcast {VERSION} ({} {})\n", std::env::consts::OS, std::env::consts::ARCH)
}

fn ready(facts: &Facts) -> String {
    format!("Ready in {:.1} s. Ctrl-C stops (sessions end cleanly).", facts.took.as_secs_f64())
}

fn drivers(facts: &Facts) -> String {
    let loaded = match facts.drivers_loaded.as_slice() {
        [] => "none".to_owned(),
        names => names.join(", "),
    };
    if facts.drivers_not_loaded.is_empty() {
        return loaded;
    }
    let others: Vec<String> =
        facts.drivers_not_loaded.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    format!("{loaded}    not loaded from {}: {}", facts.drivers_dir.display(), others.join("; "))
}

fn listeners(facts: &Facts) -> String {
    let rtmps = facts.rtmps.map(|address| format!("    rtmps  {address}")).unwrap_or_default();
    let srt = facts.srt.map(|address| format!("    srt  {address}")).unwrap_or_default();
    let whip = facts.whip.map(|address| format!("    whip  {address}")).unwrap_or_default();
    format!("http  {}    rtmp  {}{rtmps}{srt}{whip}", facts.http, facts.rtmp)
}

/// The program without its flags.
fn program(facts: &Facts) -> &str {
    facts.command.split(" --").next().unwrap_or("satcast")
}

/// The address of the API and the dashboard: the public address, or the listener when the system chose its port.
pub fn base(facts: &Facts) -> String {
    let configured = facts.public_url.port_or_known_default();
    if facts.http.ip().is_loopback() && configured != Some(facts.http.port()) {
        return format!("http://{}", facts.http);
    }
    facts.public_url.as_str().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use satcast_core::secret::Redacted;

    fn facts() -> Facts {
        Facts {
            command: "./satcast --data-dir /srv/x".into(),
            config: None,
            data_dir: "/srv/x".into(),
            data_dir_created: true,
            database: "SQLite, /srv/x/satcast.db".into(),
            drivers_dir: "/opt/drivers".into(),
            drivers_loaded: vec!["rtmp".into()],
            drivers_not_loaded: vec![("hls".into(), "no file".into())],
            http: "127.0.0.1:8080".parse().unwrap(),
            rtmp: "127.0.0.1:1935".parse().unwrap(),
            rtmps: None,
            srt: None,
            whip: None,
            ingest: IngestAddresses {
                rtmp: "rtmp://127.0.0.1:1935/live".into(),
                rtmps: None,
                srt: None,
                whip: None,
            },
            public_url: "http://127.0.0.1:8080".parse().unwrap(),
            first_link: Some(FirstLink {
                address: Redacted::new("http://127.0.0.1:8080/setup#inv_x".into()),
                file: "/srv/x/setup-link".into(),
            }),
            took: Duration::from_millis(180),
        }
    }

    #[test]
    fn the_first_start_shows_every_path_and_the_next_steps() {
        let text = render(&facts(), true);
        for part in [
            "none found, using defaults; write one: ./satcast config > satcast.toml",
            "/srv/x (created)",
            "SQLite, /srv/x/satcast.db",
            "rtmp    not loaded from /opt/drivers: hls: no file",
            ONLY_HERE,
            "http://127.0.0.1:8080/setup#inv_x",
            "rtmp://127.0.0.1:1935/live",
            "http://127.0.0.1:8080/docs",
            &ready(&facts()),
        ] {
            assert!(text.contains(part), "{part} is not in\n{text}");
        }
        assert!(!text.contains('\x1b'));
        let text = render(&facts(), false);
        assert!(text.contains("/srv/x/setup-link") && !text.contains("inv_x"), "a log keeps it: {text}");
    }

    #[test]
    fn the_second_start_is_five_lines() {
        let text = render(&Facts { first_link: None, config: Some("satcast.toml".into()), ..facts() }, true);
        assert_eq!(text.lines().count(), 5, "{text}");
        assert!(text.ends_with(&format!("\n{}\n", ready(&facts()))), "{text}");
    }

    #[test]
    fn addresses_are_those_that_work_from_outside() {
        let open = Facts {
            http: "0.0.0.0:8080".parse().unwrap(),
            rtmp: "0.0.0.0:1935".parse().unwrap(),
            public_url: "https://live.example.com".parse().unwrap(),
            ..facts()
        };
        let text = render(&open, true);
        assert!(text.contains("https://live.example.com/docs") && !text.contains(ONLY_HERE));
        let free_port = Facts { http: "127.0.0.1:40123".parse().unwrap(), ..facts() };
        assert!(render(&free_port, true).contains("http://127.0.0.1:40123/docs"));
    }

    #[test]
    fn hints_texts() {
        assert_eq!(
            ONLY_HERE,
            "only this machine can connect; to open it set public_url, http.listen and ingest.rtmp_listen"
        );
        assert_eq!(ready(&facts()), "Ready in 0.2 s. Ctrl-C stops (sessions end cleanly).");
    }
}
