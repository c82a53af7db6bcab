//! An RTMP server that accepts every publisher.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use satcast_media::rtmp::server::{ServerConfig, ServerEvent, ServerSession};
use satcast_plugin_api::Codec;
use satcast_plugin_api::testkit::{self, TestDestination};

/// The publishers that connected.
pub(crate) struct Came(Arc<AtomicUsize>);

impl Came {
    /// Number of publishers.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// Starts a server; returns its address and its publishers.
pub(crate) fn server() -> (String, Came) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("rtmp://{}/app", listener.local_addr().unwrap());
    let came = Arc::new(AtomicUsize::new(0));
    let count = came.clone();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let (mut socket, count) = (socket.unwrap(), count.clone());
            std::thread::spawn(move || {
                let (mut session, mut block) = (ServerSession::new(ServerConfig::default()), [0; 65536]);
                while let Ok(read @ 1..) = socket.read(&mut block) {
                    session.input(Bytes::copy_from_slice(&block[..read])).unwrap();
                    while let Some(event) = session.poll_event() {
                        if let ServerEvent::PublishRequested { id, .. } = event {
                            count.fetch_add(1, Ordering::SeqCst);
                            session.accept_publish(id).unwrap();
                        }
                    }
                    // A client that has gone is seen at the next read.
                    let _ = socket.write_all(&session.take_output());
                }
            });
        }
    });
    (url, Came(came))
}

/// A second of H.264.
pub(crate) fn push(dest: &TestDestination) {
    dest.push(testkit::config(Codec::H264, b"record"));
    for index in 0..20 {
        let media = Bytes::from_static(&[7; 900]);
        dest.push(testkit::media(Codec::H264, index, index as i64 * 40, index == 0, media));
    }
}
