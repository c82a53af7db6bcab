//! One opening of a destination: records packets until the end, or until there is no space.

use std::sync::Arc;

use satcast_plugin_api::driver::{self, Ctx, Media, State, keep};
use satcast_plugin_api::{Error, Packet};
use tokio::time::timeout;

use crate::config::Config;
use crate::core::{Core, Said};
use crate::follow;
use crate::limits::FLUSH_AFTER;
use crate::recorder::{Order, Recorder};

pub(crate) struct Destination {
    core: Arc<Core>,
    said: Said,
}

impl Destination {
    /// # Errors
    /// `Config` for a bad or missing store, `Internal` when the host cannot encrypt its keys.
    pub(crate) fn new(core: Arc<Core>, config: &Config) -> Result<Self, Error> {
        let said = follow::said(&core, config)?;
        Ok(Destination { core, said })
    }
}

impl driver::Destination for Destination {
    async fn run(self: Arc<Self>, ctx: Ctx, mut media: Media) -> Result<(), Error> {
        let about = ctx.about().clone();
        follow::opened(&self.core, about.destination_id, self.said.clone()).await;
        let Said { own, rules } = self.said.clone();
        let order = Order { about, own, rules };
        let mut recorder = Recorder::new(self.core.clone(), order);
        let mut batch = Vec::new();
        let mut reported = 0;
        loop {
            match timeout(FLUSH_AFTER, media.recv_batch(&mut batch)).await {
                Ok(true) => take(&mut recorder, &mut batch),
                Ok(false) => break,
                Err(_) => recorder.flush(),
            }
            recorder.write().await?;
            if reported == 0 && recorder.spooled() > 0 {
                // Live from the first fragment of a file on, whatever the store does.
                ctx.state(State::Live);
            }
            ctx.bytes_sent(recorder.spooled() - reported);
            reported = recorder.spooled();
        }
        let outcome = recorder.finish().await;
        ctx.bytes_sent(recorder.spooled() - reported);
        outcome
    }
}

fn take(recorder: &mut Recorder, batch: &mut Vec<Packet>) {
    for mut packet in batch.drain(..) {
        if packet.discontinuity {
            recorder.gap();
        }
        if !packet.is_config() {
            // The contract marks backfill, packets from before the destination, with sequence 0.
            recorder.set_backfill(packet.sequence == 0);
        }
        // Only the first track of each kind is used.
        if packet.track == 0 {
            keep(&mut packet, recorder.held_bytes());
            recorder.push(packet);
        }
    }
}
