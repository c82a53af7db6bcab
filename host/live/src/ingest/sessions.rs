//! Implements admission with the live sessions.

use std::net::IpAddr;

use satcast_media::Packet;
use satcast_media::flv::ForeignCodec;

use super::admit::{Admission, PacketSink, Status};
use crate::{Live, Publisher, Via};
use satcast_store::StreamRecord;

impl Admission for Live {
    type Publisher = Publisher;

    async fn publish(&self, stream: StreamRecord, via: Via, address: IpAddr) -> Result<Publisher, Status> {
        let refused = Live::publish_from(self, stream, via, Some(address)).await;
        refused.map_err(|refused| Status { code: refused.code, reason: refused.reason })
    }
}

impl PacketSink for Publisher {
    fn push(&mut self, packets: &mut Vec<Packet>) {
        Publisher::push(self, packets);
    }

    fn foreign(&mut self, codec: ForeignCodec) {
        Publisher::foreign(self, codec);
    }

    async fn closed(&self) -> Status {
        let closed = Publisher::closed(self).await;
        Status { code: closed.code, reason: closed.reason }
    }
}
