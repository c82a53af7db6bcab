//! Driver `panic`: fails in the way that its configuration names, with its secret in the text. The end-to-end tests load it as a real
//! library; it is never shipped.

use std::fs::OpenOptions;
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, State,
};
use satcast_plugin_api::{
    AssetBody, DestType, Error, HttpRequest, HttpResponse, Route, Secret, SettingsSchema, export_driver,
};

/// Longer than any limit of the host.
const FOR_EVER: Duration = Duration::from_secs(3600);
/// Lines and events of a flood.
const FLOOD: usize = 20_000;

/// The name of a failure below; any other text fails in no way.
#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    place: String,
    token: Secret<String>,
}

impl Settings {
    /// Names: `validate`, `open`, `run`, `drop` panic there; `hang-validate`, `hang-open` do not return.
    fn act_in(&self, place: &str) {
        assert!(self.place != place, "asked to panic in {place} with {}", self.token.expose());
        if self.place == format!("hang-{place}") {
            std::thread::sleep(FOR_EVER);
        }
        if self.place == format!("exit-{place}") {
            std::process::exit(7);
        }
    }

    /// Ends or stops the process. With `once-` before the name only the first time for this token.
    fn crash(&self, ctx: &Ctx) -> Result<(), Error> {
        let name = match self.place.strip_prefix("once-") {
            None => self.place.as_str(),
            Some(name) => {
                let mark = ctx.data_dir()?.join(format!("{name}-{}", self.token.expose()));
                if OpenOptions::new().write(true).create_new(true).open(mark).is_err() {
                    return Ok(());
                }
                name
            }
        };
        let raise = |signal| kill(Pid::this(), signal).map_err(|error| Error::internal(error.to_string()));
        match name {
            "abort" => std::process::abort(),
            "exit" => std::process::exit(7),
            // A signal that no handler of the language's runtime catches.
            "fault" => raise(Signal::SIGFPE),
            "freeze" => raise(Signal::SIGSTOP),
            "overflow" => {
                tracing::info!(depth = overflow(0), "never reached");
                Ok(())
            }
            "memory" => {
                let mut held = Vec::new();
                loop {
                    held.push(vec![1_u8; 64 * 1024 * 1024]);
                }
            }
            "double" => {
                let _second = PanicsAgain;
                panic!("the first panic");
            }
            "block" => {
                std::thread::sleep(FOR_EVER);
                Ok(())
            }
            "spin" => {
                std::thread::spawn(|| while !std::hint::black_box(false) {});
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn flood(&self, ctx: &Ctx) {
        for number in 0..FLOOD {
            tracing::info!(number, token = self.token.expose().as_str(), "a flood");
            ctx.event("flood", &serde_json::json!({ "number": number }));
        }
        tracing::info!(line = "x".repeat(1024 * 1024), "a long line");
        ctx.event("long", &serde_json::json!("y".repeat(1024 * 1024)));
        for number in 0..1000 {
            if let Some(counter) = ctx.counter(&format!("counter-{number}")) {
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }
    }
}

/// What operators can set.
#[derive(Clone, Default, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Options {
    /// Where the driver itself fails: `load` or `unload`.
    fail: String,
}

struct PanicsAgain;

impl Drop for PanicsAgain {
    fn drop(&mut self) {
        panic!("the second panic");
    }
}

#[allow(unconditional_recursion)] // The overflow is intended.
fn overflow(depth: u64) -> u64 {
    let frame = std::hint::black_box([depth; 512]);
    overflow(depth + 1) + frame[0]
}

struct Panics(Options);

impl Drop for Panics {
    fn drop(&mut self) {
        assert!(self.0.fail != "unload", "asked to panic at its end");
    }
}

impl Driver for Panics {
    const INFO: DriverInfo = DriverInfo { id: "panic", version: "0.1.0", title: "Panics on request" };

    fn types() -> Vec<DestType> {
        let answers = DestType::of::<Settings>("answers").title("Answers viewers").route(Route::new("ask"));
        vec![DestType::of::<Settings>("panic").title("Panics on request"), answers]
    }

    fn settings() -> Option<SettingsSchema> {
        Some(SettingsSchema::of::<Options>())
    }

    fn load(host: &Host) -> Result<Self, Error> {
        let options: Options = host.settings()?;
        assert!(options.fail != "load", "asked to panic at its start");
        Ok(Panics(options))
    }

    fn validate(&self, config: Config<'_>) -> Result<(), Error> {
        config.parse::<Settings>()?.act_in("validate");
        Ok(())
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let settings = config.parse::<Settings>()?;
        settings.act_in("open");
        Ok(Arc::new(Output(settings)))
    }
}

struct Output(Settings);

impl Destination for Output {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        tracing::info!(token = self.0.token.expose().as_str(), "a careless driver logs its token");
        self.0.act_in("run");
        match self.0.place.as_str() {
            "drop" => {
                let _held = PanicsAgain;
                return Ok(());
            }
            "ignore-stop" | "never-read" => {
                ctx.state(State::Live);
                loop {
                    tokio::time::sleep(FOR_EVER).await;
                }
            }
            "flood" => self.0.flood(&ctx),
            "crawl" => {
                // One packet per second, at any input rate.
                let mut batch = Vec::new();
                while media.recv_batch(&mut batch).await {
                    for packet in batch.drain(..) {
                        ctx.bytes_sent(packet.payload.len() as u64);
                        ctx.state(State::Live);
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
                return Ok(());
            }
            _ => {}
        }
        let mut batch = Vec::new();
        while media.recv_batch(&mut batch).await {
            for packet in batch.drain(..) {
                ctx.bytes_sent(packet.payload.len() as u64);
                if self.0.place == "leak" {
                    std::mem::forget(packet);
                }
            }
            ctx.state(State::Live);
            self.0.crash(&ctx)?;
        }
        Ok(())
    }

    async fn http(self: Arc<Self>, request: HttpRequest) -> Result<HttpResponse, Error> {
        let internal = |error: std::io::Error| Error::internal(error.to_string());
        match request.path.as_str() {
            "ask/memory" => {
                Ok(HttpResponse::bytes("text/plain", format!("{} {}", std::process::id(), request.query)))
            }
            "ask/file" => {
                let mut file = nameless().map_err(internal)?;
                std::io::Write::write_all(&mut file, b"0123456789").map_err(internal)?;
                let body = AssetBody::Open { file: Some(Arc::new(file)), offset: 1, len: 8 };
                Ok(HttpResponse::of("text/plain", body))
            }
            "ask/split" => {
                Ok(HttpResponse::bytes("text/plain", "x").header("x-driver-a", "b\r\nSet-Cookie: c"))
            }
            "ask/panic" => panic!("asked to panic with {}", self.0.token.expose()),
            "ask/abort" => std::process::abort(),
            _ => Ok(HttpResponse::not_found()),
        }
    }
}

/// An open file without a name.
fn nameless() -> std::io::Result<std::fs::File> {
    let path = std::env::temp_dir().join(format!("satcast-test-driver-{}", std::process::id()));
    let file = OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
    std::fs::remove_file(path)?;
    Ok(file)
}

export_driver!(Panics);
