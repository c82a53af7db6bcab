//! An independent implementation (rtmp-runtime) as the other side, in both roles.

use bytes::Bytes;
use rtmp_runtime::client as other_client;
use rtmp_runtime::server as other_server;
use satcast_media::flv::{demux, mux};
use satcast_media::rtmp::client::{ClientConfig, ClientEvent, ClientSession};
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use satcast_media::{Kind, Packet};

use crate::common::{MS, Random, programme};

/// Exchanges within which every handshake and publish is done.
const EXCHANGES_MAX: usize = 20;

/// Crosses the extended time field.
fn packets(largest: usize) -> Vec<Packet> {
    programme(0x00ff_ffff - 300, 30, largest, &mut Random::new(0x0a_c1e5))
}

/// The packet in the other server's output: an FLV file header once, then a tag and its length.
fn packet_of(flv: &[u8]) -> Option<Packet> {
    let tag = if flv.starts_with(b"FLV") { &flv[13..] } else { flv };
    let kind = match tag[0] {
        8 => Kind::Audio,
        9 => Kind::Video,
        _ => return None,
    };
    let time = i64::from(u32::from_be_bytes([tag[7], tag[4], tag[5], tag[6]]));
    demux(kind, time, &Bytes::copy_from_slice(&tag[11..tag.len() - 4])).expect("whole tag")
}

#[test]
fn the_client_publishes_to_another_server() {
    for chunk_size in [128, 4096, 60_000] {
        let sent = packets(30_000);
        let config = ClientConfig {
            app: "live".to_owned(),
            tc_url: "rtmp://127.0.0.1/live".to_owned(),
            stream_key: "key".to_owned(),
            chunk_size,
            ..ClientConfig::default()
        };
        let mut client = ClientSession::new(config);
        let config = other_server::ServerConfig::default().with_expected_stream_key(Some("key".to_owned()));
        let mut server = other_server::ServerSession::new(config);
        let (mut publishing, mut ended) = (false, false);
        let mut got = Vec::new();
        for _ in 0..EXCHANGES_MAX {
            let (answer, events) = server.handle_data(&client.output().take()).expect("our bytes are valid");
            for event in events {
                match event {
                    other_server::ServerEvent::Media { flv } => got.extend(packet_of(&flv)),
                    other_server::ServerEvent::Eof => ended = true,
                    _ => {}
                }
            }
            client.input(Bytes::from(answer)).expect("valid");
            if client.poll_event() == Some(ClientEvent::Publishing) && !publishing {
                publishing = true;
                for packet in &sent {
                    client.send(packet).expect("publishing");
                }
                client.end();
            }
        }
        assert!(publishing && ended, "chunk size {chunk_size}");
        assert!(got == sent, "chunk size {chunk_size}: {} of {}", got.len(), sent.len());
    }
}

#[test]
fn the_server_accepts_another_client() {
    for chunk_size in [128, 4096, 60_000] {
        let sent = packets(30_000);
        let mut config = other_client::ClientConfig::default();
        config.app = "live".to_owned();
        config.stream_key = "key?token=1".to_owned();
        config.chunk_size = chunk_size;
        let mut client = other_client::ClientSession::new(config);
        let mut server = ServerSession::new(ServerConfig::default());
        let mut to_server = client.start();
        let mut got = Vec::new();
        let mut media = sent.iter();
        for _ in 0..EXCHANGES_MAX + sent.len() {
            server.input(Bytes::from(std::mem::take(&mut to_server))).expect("valid");
            while let Some(event) = server.poll_event() {
                match event {
                    ServerEvent::PublishRequested { id, .. } => server.accept_publish(id).expect("pending"),
                    ServerEvent::Packet(packet) => got.push(packet),
                    _ => {}
                }
            }
            let (answer, _) = client.handle_data(&server.take_output()).expect("our bytes are valid");
            to_server = answer;
            if client.is_publishing()
                && let Some(packet) = media.next()
            {
                let body = [mux(packet).as_slice(), &packet.payload].concat();
                let timestamp = u32::try_from(packet.dts_ns / MS).expect("below the wrap");
                let bytes = match packet.kind() {
                    Kind::Audio => client.send_audio(timestamp, &body),
                    Kind::Video => client.send_video(timestamp, &body),
                };
                to_server.extend(bytes.expect("publishing"));
            }
        }
        assert!(got == sent, "chunk size {chunk_size}: {} of {}", got.len(), sent.len());
    }
}
