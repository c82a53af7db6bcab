//! Parts of this node's recordings for other nodes. Access, limits and metering are at the node of the viewer.

use bytes::Bytes;
use poem::Response;

use super::super::Playback;
use super::super::relay::Part;
use super::source::Source;
use super::state::nothing_to_play;
use crate::base::ApiError;

impl Playback {
    /// A part of a recording whose file is at this node.
    ///
    /// # Errors
    /// 404 for a recording that does not exist or cannot be played, 503 for the file of another node, and for one that cannot be read
    /// now.
    pub(in crate::playback) async fn recording_for_node(
        &self,
        id: i64,
        part: Part,
    ) -> Result<Response, ApiError> {
        let group = self.recordings.group(id).await?;
        let watched = group.iter().find(|watched| watched.record.id == id).ok_or_else(nothing_to_play)?;
        self.recordings.check_here(watched)?;
        let source = Source::here(&self.recordings.drivers, &self.recordings.faults, watched);
        let bytes = match part {
            Part::Index { first } => {
                let page = serde_json::to_vec(&source.index(first).await?);
                page.map(Bytes::from).map_err(|_| ApiError::internal())?
            }
            Part::Bytes { offset, len } => source.read(offset, len).await?,
            Part::Signed => source.sign().await.unwrap_or_default().into(),
        };
        let mut response = Response::default();
        response.set_body(bytes);
        Ok(response)
    }
}
