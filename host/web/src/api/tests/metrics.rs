//! What operators measure.

use super::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn metrics_are_for_operators_and_show_live_destinations() {
    let mut rig = Rig::new().await;
    let hosted = rig.hosted().await;
    let (_publisher, _opening) = rig.go_live(&hosted).await;
    rig.get("/metrics").await.error(403, "not_operator");
    let owner = std::mem::take(&mut rig.key);
    rig.get("/metrics").await.error(401, "key_required");
    rig.key = rig.operator().await;
    let answer = rig.get("/metrics").await;
    assert_eq!((answer.status.as_u16(), answer.header("cache-control")), (200, "no-store"));
    assert!(answer.header("content-type").starts_with("text/plain; version=0.0.4"));
    let labels =
        format!("stream=\"{}\",destination=\"{}\",type=\"self-hosted\"", hosted.stream, hosted.destination);
    for line in [
        "satcast_sessions{state=\"live\"} 1".to_owned(),
        "satcast_sessions{state=\"reconnecting\"} 0".to_owned(),
        format!("satcast_build_info{{version=\"{}\"}} 1", env!("CARGO_PKG_VERSION")),
        format!("satcast_destination_dropped_packets_total{{{labels}}} 0"),
        "# TYPE satcast_destination_driver_total counter".to_owned(),
        "satcast_driver_loaded{driver=\"bad\"} 0".to_owned(),
        "satcast_driver_change_refused{driver=\"bad\"} 0".to_owned(),
        "satcast_driver_state{driver=\"bad\",state=\"refused\"} 1".to_owned(),
        "satcast_driver_crashes_total{driver=\"bad\"} 0".to_owned(),
        "# TYPE satcast_driver_crashes_total counter".to_owned(),
    ] {
        assert!(answer.text.lines().any(|known| known == line), "{line} is not in {}", answer.text);
    }
    let since = rig.app.clock.now().0 / 1_000;
    let since = format!("satcast_destination_state_since_seconds{{{labels}}} {since}");
    assert!(answer.text.lines().any(|known| known == since), "{since} is not in {}", answer.text);
    assert!(
        answer.text.contains(&format!("satcast_destination_state{{{labels},state=\"")),
        "{}",
        answer.text
    );
    assert!(!answer.text.contains(&owner) && !answer.text.contains("live_"), "{}", answer.text);
}
