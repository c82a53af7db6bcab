//! The slate of a stream: when it begins, what ends it, and when the session ends.

use super::*;
use crate::slate::SLATE_SHARE_BYTES;
use crate::slate_record;
use satcast_media::fuzz::RECORDS;
use satcast_media::mp4::Movie;
use satcast_media::mp4::made::File;
use satcast_store::SlateRecord;

const WINDOW: Duration = Duration::from_secs(30);
const STEP: Duration = Duration::from_millis(50);
/// Frames of [`File`].
const FRAME_MS: i64 = 40;

/// A slate that plays for at most `max_seconds`.
async fn upload(rig: &Rig, file: &File, max_seconds: u32) -> SlateRecord {
    let bytes = file.bytes();
    let record = slate_record(&Movie::read(&bytes.clone().into()).unwrap(), max_seconds);
    let record = rig.store.set_slate(&rig.owner(), rig.stream.id, record, bytes).await.unwrap();
    rig.live.destinations_changed(rig.stream.id).await;
    record
}

/// Configurations, and two seconds of media that a [`File`] matches.
fn programme() -> Vec<Packet> {
    let configuration = |(codec, record)| Packet::configuration(codec, Bytes::from_static(record));
    let mut packets = vec![configuration(RECORDS[0]), configuration(RECORDS[2])];
    for frame in 0..50 {
        packets.push(video(frame * FRAME_MS, frame == 0));
        let audio = video(frame * FRAME_MS, false);
        packets.push(Packet { codec: Codec::Aac, ..audio });
    }
    packets
}

impl Rig {
    fn slate(&self) -> bool {
        self.live.slate_since(self.stream.id).is_some()
    }

    async fn until_slate(&self, plays: bool) {
        self.until("the slate", || (self.slate() == plays).then_some(())).await;
    }

    fn sent(&self) -> u64 {
        self.live.destination(self.stream.id, self.destinations[0]).unwrap().bytes_sent
    }

    /// Lets time pass in steps, each of which the tasks see.
    async fn pass(&self, time: Duration) {
        let end = self.clock.monotonic() + time;
        while self.clock.monotonic() < end {
            self.clock.advance(STEP.min(end - self.clock.monotonic()));
            tokio::time::sleep(Duration::from_millis(3)).await;
        }
    }

    /// A session whose encoder has sent its programme.
    async fn on_air(&self) -> Publisher {
        let mut publisher = self.publish().await.unwrap();
        publisher.push(&mut programme());
        self.until_session(SessionState::Live).await;
        if !self.destinations.is_empty() {
            self.until_state(0, DestState::Live).await;
        }
        publisher
    }

    fn mismatch(&self) -> bool {
        let issues = self.live.health(self.stream.id).map_or_else(Vec::new, |health| health.issues);
        issues.iter().any(|issue| issue.code == IssueCode::SlateMismatch)
    }

    async fn ended_at(&self) -> i64 {
        self.store.last_session(self.stream.id).await.unwrap().unwrap().ended_at.unwrap().0
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_slate_plays_while_the_encoder_is_away_and_its_next_keyframe_ends_it() {
    let rig = Rig::new(&["live"], WINDOW).await;
    upload(&rig, &File::default(), 60).await;
    let publisher = rig.on_air().await;
    let session = rig.live.session(rig.stream.id).unwrap().session_id;
    assert!(!rig.slate() && !rig.mismatch());
    drop(publisher);
    rig.until_slate(true).await;
    assert_eq!(rig.live.slate_since(rig.stream.id), Some(rig.clock.now()), "at once");
    rig.until_session(SessionState::Reconnecting).await;
    let (before, began) = (rig.sent(), rig.clock.monotonic());
    // A round has 50 frames and 94 of audio, of 8 bytes each, in 2,005 ms.
    rig.until_later("five rounds", || (rig.sent() > before + 5 * 144 * 8).then_some(())).await;
    let passed_ms = (rig.clock.monotonic() - began).as_millis() as u64;
    assert!((rig.sent() - before) * 2_005 <= (passed_ms + 60) * 144 * 8, "no faster than it plays");

    let mut publisher = rig.publish().await.unwrap();
    publisher.push(&mut vec![video(0, false)]);
    assert!(rig.slate(), "no keyframe has come");
    publisher.push(&mut vec![config(), video(33, true)]);
    assert!(!rig.slate());
    let live = rig.until_session(SessionState::Live).await;
    assert_eq!(live.session_id, session);
    assert!(rig.live.encoders(rig.stream.id)[0].is_active);
    drop(publisher);
    rig.until_slate(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_session_ends_with_a_slate_that_is_longer_than_the_window() {
    let rig = Rig::new(&[], Duration::from_secs(1)).await;
    upload(&rig, &File::default(), 5).await;
    drop(rig.on_air().await);
    let began = rig.clock.now().0;
    rig.until_slate(true).await;
    rig.pass(Duration::from_millis(4_900)).await;
    assert!(rig.slate());
    rig.pass(Duration::from_secs(3)).await;
    rig.until_idle().await;
    assert_eq!(rig.last_reason().await, Some(EndReason::Unpublished));
    assert_eq!(rig.ended_at().await, began + 5_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_short_slate_ends_before_the_window_and_is_the_end_of_the_session() {
    let rig = Rig::new(&[], Duration::from_secs(8)).await;
    upload(&rig, &File::default(), 3).await;
    drop(rig.on_air().await);
    let began = rig.clock.now().0;
    rig.until_slate(true).await;
    rig.pass(Duration::from_millis(3_500)).await;
    rig.until_slate(false).await;
    rig.pass(Duration::from_secs(6)).await;
    rig.until_idle().await;
    assert_eq!(rig.ended_at().await, began + 3_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_encoder_that_sends_nothing_does_not_begin_the_slate_again() {
    let rig = Rig::new(&[], WINDOW).await;
    upload(&rig, &File::default(), 3).await;
    drop(rig.on_air().await);
    rig.until_slate(true).await;
    rig.pass(Duration::from_millis(3_500)).await;
    rig.until_slate(false).await;
    let mut silent = rig.publish().await.unwrap();
    rig.pass(Duration::from_secs(4)).await;
    assert!(!rig.slate());
    silent.push(&mut programme());
    drop(silent);
    rig.until_slate(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stalled_encoder_gives_way_until_its_next_keyframe() {
    let rig = Rig::new(&["live"], WINDOW).await;
    upload(&rig, &File::default(), 60).await;
    let mut publisher = rig.on_air().await;
    rig.pass(Duration::from_millis(1_900)).await;
    assert!(!rig.slate());
    rig.pass(Duration::from_millis(200)).await;
    rig.until_slate(true).await;
    assert_eq!(rig.live.session(rig.stream.id).unwrap().state, SessionState::Live, "it is connected");
    assert_eq!(rig.live.health(rig.stream.id).unwrap().figures.video, None, "of the encoder nothing arrives");
    publisher.push(&mut vec![video(9_000, false)]);
    assert!(rig.slate());
    publisher.push(&mut vec![video(9_040, true)]);
    assert!(!rig.slate());
    // It fails again, and again the slate comes.
    rig.pass(Duration::from_millis(2_100)).await;
    rig.until_slate(true).await;
    assert!(rig.live.stop(rig.stream.id, EndReason::Stopped).await);
    assert_eq!(rig.last_reason().await, Some(EndReason::Stopped));
    assert_eq!(rig.ended_at().await, rig.clock.now().0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clean_end_and_a_backup_that_sends_begin_no_slate() {
    let rig = Rig::new(&[], WINDOW).await;
    upload(&rig, &File::default(), 60).await;
    let mut publisher = rig.on_air().await;
    publisher.unpublished();
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    rig.pass(Duration::from_secs(3)).await;
    assert!(!rig.slate());

    let publisher = rig.on_air().await;
    let stream = rig.stream.clone();
    let mut backup = rig.live.publish_from(stream, EncoderRole::Backup, Via::default(), None).await.unwrap();
    backup.push(&mut vec![config(), video(0, false)]);
    drop(publisher);
    for frame in 0..30 {
        backup.push(&mut vec![video(frame * 100, false)]);
        rig.pass(Duration::from_millis(100)).await;
        assert!(!rig.slate(), "the backup takes over at its next keyframe");
    }
    rig.pass(Duration::from_millis(2_100)).await;
    rig.until_slate(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slate_that_does_not_match_is_withheld_and_the_health_says_so() {
    let rig = Rig::new(&[], WINDOW).await;
    let silent = File { audio: None, ..File::default() };
    let record = upload(&rig, &silent, 60).await;
    let mut publisher = rig.on_air().await;
    let programme_again = |from_ms: i64| {
        let mut packets = programme();
        packets.iter_mut().for_each(|packet| packet.dts_ns += from_ms * NANOS_PER_MILLI);
        packets.iter_mut().for_each(|packet| packet.pts_ns = packet.dts_ns);
        packets
    };
    for round in 1..=8 {
        rig.pass(Duration::from_secs(1)).await;
        publisher.push(&mut programme_again(round * 2_000));
    }
    rig.until_later("the issue", || rig.mismatch().then_some(())).await;
    assert!(rig.live.slate_differs(rig.stream.id, &record).is_some());
    drop(publisher);
    rig.until_session(SessionState::Reconnecting).await;
    rig.until("the issue", || rig.mismatch().then_some(())).await;
    rig.pass(Duration::from_secs(3)).await;
    assert!(!rig.slate());
    // A better one is shown at once, although the encoder is away.
    upload(&rig, &File::default(), 60).await;
    rig.until_slate(true).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slate_that_is_deleted_or_replaced_ends() {
    let rig = Rig::new(&[], WINDOW).await;
    upload(&rig, &File::default(), 60).await;
    drop(rig.on_air().await);
    rig.until_slate(true).await;
    rig.store.delete_slate(&rig.owner(), rig.stream.id).await.unwrap();
    rig.live.destinations_changed(rig.stream.id).await;
    assert!(!rig.slate());
    rig.pass(Duration::from_secs(1)).await;
    assert!(!rig.slate());
}

#[tokio::test(flavor = "multi_thread")]
async fn slates_that_play_share_the_memory_of_a_node() {
    let rig = Rig::new(&[], WINDOW).await;
    upload(&rig, &File::default(), 60).await;
    let others = rig.live.inner.slates.try_take(rig.account, SLATE_SHARE_BYTES).unwrap();
    drop(rig.on_air().await);
    rig.until_session(SessionState::Reconnecting).await;
    rig.pass(Duration::from_secs(2)).await;
    assert!(!rig.slate());
    drop(others);
    rig.pass(Duration::from_secs(2)).await;
    rig.until_slate(true).await;
    rig.live.stop(rig.stream.id, EndReason::Stopped).await;
    rig.until("the memory", || (rig.live.inner.slates.taken() == 0).then_some(())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_with_a_slate_goes_on_at_the_node_that_its_encoder_comes_to() {
    if satcast_store::testing::server().is_none() {
        return;
    }
    let rig = Rig::new(&[], Duration::from_secs(1)).await;
    let (other, stream) = (nodes::with_other(&rig).await, rig.stream.id);
    let there = Live::new(other.clone(), drivers(), rig.clock.clone(), rig.live.inner.settings());
    upload(&rig, &File::default(), 60).await;
    drop(rig.on_air().await);
    rig.until_slate(true).await;
    let first = rig.live.session(stream).unwrap().session_id;
    // Longer than the reconnect window.
    rig.pass(Duration::from_secs(5)).await;
    let commands = tokio::spawn(rig.live.clone().keep_commands());
    let mut moved = there.publish(rig.stream.clone()).await.unwrap();
    assert!(rig.live.find(stream).is_none() && !rig.slate());
    moved.push(&mut programme());
    let live = || there.session(stream).filter(|seen| seen.state == SessionState::Live);
    assert_eq!(rig.until("the session at the other node", live).await.session_id, first);
    // It has the slate, too.
    drop(moved);
    rig.until("the slate at the other node", || there.slate_since(stream).map(drop)).await;
    commands.abort();
}
