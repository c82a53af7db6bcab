//! Commands to the node that owns a live session, given at another node.
//!
//! A row is the truth, and is deleted when its command is done. A notification only wakes the owner before its next poll.
//! A command that its owner never takes is deleted when the session is settled.

use tokio::sync::Notify;

use crate::engine::{self, Pool, Sql, postgres, timed};
use crate::error::{Result, StoreError, db};
use crate::store::Store;
use satcast_core::ids::{AccountId, EndReason, SessionId, StreamId};

/// Sessions that a command is for.
#[derive(Clone, Copy, Debug)]
pub enum CommandTarget<'a> {
    Stream(StreamId),
    Session(&'a SessionId),
    /// All sessions of an account.
    Account(AccountId),
}

impl CommandTarget<'_> {
    /// The ids of stream, account and session; two of them are `None`.
    pub(crate) fn ids(&self) -> (Option<i64>, Option<i64>, Option<&str>) {
        match self {
            Self::Stream(id) => (Some(id.0), None, None),
            Self::Account(id) => (None, Some(id.0), None),
            Self::Session(id) => (None, None, Some(id.as_str())),
        }
    }
}

/// A command to the owner of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeCommand {
    /// Ends the session.
    Stop(EndReason),
    /// Reads limits, addresses and destinations of the stream again.
    Reload,
    /// Gives the session up if its encoder is away. An earlier version reads the stream again.
    GiveUp,
}

/// A command for this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GivenCommand {
    pub id: i64,
    /// The session that it was given for; a later one of the stream has nothing to do with it.
    pub session: SessionId,
    pub stream: StreamId,
    pub command: NodeCommand,
}

/// Most commands that a node takes at one time.
const TAKEN_MAX: i64 = 100;
/// The channel of notifications.
const CHANNEL: &str = "satcast_node_commands";

/// One row for each session that another living node has. Of the three targets two are null.
const GIVE: Sql = timed!(
    "INSERT INTO node_commands (node, session_id, end_reason, gives_up, created_ms) SELECT e.node, e.id, $2, $6, ",
    " FROM sessions e JOIN streams s ON s.id = e.stream_id JOIN nodes n ON n.name = e.node AND n.epoch = e.epoch
    WHERE e.ended_ms IS NULL AND e.node <> $1 AND (e.stream_id = $3 OR s.account_id = $4 OR e.id = $5)
    AND n.lease_until_ms > ",
    " RETURNING id, node"
);
const NOTIFY: Sql = Sql { sqlite: "SELECT $1, $2", postgres: "SELECT pg_notify($1, $2)" };
const WAITING: &str = "SELECT COUNT(*) FROM node_commands WHERE id = $1";
const TAKE: &str = "SELECT c.id, c.session_id, e.stream_id, c.end_reason, c.gives_up FROM node_commands c
    JOIN sessions e ON e.id = c.session_id WHERE c.node = $1 ORDER BY c.id LIMIT $2";
/// The next owner of the session may have got it meanwhile.
const DONE: &str = "DELETE FROM node_commands WHERE id = $1 AND node = $2";

/// Id, session, stream, reason of the end, whether the session is given up.
type CommandRow = (i64, String, i64, Option<String>, i64);

impl Store {
    /// Gives a command to the other nodes that have sessions of the target. Returns the id of each command: none if
    /// there is no such session.
    pub async fn command_owners(&self, target: CommandTarget<'_>, command: NodeCommand) -> Result<Vec<i64>> {
        let node = self.node();
        if node.is_alone() {
            return Ok(Vec::new());
        }
        let failed = db("give a command to another node");
        let reason = match command {
            NodeCommand::Stop(reason) => Some(reason.as_str()),
            NodeCommand::Reload | NodeCommand::GiveUp => None,
        };
        let gives_up = i64::from(command == NodeCommand::GiveUp);
        let (stream, account, session) = target.ids();
        let mut tx = self.begin().await?;
        let give = engine::query_as(GIVE)
            .bind(&node.name)
            .bind(reason)
            .bind(stream)
            .bind(account)
            .bind(session)
            .bind(gives_up);
        let given: Vec<(i64, String)> = give.fetch_all(&mut tx).await.map_err(&failed)?;
        for (_, owner) in &given {
            engine::query(NOTIFY).bind(CHANNEL).bind(owner).execute(&mut tx).await.map_err(&failed)?;
        }
        tx.commit().await?;
        Ok(given.into_iter().map(|(id, _)| id).collect())
    }

    /// Whether a command that was given is not done yet.
    pub async fn is_waiting(&self, id: i64) -> Result<bool> {
        let count = engine::query_scalar(WAITING).bind(id);
        let count: i64 = count.fetch_one(&self.0.readers).await.map_err(db("look for a given command"))?;
        Ok(count > 0)
    }

    /// The oldest commands for this node, at most a hundred.
    pub async fn commands(&self) -> Result<Vec<GivenCommand>> {
        let take = engine::query_as(TAKE).bind(self.node().name).bind(TAKEN_MAX);
        let rows = take.fetch_all(&self.0.readers).await;
        let rows: Vec<CommandRow> = rows.map_err(db("read the commands for this node"))?;
        let unreadable = || StoreError::Unreadable { what: "node_commands.end_reason" };
        let command = |(id, session, stream, reason, gives_up): CommandRow| {
            let command = match reason {
                Some(name) => NodeCommand::Stop(EndReason::parse(&name).ok_or_else(unreadable)?),
                None if gives_up > 0 => NodeCommand::GiveUp,
                None => NodeCommand::Reload,
            };
            Ok(GivenCommand { id, session: SessionId(session), stream: StreamId(stream), command })
        };
        rows.into_iter().map(command).collect()
    }

    /// A command for this node is done.
    pub async fn command_done(&self, id: i64) -> Result<()> {
        let mut tx = self.begin().await?;
        let done = engine::query(DONE).bind(id).bind(&self.node().name).execute(&mut tx).await;
        done.map_err(db("end a command"))?;
        tx.commit().await
    }

    /// Notifies `given` when a node was given a command. Never returns.
    pub async fn watch_commands(&self, given: &Notify) {
        match &self.0.readers {
            Pool::Postgres(pool) => postgres::listen(pool, CHANNEL, given).await,
            Pool::Sqlite(_) => std::future::pending().await,
        }
    }
}
