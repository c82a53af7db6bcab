//! nginx in front with TLS, and as the edge and the origin of a CDN, with the configurations of the packages.

use std::collections::BTreeMap;
use std::process::{Child, Command, Stdio};

use satcast_tests::database::Database;
use satcast_tests::encoder::Publish;
use satcast_tests::hls::Viewer;
use satcast_tests::hosted::Hosted;
use satcast_tests::nginx::{Nginx, shipped};
use satcast_tests::ports::Port;
use satcast_tests::service::{Service, Setup};
use satcast_tests::source::Source;
use satcast_tests::tls::{Authority, Pair};
use satcast_tests::wait::seconds;

/// Viewers that come at the same time.
const VIEWERS: usize = 20;
/// Names of nginx in the configurations, and its address here.
const NAMES: [&str; 4] = ["127.0.0.1", "live.example.com", "origin.example.com", "cdn.example.com"];
/// Where the configurations have the certificate, its key, the authorities of Debian and the secret of a CDN.
const CERTIFICATE: &str = "/etc/ssl/satcast/fullchain.pem";
const KEY: &str = "/etc/ssl/satcast/privkey.pem";
const AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";
const SECRET: &str = "PUT-64-HEX-DIGITS-HERE";
/// The interval of metering, and a margin.
const METERED_AFTER_SECONDS: u64 = 7;

/// A service behind nginx with a live stream, and a viewer that asks the service itself.
struct Scene {
    service: Service,
    hosted: Hosted,
    authority: Authority,
    pair: Pair,
    _encoder: satcast_tests::encoder::Encoder,
}

impl Scene {
    fn start(label: &str) -> Self {
        let authority = Authority::new("nginx");
        let pair = authority.pair("nginx", &NAMES);
        let service = Setup::default().set("SATCAST_HTTP__TRUSTED_PROXIES", "[\"127.0.0.1\"]").start();
        let hosted = Hosted::new(&service, label);
        let source = Source::shared();
        let encoder = Publish::of(&source).faster(2).endless().to(&service.ingest_url(&hosted.stream.key));
        Self { service, hosted, authority, pair, _encoder: encoder }
    }

    /// nginx with a configuration of the packages in front of `origin`.
    fn nginx(&self, name: &str, origin: &str, places: &[(&str, &str)]) -> Nginx {
        let (cert, key) = (self.pair.cert.to_string_lossy(), self.pair.key.to_string_lossy());
        let text = shipped(name, origin).replace(CERTIFICATE, &cert).replace(KEY, &key);
        Nginx::before(&places.iter().fold(text, |text, (from, to)| text.replace(from, to)))
    }

    fn origin(&self) -> String {
        self.service.base().replace("http://", "")
    }

    /// curl with these arguments, which trusts the authority alone.
    fn curl(&self, arguments: &[&str]) -> Child {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--max-time", "30", "--cacert"]);
        curl.arg(self.authority.root_file()).args(arguments).stdin(Stdio::null());
        curl.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl is installed")
    }

    /// What curl prints of an answer by its format.
    #[track_caller]
    fn said(&self, format: &str, arguments: &[&str]) -> String {
        printed(self.curl(&[&["--output", "/dev/null", "--write-out", format][..], arguments].concat()))
    }

    /// Paths of four segments that nobody has asked for.
    fn segments(&self) -> Vec<String> {
        let mut viewer = Viewer::of(&self.hosted.ready());
        let media = viewer.media_when("four segments", |media| media.segments.len() >= 4);
        media.segments.iter().take(4).map(|segment| viewer.path(&segment.name)).collect()
    }

    /// Lets all viewers load all segments from `address` at the same time; gives how often each answer of the cache came.
    fn watch(&self, address: &str, segments: &[String]) -> BTreeMap<String, usize> {
        let mut arguments =
            vec!["--fail".to_owned(), "--write-out".into(), "%{http_version} %header{x-cache}\n".into()];
        for path in segments {
            arguments.extend(["--output".into(), "/dev/null".into(), format!("https://{address}{path}")]);
        }
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let viewers: Vec<Child> = (0..VIEWERS).map(|_| self.curl(&arguments)).collect();
        let mut answers = BTreeMap::new();
        for said in viewers.into_iter().map(printed) {
            said.lines().for_each(|line| *answers.entry(line.to_owned()).or_default() += 1);
        }
        answers
    }
}

#[track_caller]
fn printed(curl: Child) -> String {
    let output = curl.wait_with_output().expect("curl ends");
    let (said, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "curl ended with {}: {errors}{said}", output.status);
    said.into_owned()
}

/// How often a log of nginx has a path with the mark of the cache `fetched`, for each path.
fn fetches(log: &str, paths: &[String], fetched: &str) -> Vec<usize> {
    let count = |path: &String| {
        let of_path = log.lines().filter(|line| line.contains(&format!(" {path} ")));
        of_path.filter(|line| line.ends_with(fetched)).count()
    };
    paths.iter().map(count).collect()
}

#[test]
fn behind_tls_each_segment_is_fetched_once_for_twenty_viewers() {
    let scene = Scene::start("proxied");
    let redirect = Port::lease();
    let listen = format!("listen {};", redirect.address());
    let nginx = scene.nginx("satcast.conf", &scene.origin(), &[("listen 80;", &listen)]);
    let (address, segments) = (nginx.address().to_string(), scene.segments());
    let mut database = Database::of(scene.service.folder());
    std::thread::sleep(seconds(METERED_AFTER_SECONDS));
    let before = database.bytes_sent(scene.hosted.destination);

    let answers = scene.watch(&address, &segments);
    let expected = [("2 HIT", (VIEWERS - 1) * segments.len()), ("2 MISS", segments.len())];
    assert_eq!(answers, BTreeMap::from(expected.map(|(answer, count)| (answer.to_owned(), count))));
    let log = nginx.written("satcast.log");
    assert_eq!(fetches(&log, &segments, " MISS"), vec![1; segments.len()], "{log}");

    // Only what was fetched is metered.
    std::thread::sleep(seconds(METERED_AFTER_SECONDS));
    let metered = database.bytes_sent(scene.hosted.destination) - before;
    let bytes: u64 = segments.iter().map(|path| size(&scene, &format!("https://{address}{path}"))).sum();
    assert!(metered >= bytes && metered < 2 * bytes, "{metered} bytes metered for {bytes}");

    let url = format!("https://{address}/api/streams");
    let key = format!("X-API-Key: {}", scene.service.key());
    let said = scene.said("%{http_code} %header{ratelimit-policy}", &["--header", &key, &url]);
    assert_eq!(said, "200 \"reads\";q=300;w=60");
    let events = format!("https://{address}/api/events");
    let said = scene.curl(&["--no-buffer", "--max-time", "3", "--header", &key, &events]);
    let output = said.wait_with_output().expect("curl ends");
    assert!(String::from_utf8_lossy(&output.stdout).lines().any(|line| line == "event: ready"));
    let said =
        scene.said("%{http_code} %{redirect_url}", &[&format!("http://{}/watch/x?a=1", redirect.address())]);
    assert_eq!(said, "308 https://127.0.0.1/watch/x?a=1");
}

fn size(scene: &Scene, url: &str) -> u64 {
    scene.said("%{size_download}", &["--fail", url]).parse().expect("a number of bytes")
}

#[test]
fn the_origin_of_a_cdn_serves_nobody_else() {
    let scene = Scene::start("signed");
    let secret = "0123456789abcdef".repeat(4);
    let origin = scene.nginx("origin.conf", &scene.origin(), &[(SECRET, &secret)]);
    let root = scene.authority.root_file();
    let root = root.to_string_lossy();
    let edge =
        scene.nginx("edge.conf", &origin.address().to_string(), &[(SECRET, &secret), (AUTHORITIES, &root)]);
    let (at_origin, at_edge) = (origin.address().to_string(), edge.address().to_string());
    let segments = scene.segments();

    let direct = format!("https://{at_origin}{}", segments[0]);
    for header in ["X-Origin-Secret: ", "X-Origin-Secret: 0123", "X-Other: x"] {
        assert_eq!(scene.said("%{http_code}", &["--header", header, &direct]), "403", "{header}");
    }
    let answers = scene.watch(&at_edge, &segments);
    let expected = [("2 HIT", (VIEWERS - 1) * segments.len()), ("2 MISS", segments.len())];
    assert_eq!(answers, BTreeMap::from(expected.map(|(answer, count)| (answer.to_owned(), count))));
    let log = origin.written("satcast-origin.log");
    let fetched = segments
        .iter()
        .map(|path| log.lines().filter(|line| line.contains(&format!(" {path} 200 "))).count());
    assert_eq!(fetched.collect::<Vec<_>>(), vec![1; segments.len()], "{log}");

    // The key of the index passes, and stands in no log.
    let index = scene.hosted.ready().replace(&scene.service.base(), &format!("https://{at_edge}"));
    assert_eq!(scene.said("%{http_code}", &[&index]), "200");
    let wrong = format!("{}?apiKey=pk_wrong", index.split('?').next().unwrap_or_default());
    for _ in 0..2 {
        assert_eq!(scene.said("%{http_code} %header{x-cache}", &[&wrong]), "401 MISS");
    }
    assert_eq!(scene.said("%{http_code}", &[&format!("https://{at_edge}/api/streams")]), "404");
    let logs =
        edge.written("edge.log") + &edge.written("edge-error.log") + &origin.written("satcast-origin.log");
    assert!(!logs.contains("pk_") && !logs.contains(&secret), "a key or the secret in a log: {logs}");
}
