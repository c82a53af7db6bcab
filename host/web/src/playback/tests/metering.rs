//! What is counted: every byte of a whole play, little more than was read of one that is broken off.

use socket2::SockRef;

use super::*;
use satcast_money::billing::testing::chopped;
use satcast_net::http::Sent;
use satcast_store::Bandwidth;

/// How much more than was read may be counted of an answer that was broken off.
const EXCESS_BYTES_MAX: u64 = 512 * 1024;

#[tokio::test]
async fn whole_plays_are_counted_to_the_byte() {
    let rig = Rig::new().await;
    rig.file("file.m4s", &noise(700_020));
    let mut targets = vec![rig.index()];
    for name in ["media.m3u8", "i1-0.mp4", "1.m4s", "2.m4s", "file.m4s"] {
        targets.push(rig.asset(name).await);
    }
    let mut received = rig.used().await;
    assert_eq!(
        received,
        5 * rig.get(&rig.index()).await.body.len() as u64,
        "the bytes for fetching the playlists"
    );
    received = rig.used().await;
    for round in 0..3 {
        for target in &targets {
            let headers: &[(&str, &str)] = match round {
                0 => &[],
                1 => &[("Accept-Encoding", "gzip")],
                _ => &[("Range", "bytes=100-599")],
            };
            received += rig.ask("GET", target, headers).await.body.len() as u64;
        }
        assert_eq!(rig.used().await, received, "round {round}");
        rig.playback.flush_meter().await;
        assert_eq!(rig.used().await, received, "stored, and not counted twice");
    }
    let hour = START.hour_start();
    assert_eq!(rig.app.store.bandwidth_of_hour(rig.account, hour).await.unwrap(), received);
}

#[tokio::test]
async fn errors_and_previews_count_nothing() {
    let rig = Rig::new().await;
    rig.get(&rig.preview()).await.ok();
    rig.get(&rig.preview_asset("1.m4s")).await.ok();
    let elsewhere = format!("/hls/{}/t/nonsense/1.m4s", rig.path);
    rig.get(&elsewhere).await.error(401, "invalid_key");
    rig.get("/api/public/config").await.ok();
    assert_eq!(rig.used().await, 0);
}

/// Reads about `wanted` bytes of an asset and disconnects; returns the bytes read and the bytes counted.
async fn broken_off(rig: &Rig, name: &str, wanted: usize) -> (u64, u64) {
    let target = rig.asset(name).await;
    let before = rig.used().await;
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    SockRef::from(&socket).set_recv_buffer_size(64 * 1024).unwrap();
    let mut socket = socket.connect(rig.address).await.unwrap();
    socket.write_all(format!("GET {target} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).await.unwrap();
    let mut bytes = vec![0; wanted];
    tokio::time::timeout(WAIT_MAX, socket.read_exact(&mut bytes)).await.unwrap().unwrap();
    // The server writes on as far as the buffers take it.
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(socket);
    let until_dropped = async {
        while rig.playback.meter.bodies() > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, until_dropped).await.expect("the connection ends");
    (wanted as u64, rig.used().await - before)
}

#[tokio::test]
async fn an_aborted_response_counts_little_more_than_was_read() {
    let rig = Rig::new().await;
    let large = noise(16 * 1024 * 1024);
    rig.media("large.m4s", large.clone());
    rig.file("file.m4s", &large);
    for name in ["large.m4s", "file.m4s"] {
        for wanted in [1_000, 200_000, 3_000_000] {
            let (read, counted) = broken_off(&rig, name, wanted).await;
            // The head of the answer was read as well.
            assert!(counted + 1_000 >= read, "{name}: {counted} counted of {read}");
            assert!(counted <= read + EXCESS_BYTES_MAX, "{name}: {counted} counted of {read}");
        }
    }
}

#[tokio::test]
async fn bytes_count_in_the_hour_in_which_they_were_sent() {
    let rig = Rig::new().await;
    let hour = START.hour_start();
    let meter = &rig.playback.meter;
    let mut count = meter.count(rig.account, rig.destination, None);
    count.give(1_000);
    count.settle();
    rig.app.clock.advance(Duration::from_secs(3_600));
    count.give(10);
    count.finish();
    drop(count);
    assert_eq!(rig.used().await, 10);
    rig.playback.flush_meter().await;
    let store = &rig.app.store;
    assert_eq!(store.bandwidth_of_hour(rig.account, hour).await.unwrap(), 1_000);
    let next = UnixMillis(hour.0 + 3_600_000);
    assert_eq!(store.bandwidth_of_hour(rig.account, next).await.unwrap(), 10);
    assert_eq!(meter.len(), 0, "counters that nobody needs are let go");
}

#[tokio::test]
async fn unwritten_bytes_are_not_counted() {
    let rig = Rig::new().await;
    let sent = Sent::default();
    sent.add(5_000);
    let mut count = rig.playback.meter.count(rig.account, rig.destination, Some(sent.clone()));
    count.give(65_536);
    sent.add(30_000);
    count.settle();
    assert_eq!(rig.used().await, 30_000);
    sent.add(36_000);
    count.settle();
    assert_eq!(rig.used().await, 65_536, "heads of answers are not its bytes");
    count.give(65_536);
    sent.add(100);
    drop(count);
    assert_eq!(rig.used().await, 66_100);
}

#[tokio::test]
async fn bytes_of_a_failed_flush_are_kept() {
    let rig = Rig::new().await;
    let index = rig.get(&rig.index()).await.body.len() as u64;
    let mut intruder = rig.intruder().await;
    intruder.hide_bandwidth(true).await;
    rig.playback.flush_meter().await;
    assert!(rig.playback.this_hour(rig.account).await.is_err());
    rig.get(&rig.index()).await.ok();
    intruder.hide_bandwidth(false).await;
    assert_eq!(rig.used().await, 2 * index);
    rig.playback.flush_meter().await;
    rig.playback.flush_meter().await;
    assert_eq!(rig.used().await, 2 * index);
    let stored = rig.app.store.bandwidth_of_hour(rig.account, START.hour_start()).await.unwrap();
    assert_eq!(stored, 2 * index);
}

#[tokio::test]
async fn the_meter_is_flushed_every_interval_and_at_shutdown() {
    let rig = Rig::new().await;
    let hour = START.hour_start();
    let add = [Bandwidth { account: rig.account, destination: rig.destination, hour_start: hour, bytes: 7 }];
    rig.app.store.add_bandwidth(&add).await.unwrap();
    let index = rig.get(&rig.index()).await.body.len() as u64;
    let (stop, stopped) = oneshot::channel::<()>();
    let keeper = tokio::spawn(rig.playback.clone().keep_meter(async {
        let _ = stopped.await;
    }));
    let stored = || async { rig.app.store.bandwidth_of_hour(rig.account, hour).await.unwrap() };
    let first = async {
        while stored().await != 7 + index {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(WAIT_MAX, first).await.expect("stored by itself");
    rig.get(&rig.index()).await.ok();
    stop.send(()).unwrap();
    keeper.await.unwrap();
    assert_eq!(stored().await, 7 + 2 * index);
    assert_eq!(rig.used().await, 7 + 2 * index);
}

#[tokio::test]
async fn a_hanging_flush_does_not_block_readers() {
    let rig = Rig::new().await;
    let segment = rig.asset("1.m4s").await;
    rig.get(&segment).await.ok();
    let before = rig.used().await;
    let held = rig.playback.meter.hold().await;
    assert_eq!(rig.used().await, before);
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_flushes_and_billing_passes_count_no_byte_twice() {
    let rig = Rig::new().await;
    let playback = rig.playback.clone();
    rig.app.billing.set_before_pass(Arc::new(move || {
        let playback = playback.clone();
        Box::pin(async move { playback.flush_meter().await })
    }));
    let (mut given, mut cut) = (7, 0);
    for step in 0..60_u64 {
        let mut count = rig.playback.meter.count(rig.account, rig.destination, None);
        count.give(1_000 + step);
        count.finish();
        given += 1_000 + step;
        let polls = 1 + step / 2 % 15;
        let whole = if step % 2 == 0 {
            chopped(rig.app.billing.bill_playback(), polls).await
        } else {
            chopped(rig.playback.flush_meter(), polls).await
        };
        cut += u32::from(whole.is_none());
    }
    // However fast the database is, this one is cut off.
    let mut intruder = Intruder::open(&rig.folder.path().join("t.db")).await;
    intruder.keep_from_writing().await;
    let mut count = rig.playback.meter.count(rig.account, rig.destination, None);
    count.give(7);
    count.finish();
    cut += u32::from(rig.playback.flush_meter().now_or_never().is_none());
    intruder.let_write().await;
    assert!(cut > 0, "nothing was cut off");
    rig.playback.flush_meter().await;
    let stored = rig.app.store.bandwidth_of_hour(rig.account, START.hour_start()).await.unwrap();
    assert_eq!((stored, rig.playback.meter.waiting()), (given, 0));
}
