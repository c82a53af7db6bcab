//! Commands to the node that owns a live session, given at another node.
//!
//! A row is the truth, and is deleted when its command is done. A notification only wakes the owner before its next poll.
//! A command that its owner never takes is deleted when the session is settled. A change writes its commands in its own
//! transaction ([`Store::command_in`]): a node that dies after the commit leaves no session that does not know the change.

use tokio::sync::Notify;

use crate::engine::{self, Pool, Sql, Tx, postgres, timed};
use crate::error::{Result, StoreError, db};
use crate::sessions::{Ending, interrupt};
use crate::store::{Lock, Store};
use satcast_core::ids::{AccountId, EndReason, SessionId, StreamId, UnixMillis};

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

impl<'a> CommandTarget<'a> {
    /// The lock of its account.
    fn lock(self) -> Lock<'a> {
        match self {
            Self::Stream(id) => Lock::Stream(id),
            Self::Account(id) => Lock::Account(id),
            Self::Session(id) => Lock::Session(id),
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

/// What a command found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Commanded {
    /// The id of each command to another node.
    pub given: Vec<i64>,
    /// A stop ended a session that waited for its encoder without an owner.
    pub ended: bool,
}

impl Commanded {
    /// Whether there was a session.
    pub fn is_any(&self) -> bool {
        self.ended || !self.given.is_empty()
    }
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
/// Sessions that wait for their encoder without an owner. Of the three targets two are null.
const RETURNING: &str = "SELECT e.id FROM sessions e JOIN streams s ON s.id = e.stream_id
    WHERE e.ended_ms IS NULL AND e.returns_until_ms IS NOT NULL
    AND (e.stream_id = $1 OR s.account_id = $2 OR e.id = $3) ORDER BY e.id";
const NOTIFY: Sql = Sql { sqlite: "SELECT $1, $2", postgres: "SELECT pg_notify($1, $2)" };
const WAITING: &str = "SELECT COUNT(*) FROM node_commands WHERE id = $1";
/// Commands to other nodes that are not done. Of the three targets two are null.
const NOT_DONE: &str = "SELECT c.id FROM node_commands c JOIN sessions e ON e.id = c.session_id
    JOIN streams s ON s.id = e.stream_id WHERE c.node <> $1 AND c.gives_up = 0
    AND (e.stream_id = $2 OR s.account_id = $3 OR e.id = $4) ORDER BY c.id";
const TAKE: &str = "SELECT c.id, c.session_id, e.stream_id, c.end_reason, c.gives_up FROM node_commands c
    JOIN sessions e ON e.id = c.session_id WHERE c.node = $1 ORDER BY c.id LIMIT $2";
/// The next owner of the session may have got it meanwhile.
const DONE: &str = "DELETE FROM node_commands WHERE id = $1 AND node = $2";

/// Id, session, stream, reason of the end, whether the session is given up.
type CommandRow = (i64, String, i64, Option<String>, i64);

impl Store {
    /// Asks the other node that has a session of the stream to give it up. Returns the id of each command: none if there
    /// is no such session.
    pub async fn ask_for_session(&self, stream: StreamId) -> Result<Vec<i64>> {
        if self.node().is_alone() {
            return Ok(Vec::new());
        }
        let mut tx = self.begin().await?;
        let given = self.give(&mut tx, CommandTarget::Stream(stream), NodeCommand::GiveUp).await?;
        tx.commit().await?;
        Ok(given)
    }

    /// Ends the sessions of the target that are not at this node: those of other nodes by a command, those without an
    /// owner at once.
    pub async fn stop_elsewhere(
        &self,
        target: CommandTarget<'_>,
        reason: EndReason,
        now: UnixMillis,
    ) -> Result<Commanded> {
        if self.node().is_alone() {
            return Ok(Commanded::default());
        }
        let mut tx = self.begin_holding(target.lock()).await?;
        let commanded = self.command_in(&mut tx, target, NodeCommand::Stop(reason), now).await?;
        tx.commit().await?;
        if commanded.ended {
            self.wake_outbox();
        }
        Ok(commanded)
    }

    /// Gives a command to the other nodes that have sessions of the target, inside the transaction of its cause, which
    /// holds the lock of the account: both are committed, or neither. The lock also keeps a session without an owner from
    /// being taken over meanwhile. Such a session is ended by a stop; for other changes its next owner reads the stream.
    /// Does nothing for a service that is alone.
    pub(crate) async fn command_in(
        &self,
        tx: &mut Tx,
        target: CommandTarget<'_>,
        command: NodeCommand,
        now: UnixMillis,
    ) -> Result<Commanded> {
        if self.node().is_alone() {
            return Ok(Commanded::default());
        }
        let given = self.give(tx, target, command).await?;
        let ended = match command {
            NodeCommand::Stop(reason) => end_returning(tx, target, reason, now).await?,
            NodeCommand::Reload | NodeCommand::GiveUp => false,
        };
        Ok(Commanded { given, ended })
    }

    async fn give(&self, tx: &mut Tx, target: CommandTarget<'_>, command: NodeCommand) -> Result<Vec<i64>> {
        let failed = db("give a command to another node");
        let reason = match command {
            NodeCommand::Stop(reason) => Some(reason.as_str()),
            NodeCommand::Reload | NodeCommand::GiveUp => None,
        };
        let gives_up = i64::from(command == NodeCommand::GiveUp);
        let (stream, account, session) = target.ids();
        let give = engine::query_as(GIVE)
            .bind(&self.node().name)
            .bind(reason)
            .bind(stream)
            .bind(account)
            .bind(session)
            .bind(gives_up);
        let given: Vec<(i64, String)> = give.fetch_all(&mut *tx).await.map_err(&failed)?;
        for (_, owner) in &given {
            // It is sent with the commit.
            engine::query(NOTIFY).bind(CHANNEL).bind(owner).execute(&mut *tx).await.map_err(&failed)?;
        }
        Ok(given.into_iter().map(|(id, _)| id).collect())
    }

    /// The ids of the commands to other nodes for sessions of the target that are not done yet. None for a service that
    /// is alone.
    pub async fn commands_elsewhere(&self, target: CommandTarget<'_>) -> Result<Vec<i64>> {
        let node = self.node();
        if node.is_alone() {
            return Ok(Vec::new());
        }
        let (stream, account, session) = target.ids();
        let given = engine::query_scalar(NOT_DONE).bind(&node.name).bind(stream).bind(account).bind(session);
        given.fetch_all(&self.0.readers).await.map_err(db("look for given commands"))
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

/// Ends the sessions of the target that wait for their encoder without an owner; `false` if no session waits. The caller
/// holds the lock of the account.
async fn end_returning(
    tx: &mut Tx,
    target: CommandTarget<'_>,
    reason: EndReason,
    now: UnixMillis,
) -> Result<bool> {
    let (stream, account, session) = target.ids();
    let find = engine::query_scalar(RETURNING).bind(stream).bind(account).bind(session);
    let found: Vec<String> = find.fetch_all(&mut *tx).await.map_err(db("find sessions without an owner"))?;
    let mut ended = false;
    for session in found.into_iter().map(SessionId) {
        ended |= interrupt(tx, &session, now, Ending::Ordered(reason)).await?;
    }
    Ok(ended)
}
