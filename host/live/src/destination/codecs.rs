//! When a destination that gave up because of a codec is tried again.

use std::time::Duration;

use tokio::sync::watch;

use crate::hub::Codecs;
use satcast_core::clock::Clock;

/// Wait after a change of codec before a destination that gave up is tried again: both tracks may change, and an encoder that
/// changes them without end must not have connections opened at that rate.
const CODEC_CHANGE_WAIT: Duration = Duration::from_secs(2);

/// Waits until the encoder sends another codec than a driver was `given` before it gave up, or than when the try began where it was
/// given none: what cannot take one may take another.
pub(super) async fn another_codec(clock: &Clock, codecs: &mut watch::Receiver<Codecs>, given: Codecs) {
    let changed = match given {
        [None, None] => codecs.changed().await,
        given => codecs.wait_for(|codecs| are_others(*codecs, given)).await.map(drop),
    };
    if changed.is_ok() {
        clock.sleep(CODEC_CHANGE_WAIT).await;
    }
}

/// Whether a track of `given` has another codec now. One that only comes or goes is no other.
fn are_others(now: Codecs, given: Codecs) -> bool {
    now.iter().zip(given).any(|(now, given)| now.is_some() && given.is_some() && *now != given)
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Codec;

    use super::*;
    use satcast_core::ids::UnixMillis;

    #[tokio::test]
    async fn only_another_codec_than_the_refused_one_is_a_reason_to_try_again() {
        let (h264, hevc, aac) = (Some(Codec::H264), Some(Codec::Hevc), Some(Codec::Aac));
        for (given, now, other) in [
            ([hevc, aac], [hevc, aac], false),
            ([hevc, None], [hevc, aac], false),
            ([hevc, aac], [hevc, None], false),
            ([h264, aac], [hevc, aac], true),
            ([hevc, aac], [hevc, Some(Codec::Opus)], true),
            ([None, None], [hevc, aac], true),
        ] {
            // The encoder went from H.264 to `now` while the try ran.
            let (sender, mut codecs) = watch::channel([h264, aac]);
            sender.send_replace(now);
            let clock = Clock::manual(UnixMillis(0));
            let wait = clock.timeout(CODEC_CHANGE_WAIT * 2, another_codec(&clock, &mut codecs, given));
            assert_eq!(
                clock.passing(CODEC_CHANGE_WAIT / 2, wait).await.is_some(),
                other,
                "{given:?} {now:?}"
            );
        }
    }
}
