//! Encoders with a valid key: their packets arrive, and every kind of disconnect is detected.

use super::*;

#[tokio::test]
async fn packets_arrive_as_sent_with_and_without_a_wait_between_reads() {
    for read_batch_ms in [0, 40] {
        let mut service = Service::start(read_batch_ms, |_| ()).await;
        let mut encoder = Encoder::publishing(&service).await;
        let sent = start_of_stream();
        encoder.send(&sent).await;
        assert_eq!(service.packets(sent.len()).await.0, sent, "wait {read_batch_ms}");
        assert_eq!(service.publishers(), 1);
    }
}

#[tokio::test]
async fn a_fast_stream_loses_nothing() {
    for read_batch_ms in [0, 20] {
        let mut service = Service::start(read_batch_ms, |_| ()).await;
        let mut encoder = Encoder::publishing(&service).await;
        let sent: Vec<Packet> = (0..400).map(|n| audio(n * 10, 20_000 + n as usize)).collect();
        let writer = async {
            for packets in sent.chunks(7) {
                encoder.send(packets).await;
            }
        };
        let ((), (arrived, _)) = tokio::join!(writer, service.packets(400));
        assert!(arrived == sent, "8 MB arrive whole with wait {read_batch_ms}");
    }
}

#[tokio::test]
async fn packets_between_two_reads_arrive_in_one_push() {
    // Long beside the 30 ms of the ten, so that a busy machine does not cut them in two.
    let mut service = Service::start(1_000, |_| ()).await;
    let mut encoder = Encoder::publishing(&service).await;
    encoder.send(&[audio(0, 100)]).await;
    service.packets(1).await;
    for millis in 1..=10 {
        encoder.send(&[audio(millis, 100)]).await;
        sleep(Duration::from_millis(3)).await;
    }
    let (packets, pushes) = service.packets(10).await;
    assert_eq!((packets.len(), pushes), (10, 1));
}

#[tokio::test]
async fn a_new_encoder_is_read_at_once_and_then_with_the_wait() {
    const WAIT_MS: u64 = 1_000;
    /// Beyond the patience of the test.
    const NEVER_MS: u64 = 600_000;
    let prompt = Duration::from_secs(60);
    let mut service = Service::start(NEVER_MS, |limits| limits.prompt = prompt).await;
    let mut encoder = Encoder::publishing(&service).await;
    for millis in 0..5 {
        encoder.send(&[audio(millis, 100)]).await;
        assert_eq!(service.packets(1).await, (vec![audio(millis, 100)], 1));
    }

    let prompt = Duration::from_millis(20);
    let mut service = Service::start(WAIT_MS, |limits| limits.prompt = prompt).await;
    let mut encoder = Encoder::publishing(&service).await;
    sleep(prompt).await;
    // The read of the first one ends the prompt time. The second one is read at a time of the grid.
    for millis in 0..2 {
        encoder.send(&[audio(millis, 100)]).await;
        service.packets(1).await;
    }
    for millis in 2..12 {
        encoder.send(&[audio(millis, 100)]).await;
        sleep(Duration::from_millis(3)).await;
    }
    assert_eq!(service.packets(10).await.1, 1, "one push");
}

#[tokio::test]
async fn an_encoder_is_read_at_once_until_its_first_gop_is_whole() {
    // The wait is beyond the patience of the test. The first frame comes within the prompt time, the others behind it.
    let prompt = Duration::from_secs(2);
    let change = |limits: &mut Limits| (limits.prompt, limits.first_gop) = (prompt, Duration::from_secs(600));
    let mut service = Service::start(600_000, change).await;
    let mut encoder = Encoder::publishing(&service).await;
    let start = start_of_stream();
    encoder.send(&start).await;
    service.packets(start.len()).await;
    sleep(prompt).await;
    for millis in 24..34 {
        encoder.send(&[audio(millis, 100)]).await;
        assert_eq!(service.packets(1).await, (vec![audio(millis, 100)], 1));
    }
    // The second keyframe ends that, with the read that brings it.
    let second = start_of_stream().swap_remove(2);
    let at = 40 * NANOS_PER_MILLI;
    encoder.send(&[Packet { dts_ns: at, pts_ns: at, ..second }]).await;
    service.packets(1).await;
    encoder.send(&[audio(41, 100)]).await;
    sleep(Duration::from_millis(100)).await;
    assert!(service.pushed.try_recv().is_err(), "the next read is far away");
}

#[tokio::test]
async fn without_a_read_wait_packets_arrive_at_once() {
    let mut service = Service::quick().await;
    let mut encoder = Encoder::publishing(&service).await;
    for millis in 0..5 {
        encoder.send(&[audio(millis, 100)]).await;
        assert_eq!(service.packets(1).await, (vec![audio(millis, 100)], 1));
    }
}

#[tokio::test]
async fn the_setup_has_no_read_wait() {
    let service = Service::start(5_000, |_| ()).await;
    let started = Instant::now();
    let _encoder = Encoder::publishing(&service).await;
    assert!(started.elapsed() < Duration::from_secs(4), "{:?}", started.elapsed());
}

#[tokio::test]
async fn the_key_is_accepted_in_every_place() {
    let service = Service::quick().await;
    let key = service.key.clone();
    for (app, name) in [
        ("live".to_owned(), key.clone()),
        ("other".to_owned(), key.clone()),
        ("live".to_owned(), format!("{key}?token=1")),
        (format!("live/{key}"), String::new()),
        ("live".to_owned(), format!("obs?key={key}")),
        ("live".to_owned(), format!("?key={key}")),
    ] {
        let mut encoder = Encoder::connect(service.address, &app, &name).await;
        assert_eq!(encoder.event().await, Some(ClientEvent::Publishing), "{app} {name}");
    }
}

#[tokio::test]
async fn an_encoder_that_waits_for_no_answer_loses_nothing() {
    let mut service = Service::quick().await;
    let mut model = Encoder::publishing(&service).await;
    let sent = start_of_stream();
    model.send(&sent).await;
    service.packets(sent.len()).await;
    // The same bytes at once: media comes before its publish is decided, and the end with it.
    let mut hasty = TcpStream::connect(service.address).await.unwrap();
    hasty.write_all(&model.written).await.unwrap();
    hasty.shutdown().await.unwrap();
    assert_eq!(service.packets(sent.len()).await.0, sent);
    drop(model);
    service.no_publisher_is_left().await;
}

#[tokio::test]
async fn bytes_after_a_publish_request_wait_in_the_kernel_for_the_decision() {
    let mut service = Service::quick().await;
    let mut model = Encoder::publishing(&service).await;
    // More messages, and with the next more bytes, than the protocol holds before a decision.
    let mut sent: Vec<Packet> = (0..1_000).map(|n| audio(n, 1_000)).collect();
    sent.push(audio(1_000, 1_500_000));
    model.send(&sent).await;
    service.packets(sent.len()).await;
    let mut hasty = TcpStream::connect(service.address).await.unwrap();
    hasty.write_all(&model.written).await.unwrap();
    assert!(service.packets(sent.len()).await.0 == sent, "all arrive");
}

#[tokio::test]
async fn every_kind_of_disconnect_drops_the_publisher() {
    for read_batch_ms in [0, 40] {
        let service = Service::start(read_batch_ms, |_| ()).await;
        let mut polite = Encoder::publishing(&service).await;
        polite.session.end();
        polite.flush().await.unwrap();
        assert!(closed_by_service(&mut polite.socket).await);
        service.no_publisher_is_left().await;

        drop(Encoder::publishing(&service).await);
        service.no_publisher_is_left().await;

        let abrupt = Encoder::publishing(&service).await;
        abrupt.socket.set_zero_linger().unwrap();
        drop(abrupt);
        service.no_publisher_is_left().await;
    }
}

#[tokio::test]
async fn the_encoder_gets_the_reason_of_a_closed_session() {
    for read_batch_ms in [0, 40] {
        let service =
            Service::start(read_batch_ms, |limits| limits.linger = Duration::from_millis(100)).await;
        let mut encoder = Encoder::publishing(&service).await;
        encoder.send(&start_of_stream()).await;
        let status = Status::new("NetStream.Publish.BadName", "the stream was stopped by its owner");
        service.live.close.send_replace(Some(status));
        let description = "the stream was stopped by its owner".to_owned();
        let code = "NetStream.Publish.BadName".to_owned();
        assert_eq!(encoder.event().await, Some(ClientEvent::Rejected { code, description }));
        assert!(closed_by_service(&mut encoder.socket).await);
        service.no_publisher_is_left().await;
    }
}

#[tokio::test]
async fn shutdown_sends_a_status_and_ends_all_connections() {
    for read_batch_ms in [0, 40] {
        let mut service = Service::start(read_batch_ms, |_| ()).await;
        let mut publishing = Encoder::publishing(&service).await;
        let mut stranger = TcpStream::connect(service.address).await.unwrap();
        service.shutdown.take().unwrap().send(()).unwrap();
        let event = publishing.event().await;
        assert!(
            matches!(&event, Some(ClientEvent::Rejected { code, .. }) if code == "NetConnection.Connect.AppShutdown"),
            "{event:?}"
        );
        assert_eq!(publishing.event().await, None);
        assert!(closed_by_service(&mut stranger).await);
        drop(publishing);
        timeout(PATIENCE, &mut service.running).await.expect("the listener ends").unwrap();
        assert_eq!(service.publishers(), 0);
        assert!(TcpStream::connect(service.address).await.is_err(), "the port is closed");
    }
}

#[tokio::test]
async fn a_taken_port_is_a_clear_error() {
    let service = Service::quick().await;
    let settings = Settings::new(service.address, 0);
    let bound =
        Listener::bind(settings, service.store.clone(), service.live.clone(), service.clock.clone()).await;
    let error = bound.unwrap_err();
    assert_eq!((error.setting, error.address), ("rtmp_listen", service.address));
    assert_eq!(error.source.kind(), io::ErrorKind::AddrInUse);
}

#[test]
fn port_error_texts() {
    let source = io::Error::from(io::ErrorKind::AddrInUse);
    let error = BindError { setting: "rtmp_listen", address: "127.0.0.1:1935".parse().unwrap(), source };
    assert_eq!(
        error.to_string(),
        "cannot listen for encoders on 127.0.0.1:1935 (address in use); stop the other server or set [ingest] rtmp_listen"
    );
    assert_eq!(
        not_accepted(&io::Error::other("no file handles")),
        "cannot accept connections: no file handles; raise the limit of open files"
    );
}
