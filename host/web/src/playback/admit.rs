//! Who may have the player page, and what it says.

use super::Playback;
use crate::base::{ApiError, RequestContext};
use satcast_core::ids::DestinationId;
use satcast_core::secret::Redacted;

/// What the player page shows and allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The destination it belongs to.
    pub(crate) destination: DestinationId,
    /// The stream's name for people.
    pub(crate) label: String,
    /// Sites whose pages may play; empty = all.
    pub(crate) origins: Vec<String>,
}

impl Playback {
    /// Whether `key` opens the playback `path`, live or not.
    ///
    /// # Errors
    /// 401 for any other key, 429 for too many of them from one network, 502 from the store.
    pub(crate) async fn admit(
        &self,
        context: &RequestContext,
        path: &str,
        key: &Redacted<String>,
    ) -> Result<Admission, ApiError> {
        let (access, _) = self.keyed(context, path, key).await?;
        let (label, origins) = (access.label.clone(), access.origins.clone());
        Ok(Admission { destination: access.destination, label, origins })
    }
}
