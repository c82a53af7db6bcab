//! The texts of answers that share their code with others, or that other tests compare with.

use satcast_plugin_api::Error;

use crate::api::{archives, caller, destinations};
use crate::base::ApiError;
use satcast_core::ids::Msat;
use satcast_drivers::RecordingsError;

#[test]
fn answers_texts() {
    let failure = RecordingsError::Refused(Error::network("it is down"));
    let unavailable = |so| ApiError::archive_unavailable(so, &failure).to_string();
    for (text, whole) in [
        (
            destinations::UNREADABLE.to_owned(),
            "The stored configuration cannot be read; delete this destination and add it again",
        ),
        (
            caller::NO_SESSION.to_owned(),
            "Webhooks are managed with a permanent key (sk_...) that has the scope \"webhooks\"; a session cannot be \
             used here",
        ),
        (
            unavailable(archives::NOT_CHARGED),
            "The archive driver or its store failed, and nothing is charged: it is down; try again later",
        ),
        (
            unavailable(archives::STILL_LISTED),
            "The archive driver or its store failed, and the recording is still listed: it is down; try again later",
        ),
        (
            ApiError::driver_unavailable(Some("driver x hung until an operator enables it")).to_string(),
            "The driver of this destination type has put this account in quarantine: driver x hung until an operator enables it. \
            Ask the operator",
        ),
        (
            archives::no_copy().to_string(),
            "The local copy of the recording is gone, so it cannot be uploaded again; nothing is charged",
        ),
        (
            archives::lost().to_string(),
            "The driver that made the recording no longer knows it, so it cannot be uploaded again; nothing is charged. \
             Delete it from the list",
        ),
        (
            archives::too_little(Msat(360_000), Msat(12_000)).to_string(),
            "Recovering a recording costs 360 sats and the balance is 12 sats; add credit first",
        ),
    ] {
        assert_eq!(text, whole);
    }
}
