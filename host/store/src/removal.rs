//! The removal of a node that never comes back: everything that only this node could settle is settled.
//!
//! Each session and each recording is one transaction under the lock of its account, so a removal that was interrupted can
//! be repeated. The node itself goes last. Its data folder may come back later, with a new epoch and no recordings.

use crate::archives::REMOVED;
use crate::engine::{self, Sql, timed};
use crate::error::{Result, StoreError, db};
use crate::sessions::Ending;
use crate::store::{Lock, Store, again};
use satcast_core::ids::{SessionId, UnixMillis};

/// What a removal has settled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemovedNode {
    /// Sessions that have ended as interrupted.
    pub sessions: u64,
    /// Recordings that have failed, because their local copy is lost.
    pub recordings: u64,
    /// Paid retries whose fee was refunded.
    pub refunds: u64,
}

/// The data folder of a node, the rest of its lease, and how many other names the folder has.
const NODE: Sql = timed!(
    "SELECT n.holder, n.lease_until_ms - ",
    ", (SELECT COUNT(*) FROM nodes o WHERE o.holder = n.holder AND o.name <> n.name)
    FROM nodes n WHERE n.name = $1"
);
const SESSIONS: &str = "SELECT id FROM sessions WHERE node = $1 AND ended_ms IS NULL ORDER BY id";
/// A retry may belong to a recording that was deleted meanwhile.
const UNSETTLED: &str = "SELECT a.id FROM archives a WHERE a.holder = $1
    AND ((a.state IN ('recording', 'uploading') AND a.deleted_ms IS NULL) OR EXISTS (SELECT 1
    FROM archive_recoveries r WHERE r.archive_id = a.id AND r.state IN ('asked', 'opened'))) ORDER BY a.id";
const FORGET: Sql = timed!("DELETE FROM nodes WHERE name = $1 AND lease_until_ms <= ", "");
const FORGET_COMMANDS: &str = "DELETE FROM node_commands WHERE node = $1";
/// The store has these recordings, or their upload had failed before. Nobody deletes them by rule any more.
const FORGET_FILES: &str = "UPDATE archives SET holder = $2, expires_ms = NULL WHERE holder = $1";
/// Another node fails those that are not made.
const FORGET_CLIPS: &str = "UPDATE clips SET holder = $2 WHERE holder = $1";

impl Store {
    /// Removes a node that is gone for good, with its data folder unless that has another name as well. Its sessions end,
    /// its unfinished recordings fail, and unfinished paid retries are refunded. A repeat goes on where an earlier one
    /// ended. What the data folder reports about its recordings later changes nothing.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::NodeRuns`].
    pub async fn remove_node(&self, name: &str, now: UnixMillis) -> Result<RemovedNode> {
        let failed = db("remove the node");
        let node = engine::query_as(NODE).bind(name).fetch_optional(&self.0.readers).await;
        let node: Option<(String, i64, i64)> = node.map_err(&failed)?;
        let (holder, left, names) = node.ok_or(StoreError::NotFound("node"))?;
        if left > 0 {
            return Err(StoreError::NodeRuns(name.to_owned()));
        }
        let mut removed = RemovedNode::default();
        let sessions = engine::query_scalar(SESSIONS).bind(name).fetch_all(&self.0.readers).await;
        let sessions: Vec<String> = sessions.map_err(&failed)?;
        for session in sessions.into_iter().map(SessionId) {
            removed.sessions += u64::from(self.close_interrupted(&session, now, Ending::InTime).await?);
        }
        let folder = (names == 0).then_some(holder);
        if let Some(holder) = &folder {
            let unsettled = engine::query_scalar(UNSETTLED).bind(holder).fetch_all(&self.0.readers).await;
            let unsettled: Vec<i64> = unsettled.map_err(&failed)?;
            for archive in unsettled {
                let lost = self.lose_with_folder(archive, holder, now).await?;
                removed.recordings += u64::from(lost.failed);
                removed.refunds += u64::from(lost.refunded);
            }
        }
        again(|| self.forget_node(name, folder.as_deref())).await?;
        Ok(removed)
    }

    /// Removes a node of which everything is settled. A node that has come back meanwhile stays.
    async fn forget_node(&self, name: &str, folder: Option<&str>) -> Result<()> {
        let failed = db("remove the node");
        let mut tx = self.begin_holding(Lock::Nodes).await?;
        let forgotten = engine::query(FORGET).bind(name).execute(&mut tx).await.map_err(&failed)?;
        let left = engine::query(UNSETTLED).bind(folder).fetch_optional(&mut tx).await.map_err(&failed)?;
        if forgotten == 0 || left.is_some() {
            return Err(StoreError::NodeRuns(name.to_owned()));
        }
        engine::query(FORGET_COMMANDS).bind(name).execute(&mut tx).await.map_err(&failed)?;
        for forget in [FORGET_FILES, FORGET_CLIPS] {
            let files = engine::query(forget).bind(folder).bind(REMOVED);
            files.execute(&mut tx).await.map_err(&failed)?;
        }
        tx.commit().await
    }
}
