//! Driver `panic`: panics where its configuration says so, with its secret in the text. Loaded as a real library by the
//! end-to-end tests; never shipped.

use std::sync::Arc;

use satcast_plugin_api::driver::{
    Config, Ctx, Destination, Driver, DriverInfo, DynDestination, Host, Media, State,
};
use satcast_plugin_api::{DestType, Error, Secret, export_driver};

/// Where to panic: `validate`, `open`, `run`, or nowhere.
#[derive(Clone, serde::Deserialize, schemars::JsonSchema)]
#[serde(deny_unknown_fields)]
struct Settings {
    place: String,
    token: Secret<String>,
}

impl Settings {
    fn panic_in(&self, place: &str) {
        assert!(self.place != place, "asked to panic in {place} with {}", self.token.expose());
    }
}

struct Panics;

impl Driver for Panics {
    const INFO: DriverInfo = DriverInfo { id: "panic", version: "0.1.0", title: "Panics on request" };

    fn types() -> Vec<DestType> {
        vec![DestType::of::<Settings>("panic").title("Panics on request")]
    }

    fn load(_: &Host) -> Result<Self, Error> {
        Ok(Panics)
    }

    fn validate(&self, config: Config<'_>) -> Result<(), Error> {
        config.parse::<Settings>()?.panic_in("validate");
        Ok(())
    }

    fn open(&self, config: Config<'_>) -> Result<Arc<dyn DynDestination>, Error> {
        let settings = config.parse::<Settings>()?;
        settings.panic_in("open");
        Ok(Arc::new(Output(settings)))
    }
}

struct Output(Settings);

impl Destination for Output {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        tracing::info!(token = self.0.token.expose().as_str(), "a careless driver logs its token");
        self.0.panic_in("run");
        let mut batch = Vec::new();
        while media.recv_batch(&mut batch).await {
            for packet in batch.drain(..) {
                ctx.bytes_sent(packet.payload().len() as u64);
            }
            ctx.state(State::Live);
        }
        Ok(())
    }
}

export_driver!(Panics);
