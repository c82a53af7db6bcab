//! Retries a destination that gave up because of a codec.

use std::time::Duration;

use tokio::sync::watch;

use crate::hub::Codecs;
use satcast_core::clock::Clock;

/// Wait after a change of codec before the retry. Both tracks may change, and an encoder that changes its codecs repeatedly must not
/// cause connections at that rate.
const CODEC_CHANGE_WAIT: Duration = Duration::from_secs(2);

/// Waits until the encoder sends a codec that differs from those `given` to the driver before it gave up. If the driver got none, any
/// change since the start of the attempt counts.
pub(super) async fn another_codec(clock: &Clock, codecs: &mut watch::Receiver<Codecs>, given: Codecs) {
    let changed = match given {
        [None, None] => codecs.changed().await,
        given => codecs.wait_for(|codecs| have_changed(*codecs, given)).await.map(drop),
    };
    if changed.is_ok() {
        clock.sleep(CODEC_CHANGE_WAIT).await;
    }
}

/// Whether a track of `given` has a different codec now. A track that only starts or ends does not count.
fn have_changed(now: Codecs, given: Codecs) -> bool {
    now.iter().zip(given).any(|(now, given)| now.is_some() && given.is_some() && *now != given)
}

#[cfg(test)]
mod tests {
    use satcast_plugin_api::Codec;

    use super::*;
    use satcast_core::ids::UnixMillis;

    #[tokio::test]
    async fn only_a_codec_that_differs_from_the_refused_one_causes_a_retry() {
        let (h264, hevc, aac) = (Some(Codec::H264), Some(Codec::Hevc), Some(Codec::Aac));
        for (given, now, other) in [
            ([hevc, aac], [hevc, aac], false),
            ([hevc, None], [hevc, aac], false),
            ([hevc, aac], [hevc, None], false),
            ([h264, aac], [hevc, aac], true),
            ([hevc, aac], [hevc, Some(Codec::Opus)], true),
            ([None, None], [hevc, aac], true),
        ] {
            // The encoder changed from H.264 to `now` during the attempt.
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
