//! Clips: charged once when they are ready, never when they fail, and hidden with their file.

use super::recoveries::running_report;
use super::*;
use crate::ledger::check::check;
use crate::{ArchiveReport, ArchiveState, ClipBegun, ClipCaps, ClipChange, ClipState, NewClip, Recorded};

const PRICE: Msat = Msat(50_000);
const CAPS_OF_CLIPS: ClipCaps = ClipCaps { clips: 4, making: 2 };

struct Clips {
    rig: Rig,
    account: AccountId,
    new: NewClip,
}

impl Clips {
    async fn new(credit: i64) -> Self {
        let rig = Rig::new().await;
        let account = rig.account("me", credit).await.unwrap();
        let (stream, destinations) = rig.stream(account, 1).await.unwrap();
        let session = new_session_id();
        let new =
            NewSession { id: session.clone(), stream_id: stream, started_at: NOW, terms: Terms::default() };
        rig.store.begin_session(new).await.unwrap();
        let new = NewClip {
            stream,
            session,
            destination: destinations[0],
            driver: "archive".into(),
            file_name: String::new(),
            title: "The goal".into(),
            price: PRICE,
            caps: CAPS_OF_CLIPS,
        };
        Self { rig, account, new }
    }

    async fn begin(&self, file_name: &str) -> ClipBegun {
        let new = NewClip { file_name: file_name.into(), ..self.new.clone() };
        self.rig.store.begin_clip(&by(self.account), &new).await.unwrap()
    }

    async fn begun(&self, file_name: &str) -> i64 {
        let begun = self.begin(file_name).await;
        let ClipBegun::Begun(id) = begun else { panic!("{begun:?}") };
        id
    }

    /// The driver's report of a file, `after` milliseconds from the beginning.
    fn report(&self, file_name: &str, state: ArchiveState, after: i64) -> ArchiveReport {
        let is = |other| state == other;
        ArchiveReport {
            file_name: file_name.into(),
            state,
            url: is(ArchiveState::Ready).then(|| format!("s3://b/{file_name}")),
            error: is(ArchiveState::Failed).then(|| "the store is down".into()),
            error_class: is(ArchiveState::Failed).then(|| "network".into()),
            changed_at: UnixMillis(NOW.0 + after),
            audio_only: file_name.contains("song"),
            ..running_report(self.new.destination, self.new.session.clone())
        }
    }

    /// A report of a driver that does not serve the type of the destination.
    async fn tell(&self, file_name: &str, state: ArchiveState, after: i64) -> Recorded {
        let report = self.report(file_name, state, after);
        self.rig.store.record_archive(report, &|_| false, NOW).await.unwrap()
    }

    async fn state(&self, id: i64) -> ClipState {
        self.rig.store.clip(self.account, id).await.unwrap().unwrap().state
    }

    async fn balance(&self) -> i64 {
        self.rig.store.balance(self.account).await.unwrap().0
    }

    async fn assert_consistent(&self) {
        let report = check(&self.rig.store.0.readers).await.unwrap();
        assert_eq!(report.faults, []);
    }
}

#[tokio::test]
async fn a_clip_is_charged_once_when_the_store_has_it() {
    let clips = Clips::new(3 * PRICE.0).await;
    let id = clips.begun("clips/a.mp4").await;
    assert_eq!(clips.balance().await, 3 * PRICE.0, "nothing yet");
    let Recorded::Taken(file) = clips.tell("clips/a.mp4", ArchiveState::Uploading, 1).await else { panic!() };
    assert_eq!(clips.state(id).await, ClipState::Making);
    for after in [2, 3, 3] {
        clips.tell("clips/a.mp4", ArchiveState::Ready, after).await;
        assert_eq!((clips.state(id).await, clips.balance().await), (ClipState::Ready, 2 * PRICE.0));
    }
    let clip = clips.rig.store.clip(clips.account, id).await.unwrap().unwrap();
    assert_eq!(
        (clip.cost, clip.archive, clip.url.as_deref()),
        (PRICE, Some(file), Some("s3://b/clips/a.mp4"))
    );
    // It is no recording, and what happens to its file later costs nothing.
    assert!(clips.rig.store.archives_of(clips.account, ALL).await.unwrap().is_empty());
    assert!(clips.rig.store.archive(clips.account, file).await.unwrap().is_none());
    clips.tell("clips/a.mp4", ArchiveState::Failed, 9).await;
    assert_eq!((clips.state(id).await, clips.balance().await), (ClipState::Ready, 2 * PRICE.0));
    clips.assert_consistent().await;
}

#[tokio::test]
async fn a_clip_says_that_it_has_no_video() {
    let clips = Clips::new(3 * PRICE.0).await;
    for (file_name, audio_only) in [("clips/song.mp4", true), ("clips/film.mp4", false)] {
        let id = clips.begun(file_name).await;
        let shown = async || clips.rig.store.clip(clips.account, id).await.unwrap().unwrap().audio_only;
        assert!(!shown().await, "its driver has not reported it");
        for state in [ArchiveState::Uploading, ArchiveState::Ready] {
            let Recorded::Taken(file) = clips.tell(file_name, state, 1).await else { panic!() };
            let file = clips.rig.store.clip_archive(file).await.unwrap().unwrap();
            assert_eq!((file.report.audio_only, shown().await), (audio_only, audio_only), "{file_name}");
        }
    }
}

#[tokio::test]
async fn a_failed_clip_costs_nothing() {
    let clips = Clips::new(3 * PRICE.0).await;
    let (cut, sent, lost) =
        (clips.begun("clips/a.mp4").await, clips.begun("clips/b.mp4").await, "clips/c.mp4");
    clips.rig.store.fail_clip(cut, "it broke", NOW).await.unwrap();
    clips.rig.store.fail_clip(cut, "again", NOW).await.unwrap();
    clips.tell("clips/b.mp4", ArchiveState::Failed, 1).await;
    let lost_id = clips.begun(lost).await;
    let Recorded::Taken(file) = clips.tell(lost, ArchiveState::Uploading, 1).await else { panic!() };
    clips.rig.store.lose_archive(file, "gone", NOW).await.unwrap();
    for (id, why) in [(cut, "it broke"), (sent, "the store is down"), (lost_id, "gone")] {
        let clip = clips.rig.store.clip(clips.account, id).await.unwrap().unwrap();
        assert_eq!((clip.state, clip.error.as_deref(), clip.cost), (ClipState::Failed, Some(why), Msat(0)));
    }
    // A late success changes nothing, and the file may go.
    clips.tell(lost, ArchiveState::Ready, 9).await;
    assert_eq!((clips.state(lost_id).await, clips.balance().await), (ClipState::Failed, 3 * PRICE.0));
    let discarded = clips.rig.store.discarded_clips("archive").await.unwrap();
    assert!(discarded.contains(&file) && discarded.len() == 2, "{discarded:?}");
    clips.rig.store.forget_clip_file(file, NOW).await.unwrap();
    assert_eq!(clips.rig.store.discarded_clips("archive").await.unwrap().len(), 1);
    clips.assert_consistent().await;
}

#[tokio::test]
async fn caps_and_the_balance_hold_for_all_clips_in_the_making() {
    let clips = Clips::new(3 * PRICE.0 - 1).await;
    let first = clips.begun("clips/a.mp4").await;
    clips.begun("clips/b.mp4").await;
    assert_eq!(clips.begin("clips/c.mp4").await, ClipBegun::Busy);
    clips.rig.store.fail_clip(first, "it broke", NOW).await.unwrap();
    clips.begun("clips/c.mp4").await;
    clips.tell("clips/b.mp4", ArchiveState::Ready, 1).await;
    // One is paid, one is promised.
    assert_eq!(clips.begin("clips/d.mp4").await, ClipBegun::Insufficient(Msat(2 * PRICE.0 - 1)));
    let free = NewClip { price: Msat(0), file_name: "clips/e.mp4".into(), ..clips.new.clone() };
    let actor = by(clips.account);
    assert!(matches!(clips.rig.store.begin_clip(&actor, &free).await, Ok(ClipBegun::Begun(_))));
    clips.rig.store.fail_clip(4, "it broke", NOW).await.unwrap();
    let full = clips.rig.store.begin_clip(&actor, &NewClip { file_name: "f".into(), ..free.clone() }).await;
    assert!(matches!(full, Err(StoreError::CapReached { what: "clips", limit: 4 })), "{full:?}");
    clips.rig.store.delete_clip(&actor, 4).await.unwrap();
    let again = NewClip { file_name: "f".into(), ..free.clone() };
    assert!(matches!(clips.rig.store.begin_clip(&actor, &again).await, Ok(ClipBegun::Begun(_))));
    // Only of a stream, a session and a destination that belong together, and to the account.
    let other = clips.rig.account("other", 0).await.unwrap();
    let refused = clips.rig.store.begin_clip(&by(other), &again).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))));
    clips.assert_consistent().await;
}

#[tokio::test]
async fn a_balance_that_was_used_meanwhile_is_never_below_zero() {
    let clips = Clips::new(PRICE.0).await;
    let id = clips.begun("clips/a.mp4").await;
    let spent = crate::SingleCharge {
        account: clips.account,
        amount: Msat(PRICE.0 - 7),
        kind: "recovery",
        idem: "recovery:1:1".into(),
        destination: None,
        now: NOW,
    };
    clips.rig.store.charge_once(&spent).await.unwrap();
    clips.tell("clips/a.mp4", ArchiveState::Ready, 1).await;
    let clip = clips.rig.store.clip(clips.account, id).await.unwrap().unwrap();
    assert_eq!((clip.state, clip.cost, clips.balance().await), (ClipState::Ready, Msat(7), 0));
}

#[tokio::test]
async fn clips_are_edited_deleted_and_hidden_with_their_file() {
    let clips = Clips::new(0).await;
    let free = NewClip { price: Msat(0), file_name: "clips/a.mp4".into(), ..clips.new.clone() };
    let actor = by(clips.account);
    let begun = clips.rig.store.begin_clip(&actor, &free).await.unwrap();
    let ClipBegun::Begun(id) = begun else { panic!("{begun:?}") };
    let change = ClipChange { title: Some("Save".into()), public: Some(true) };
    clips.rig.store.edit_clip(&actor, id, &change).await.unwrap();
    let clip = clips.rig.store.clip(clips.account, id).await.unwrap().unwrap();
    assert_eq!((clip.title.as_str(), clip.public, clip.cost), ("Save", true, Msat(0)));
    let stranger = by(clips.rig.account("other", 0).await.unwrap());
    let refused = clips.rig.store.edit_clip(&stranger, id, &change).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))));
    assert!(clips.rig.store.clip(stranger.account, id).await.unwrap().is_none());
    assert!(clips.rig.store.unreported_clips("archive").await.unwrap().iter().any(|clip| clip.id == id));
    let Recorded::Taken(file) = clips.tell("clips/a.mp4", ArchiveState::Ready, 1).await else { panic!() };
    assert!(clips.rig.store.unreported_clips("archive").await.unwrap().is_empty());
    assert!(!clips.rig.store.fail_interrupted_clip(id, "x", NOW).await.unwrap());
    let stream = async || clips.rig.store.clip(clips.account, id).await.unwrap().unwrap().stream;
    assert_eq!(stream().await, Some(free.stream));
    clips.rig.store.delete_stream(&actor, free.stream).await.unwrap();
    assert_eq!(stream().await, None, "its stream is gone, and it stays");
    clips.rig.store.delete_archive(&actor, file, true).await.unwrap();
    assert!(clips.rig.store.clip(clips.account, id).await.unwrap().is_none());
    let refused = clips.rig.store.delete_clip(&actor, id).await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))));
}

#[tokio::test]
async fn the_check_of_the_ledger_finds_a_changed_clip() {
    let clips = Clips::new(PRICE.0).await;
    clips.begun("clips/a.mp4").await;
    clips.tell("clips/a.mp4", ArchiveState::Ready, 1).await;
    clips.assert_consistent().await;
    script(&clips.rig.store.0.writer, "UPDATE clips SET charged_msat = 1").await.unwrap();
    assert_eq!(check(&clips.rig.store.0.readers).await.unwrap().faults.len(), 1);
    script(&clips.rig.store.0.writer, "DELETE FROM clips").await.unwrap();
    assert_eq!(check(&clips.rig.store.0.readers).await.unwrap().faults.len(), 1);
}
