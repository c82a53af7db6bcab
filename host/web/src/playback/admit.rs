//! Access to the player page.

use super::Playback;
use crate::base::{ApiError, RequestContext};
use satcast_core::ids::DestinationId;
use satcast_core::secret::Redacted;

/// Content and permissions of the player page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Admission {
    /// The destination of the player page.
    pub(crate) destination: DestinationId,
    /// Label of the stream.
    pub(crate) label: String,
    /// Origins whose pages may play; empty = all.
    pub(crate) origins: Vec<String>,
}

impl Playback {
    /// Checks that `key` gives access to the playback `path`, live or not.
    ///
    /// # Errors
    /// 401 for any other key, 429 after too many of these from one network, 502 from the store.
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
