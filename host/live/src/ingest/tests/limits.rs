//! Each deadline and limit.

use super::super::end::End;
use super::*;

/// The last ping's data.
const LAST: &[u8] = &[0x7e, 0x57, 0xa1, 0x0d];

const SHORT: Duration = Duration::from_millis(500);

#[tokio::test]
async fn a_slow_handshake_is_cut_off() {
    let log = Log::start();
    let service = Service::start(0, |limits| limits.setup = SHORT).await;
    let started = Instant::now();
    let mut silent = TcpStream::connect(service.address).await.unwrap();
    let mut dripping = TcpStream::connect(service.address).await.unwrap();
    let drip = async {
        // Steady progress does not move the deadline.
        while dripping.write_all(&[3]).await.is_ok() && started.elapsed() < PATIENCE {
            sleep(Duration::from_millis(10)).await;
        }
    };
    let (closed, ()) = tokio::join!(closed_by_service(&mut silent), drip);
    assert!(closed);
    assert!(started.elapsed() >= SHORT && started.elapsed() < PATIENCE, "{:?}", started.elapsed());
    log.says(End::SetupTimeout(SHORT.as_millis())).await;
}

#[tokio::test]
async fn connecting_without_publishing_is_cut_off() {
    let log = Log::start();
    let service = Service::start(0, |limits| limits.setup = SHORT).await;
    let mut encoder = Encoder::connect(service.address, "live", &service.key).await;
    let mut handshake = encoder.session.output().take();
    // C0 and C1 only: the rest never comes.
    handshake.truncate(1537);
    encoder.socket.write_all(&handshake).await.unwrap();
    assert!(closed_by_service(&mut encoder.socket).await);
    log.says(End::SetupTimeout(SHORT.as_millis())).await;
}

#[tokio::test]
async fn the_deadline_covers_the_decision() {
    let log = Log::start();
    let service = Service::start(0, |limits| {
        limits.setup = SHORT;
        limits.linger = SHORT;
    })
    .await;
    service.behave(Behaviour::Hang);
    let started = Instant::now();
    let (_, answer) = Encoder::publish(service.address, &service.key).await;
    assert!(matches!(answer, Some(ClientEvent::Rejected { code, .. }) if code == "NetStream.Failed"));
    assert!(started.elapsed() < Duration::from_secs(2));
    log.says("the decision took too long").await;
}

#[tokio::test]
async fn bytes_before_a_publish_are_limited() {
    let log = Log::start();
    let service = Service::start(0, |limits| limits.setup_bytes_max = 20_000).await;
    let mut encoder = Encoder::connect(service.address, "live", &service.key).await;
    let handshake = encoder.session.output().take();
    encoder.socket.write_all(&handshake).await.unwrap();
    // User control messages of an unknown type, which the protocol passes over; 18 bytes each.
    let ignored = [2, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0].repeat(200);
    let started = Instant::now();
    while encoder.socket.write_all(&ignored).await.is_ok() && started.elapsed() < PATIENCE {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(started.elapsed() < PATIENCE, "the connection was closed");
    log.says(End::SetupFull(20_000)).await;
}

#[tokio::test]
async fn a_publisher_without_media_gets_a_status_and_is_closed() {
    for read_batch_ms in [0, 20] {
        let service = Service::start(read_batch_ms, |limits| {
            limits.idle = SHORT;
            limits.linger = SHORT;
        })
        .await;
        let mut encoder = Encoder::publishing(&service).await;
        let event = encoder.event().await;
        assert!(
            matches!(&event, Some(ClientEvent::Rejected { code, .. }) if code == "NetConnection.Connect.IdleTimeOut"),
            "{event:?}"
        );
        assert_eq!(encoder.event().await, None);
        service.no_publisher_is_left().await;
    }
}

#[tokio::test]
async fn media_keeps_a_publisher_alive_and_other_bytes_do_not() {
    let service = Service::start(0, |limits| limits.idle = SHORT).await;
    let mut encoder = Encoder::publishing(&service).await;
    let started = Instant::now();
    while started.elapsed() < SHORT * 3 {
        encoder.send(&[audio(i64::try_from(started.elapsed().as_millis()).unwrap(), 50)]).await;
        sleep(SHORT / 5).await;
    }
    assert_eq!(service.publishers(), 1);
    let ping = [2, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0];
    while encoder.socket.write_all(&ping).await.is_ok() && started.elapsed() < PATIENCE {
        sleep(SHORT / 5).await;
    }
    assert!(started.elapsed() < PATIENCE, "pings alone do not keep the stream alive");
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn codec_configurations_alone_do_not_keep_a_stream_alive() {
    let log = Log::start();
    for read_batch_ms in [0, 20] {
        let service = Service::start(read_batch_ms, |limits| limits.idle = SHORT).await;
        let mut encoder = Encoder::publishing(&service).await;
        let started = Instant::now();
        while started.elapsed() < PATIENCE && service.publishers() == 1 {
            encoder.session.send(&start_of_stream()[1]).unwrap();
            let _closed_at_last = encoder.flush().await;
            sleep(SHORT / 10).await;
        }
        assert_eq!(service.publishers(), 0, "wait {read_batch_ms}");
    }
    log.says(End::Idle(SHORT.as_millis())).await;
}

#[tokio::test]
async fn an_encoder_that_reads_no_replies_is_cut_off() {
    let log = Log::start();
    for read_batch_ms in [0, 20] {
        let service = Service::start(read_batch_ms, |limits| {
            limits.write = SHORT;
            limits.reply_bytes_max = usize::MAX;
        })
        .await;
        let mut encoder = Encoder::publishing(&service).await;
        assert!(flood_with_pings(&mut encoder).await, "wait {read_batch_ms}");
        service.no_publisher_is_left().await;
    }
    log.says(End::WriteTimeout(SHORT.as_millis())).await;
}

#[tokio::test]
async fn waiting_replies_are_limited_in_size() {
    let log = Log::start();
    let service = Service::start(0, |limits| limits.reply_bytes_max = 10_000).await;
    let mut encoder = Encoder::publishing(&service).await;
    assert!(flood_with_pings(&mut encoder).await);
    service.no_publisher_is_left().await;
    log.says(End::RepliesFull).await;
}

#[tokio::test]
async fn waiting_replies_are_sent_when_the_encoder_reads_again() {
    for read_batch_ms in [0, 20] {
        let service = Service::start(read_batch_ms, |limits| limits.reply_bytes_max = usize::MAX).await;
        let mut encoder = Encoder::publishing(&service).await;
        // More replies than the socket buffers hold, and a last one with its own data.
        let mut pings = [2, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0].repeat(1_000_000);
        pings.extend([2, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 6]);
        pings.extend(LAST);
        timeout(PATIENCE, encoder.socket.write_all(&pings)).await.expect("all are written").unwrap();
        let mut replies = Vec::new();
        while !replies.ends_with(LAST) {
            let read = timeout(PATIENCE, encoder.socket.read_buf(&mut replies)).await;
            let read = read.unwrap_or_else(|_| panic!("replies stopped after {} bytes", replies.len()));
            assert!(read.unwrap() > 0, "the connection ended after {} bytes", replies.len());
        }
        assert!(replies.len() > 5_000_000, "{}", replies.len());
    }
}

/// Asks for replies and reads none of them; whether the service closed the connection in time.
async fn flood_with_pings(encoder: &mut Encoder) -> bool {
    let pings = [2, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0].repeat(2_000);
    timeout(PATIENCE, async { while encoder.socket.write_all(&pings).await.is_ok() {} }).await.is_ok()
}

#[tokio::test]
async fn connections_are_limited_in_all() {
    let log = Log::start();
    let service = Service::start(0, |limits| limits.connections_max = 2).await;
    caps_at_two(&service).await;
    log.says("refused: too many connections").await;
}

#[tokio::test]
async fn strangers_leave_half_of_the_slots_to_publishers() {
    let log = Log::start();
    let service = Service::start(0, |limits| limits.connections_max = 4).await;
    let _admitted = Encoder::publishing(&service).await;
    let _first = TcpStream::connect(service.address).await.unwrap();
    let _second = TcpStream::connect(service.address).await.unwrap();
    let mut third = TcpStream::connect(service.address).await.unwrap();
    assert!(closed_by_service(&mut third).await);
    log.says("refused: too many connections that do not publish").await;

    let service = Service::start(0, |limits| limits.connections_per_network_max = 4).await;
    let first = TcpStream::connect(service.address).await.unwrap();
    let _second = TcpStream::connect(service.address).await.unwrap();
    let mut third = TcpStream::connect(service.address).await.unwrap();
    assert!(closed_by_service(&mut third).await);
    log.says("refused: too many connections from this address that do not publish").await;
    drop(first);
    let _admitted = timeout(PATIENCE, async {
        loop {
            let (encoder, answer) = Encoder::publish(service.address, &service.key).await;
            if answer.is_some() {
                break encoder;
            }
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("the stranger's slot is released");
    let _more = [Encoder::publishing(&service).await, Encoder::publishing(&service).await];
    assert_eq!(Encoder::publish(service.address, &service.key).await.1, None, "all four slots are in use");
}

#[tokio::test]
async fn connections_are_limited_per_address() {
    let log = Log::start();
    let service = Service::start(0, |limits| limits.connections_per_network_max = 2).await;
    caps_at_two(&service).await;
    let (_first, _second) = (Encoder::publishing(&service).await, Encoder::publishing(&service).await);
    let _neighbour = publishing_from_elsewhere(&service).await;
    log.says("refused: too many connections from this address").await;
}

async fn caps_at_two(service: &Service) {
    let first = Encoder::publishing(service).await;
    let second = Encoder::publishing(service).await;
    let (_, answer) = Encoder::publish(service.address, &service.key).await;
    assert_eq!(answer, None, "the third is closed without an answer");
    drop((first, second));
    service.no_publisher_is_left().await;
    // The slot is released a moment after the publisher.
    timeout(PATIENCE, async {
        while Encoder::publish(service.address, &service.key).await.1.is_none() {
            sleep(Duration::from_millis(2)).await;
        }
    })
    .await
    .expect("slots are released");
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn a_flood_of_warnings_is_limited() {
    let service = Service::start(0, |limits| limits.warnings_max = 3).await;
    for _ in 0..10 {
        let mut socket = TcpStream::connect(service.address).await.unwrap();
        socket.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
        assert!(closed_by_service(&mut socket).await);
    }
    service.clock.advance(keys::WINDOW);
    assert_eq!(service.shared.warnings.admit(service.clock.monotonic()), Some(7));
}

#[tokio::test]
async fn the_accept_loop_pauses_without_file_handles() {
    let service = Service::quick().await;
    tokio::time::pause();
    let log = Log::start();
    let started = Instant::now();
    pause_after(io::ErrorKind::ConnectionAborted.into(), &service.shared, None).await;
    assert_eq!(started.elapsed(), Duration::ZERO, "no pause after an aborted connection");
    let failure = || io::Error::other("no file handles");
    pause_after(failure(), &service.shared, None).await;
    // The runtime's timers count in whole milliseconds.
    assert!(
        started.elapsed().as_millis().abs_diff(u128::from(ACCEPT_PAUSE_MS)) <= 1,
        "{:?}",
        started.elapsed()
    );
    assert!(log.text().contains(&not_accepted(&failure())), "{}", log.text());
}

#[tokio::test]
async fn one_connection_does_not_block_the_others() {
    // The receive buffer must hold more than a round to show the end of a round; the system may not allow that.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 * wire::ROUND_BYTES_MAX as u32).unwrap();
    let holds_a_round = socket.recv_buffer_size().unwrap() as usize >= 4 * wire::ROUND_BYTES_MAX;
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let mut encoder = Encoder::connect(listener.local_addr().unwrap(), "live", "key").await;
    let mut wire = wire::Wire::new(listener.accept().await.unwrap().0, None, usize::MAX);
    encoder.flush().await.unwrap();
    let ignored = [2, 0, 0, 0, 0, 0, 6, 4, 0, 0, 0, 0, 0, 99, 0, 0, 0, 0].repeat(500_000);
    let (reading, mut writing) = encoder.socket.into_split();
    // Ends with the test.
    let sender = tokio::spawn(async move { while writing.write_all(&ignored).await.is_ok() {} });
    let mut total = 0;
    for _ in 0..20 {
        timeout(PATIENCE, wire.ready(Instant::now())).await.expect("bytes in time").unwrap();
        wire.take(|_| ()).unwrap();
        wire.flush().unwrap();
        assert!(wire.bytes_in() <= total + 16 * 1024, "rounds of a stranger are short");
        total = wire.bytes_in();
    }
    wire.admit();
    let (mut largest, mut total) = (0, usize::try_from(total).unwrap());
    while total < 20 * wire::ROUND_BYTES_MAX {
        timeout(PATIENCE, wire.ready(Instant::now())).await.expect("bytes in time").unwrap();
        wire.take(|_| ()).unwrap();
        wire.flush().unwrap();
        let _drained = reading.try_read(&mut [0; 8192]);
        let round = usize::try_from(wire.bytes_in()).unwrap() - total;
        assert!(round < wire::ROUND_BYTES_MAX + 256 * 1024, "{round}");
        largest = largest.max(round);
        total += round;
        // Lets the sender fill the socket's buffer again.
        sleep(Duration::from_millis(20)).await;
    }
    assert!(!holds_a_round || largest >= wire::ROUND_BYTES_MAX, "no round reached the limit: {largest}");
    sender.abort();
}

#[tokio::test]
async fn a_stuck_connection_does_not_hold_up_shutdown() {
    let log = Log::start();
    let mut service = Service::start(0, |limits| {
        limits.linger = PATIENCE * 10;
        limits.shutdown = SHORT;
    })
    .await;
    let _never_closes = Encoder::publishing(&service).await;
    service.shutdown.take().unwrap().send(()).unwrap();
    timeout(PATIENCE, &mut service.running).await.expect("the listener ends").unwrap();
    log.says("1 connections of encoders were cut off at shutdown").await;
}
