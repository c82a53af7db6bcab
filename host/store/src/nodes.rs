//! Nodes: services that share the database of a server.
//!
//! Each node holds a lease, and owns the sessions that it began in the epoch of that lease. The database's clock decides
//! when a lease is over. Such a lease is never renewed: its node takes a new epoch, in which it owns nothing yet, and
//! any node settles the sessions of the old one ([`Store::close_lost_sessions`]).

use std::time::Duration;

use crate::engine::{self, Pool, Query, Sql, timed};
use crate::error::{Result, StoreError, db};
use crate::store::{Lock, Node, Store};
use satcast_core::ids::{AccountId, SessionId, StreamId, UnixMillis};

/// A node that takes its lease.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// Unique among the nodes of the database.
    pub name: String,
    /// Names the data folder, which one process has alone: a newer process of the same folder need not wait for the
    /// lease of the one before. Recordings belong to the folder.
    pub holder: String,
    /// Address of its API for the other nodes.
    pub advertise: String,
    pub version: &'static str,
    /// How long it owns its sessions without a renewal.
    pub lease: Duration,
    /// Start of the process, the same each time that it takes the lease. Of two processes with copies of one data folder
    /// the newer one has the name.
    pub started_at: UnixMillis,
}

/// State of a node that has its lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// An operator wants it to take no new publishers.
    pub draining: bool,
    /// It gives its sessions up now, so that their encoders go to other nodes.
    pub moves: bool,
}

/// State of a node, as others see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeState {
    Live,
    /// It takes no new publishers.
    Draining,
    /// Its lease is over.
    Lost,
    /// It ended in order.
    Stopped,
}

impl NodeState {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Stopped => "stopped",
        }
    }
}

/// A session that has not ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenSession {
    pub id: SessionId,
    /// Name and address of the other living node that has it; `None` while it is at this node or at none.
    pub owner: Option<(String, String)>,
    /// The other living node that gave it up last.
    pub former: Option<(String, String)>,
}

/// A live session that is not at this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionElsewhere {
    pub stream: StreamId,
    pub session: SessionId,
    /// Time of the first media.
    pub started_at: UnixMillis,
    /// The name of its node and the address of that node's API; `None` while it waits for its encoder without an owner.
    pub node: Option<(String, String)>,
}

/// A node in the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    pub name: String,
    pub advertise: String,
    pub state: NodeState,
    /// Sessions of its newest epoch that have not ended.
    pub sessions: i64,
    /// Recordings of its data folder that are not uploaded yet.
    pub recordings: i64,
    /// Rest of its lease, zero when that is over.
    pub lease_left: Duration,
    pub version: String,
    pub started_at: UnixMillis,
}

/// The first node after a service that was alone has the files of that service, which ended every lease.
const ADOPT: [Sql; 2] = [
    timed!(
        "UPDATE archives SET holder = $1 WHERE holder = '' AND NOT EXISTS (SELECT 1 FROM nodes WHERE lease_until_ms > ",
        ")"
    ),
    timed!(
        "UPDATE clips SET holder = $1 WHERE holder = '' AND NOT EXISTS (SELECT 1 FROM nodes WHERE lease_until_ms > ",
        ")"
    ),
];
/// The first epoch of a name is a time: a process that was paused while its node was removed has none of the epochs of the
/// next node of that name. A process that takes its lease again stays as drained as it was. An older process of the same data folder waits: both
/// run on copies of it, and would take the lease from each other for ever.
const TAKE: Sql = timed!(
    "INSERT INTO nodes (name, holder, advertise, epoch, lease_until_ms, version, started_ms) VALUES ($1, $2, $3, ",
    ", $4 + ",
    ", $5, $6) ON CONFLICT (name) DO UPDATE SET holder = excluded.holder, advertise = excluded.advertise,
    epoch = nodes.epoch + 1, lease_until_ms = excluded.lease_until_ms, version = excluded.version,
    draining = CASE WHEN nodes.started_ms = excluded.started_ms THEN nodes.draining ELSE 0 END,
    started_ms = excluded.started_ms
    WHERE (nodes.holder = excluded.holder AND nodes.started_ms <= excluded.started_ms) OR nodes.lease_until_ms <= ",
    " RETURNING epoch"
);
const RENEW: Sql = timed!(
    "UPDATE nodes SET lease_until_ms = $3 + ",
    " WHERE name = $1 AND epoch = $2 AND lease_until_ms > ",
    " RETURNING draining, moves_at_ms - ",
    ""
);
const TIME: Sql = timed!("SELECT ", "");
const RELEASE: &str = "UPDATE nodes SET lease_until_ms = 0 WHERE name = $1 AND epoch = $2";
const RELEASE_ALL: &str = "UPDATE nodes SET lease_until_ms = 0 WHERE lease_until_ms > 0";
/// A node that was renamed has a row for each name.
const ON_FOLDER: Sql = timed!(
    "SELECT name, lease_until_ms - ",
    " FROM nodes WHERE holder = $1 ORDER BY started_ms DESC, name LIMIT 1"
);
const DRAIN: Sql = timed!("UPDATE nodes SET draining = 1, moves_at_ms = $2 + ", " WHERE name = $1");
const TAKE_BACK: &str = "UPDATE nodes SET draining = 0 WHERE name = $1";
const LIST: Sql = timed!(
    "SELECT n.name, n.advertise, n.lease_until_ms, n.lease_until_ms - ",
    ", n.draining, n.version, n.started_ms, (SELECT COUNT(*) FROM sessions e
    WHERE e.node = n.name AND e.epoch = n.epoch AND e.ended_ms IS NULL), (SELECT COUNT(*) FROM archives a
    WHERE a.holder = n.holder AND a.state IN ('recording', 'uploading') AND a.deleted_ms IS NULL)
    FROM nodes n ORDER BY n.name"
);

/// The other living node that has the session of a stream.
const OPEN: Sql = timed!(
    "SELECT e.id, n.name, n.advertise, f.name, f.advertise FROM sessions e
    LEFT JOIN nodes n ON n.name = e.node AND n.epoch = e.epoch AND n.name <> $2 AND n.lease_until_ms > ",
    " LEFT JOIN nodes f ON f.name = e.former_node AND f.name <> $2 AND f.lease_until_ms > ",
    " WHERE e.stream_id = $1 AND e.ended_ms IS NULL ORDER BY n.name IS NULL, e.started_ms DESC LIMIT 1"
);

const OTHERS: Sql =
    timed!("SELECT name, advertise FROM nodes WHERE name <> $1 AND lease_until_ms > ", " ORDER BY name");
/// The other living node on a data folder.
const WITH_FOLDER: Sql = timed!(
    "SELECT name, advertise FROM nodes WHERE holder = $1 AND name <> $2 AND lease_until_ms > ",
    " ORDER BY started_ms DESC, name LIMIT 1"
);
/// The sessions of an account at other living nodes, and those that wait for their encoder.
const ELSEWHERE: Sql = timed!(
    "SELECT e.stream_id, e.id, e.started_ms, n.name, n.advertise FROM sessions e JOIN streams s ON s.id = e.stream_id
    LEFT JOIN nodes n ON n.name = e.node AND n.epoch = e.epoch AND n.lease_until_ms > ",
    " WHERE s.account_id = $1 AND e.ended_ms IS NULL AND e.node <> $2
    AND (n.name IS NOT NULL OR e.returns_until_ms > ",
    ") ORDER BY e.started_ms, e.id"
);
/// Session, and two nodes with their addresses: the owner and the one before.
type OpenRow = (String, Option<String>, Option<String>, Option<String>, Option<String>);
/// Stream, session, start, and the node with its address.
type ElsewhereRow = (i64, String, i64, Option<String>, Option<String>);

/// Name, address, end of the lease, rest of the lease, whether it drains, version, start, sessions, recordings.
type NodeRow = (String, String, i64, i64, i64, String, i64, i64, i64);

impl Store {
    /// Takes the lease of a node with a new epoch. From now on this store works for the node.
    ///
    /// # Errors
    /// [`StoreError::NodeTaken`]: the lease of a node of that name is not over, which runs on another data folder, or
    /// started later on a copy of this one.
    pub async fn take_node(&self, node: &NewNode) -> Result<()> {
        let failed = db("take the lease of the node");
        let mut tx = self.begin_holding(Lock::Nodes).await?;
        for adopt in ADOPT {
            engine::query(adopt).bind(&node.holder).execute(&mut tx).await.map_err(&failed)?;
        }
        let take = engine::query_scalar(TAKE)
            .bind(&node.name)
            .bind(&node.holder)
            .bind(&node.advertise)
            .bind(millis(node.lease))
            .bind(node.version)
            .bind(node.started_at.0);
        let epoch: Option<i64> = take.fetch_optional(&mut tx).await.map_err(&failed)?;
        let epoch = epoch.ok_or_else(|| StoreError::NodeTaken(node.name.clone()))?;
        tx.commit().await?;
        *self.0.node.write() = Node { name: node.name.clone(), holder: node.holder.clone(), epoch };
        Ok(())
    }

    /// The clock of the database.
    pub async fn time(&self) -> Result<UnixMillis> {
        let time = engine::query_scalar(TIME).fetch_one(&self.0.readers).await;
        time.map(UnixMillis).map_err(db("read the clock of the database"))
    }

    /// Renews the lease, which then lasts for `lease` from now on; `None` when it is over or was taken away.
    pub async fn renew_node(&self, lease: Duration) -> Result<Option<Standing>> {
        let node = self.node();
        let mut tx = self.begin().await?;
        let renew = engine::query_as(RENEW).bind(&node.name).bind(node.epoch).bind(millis(lease));
        let renewed: Option<(i64, i64)> =
            renew.fetch_optional(&mut tx).await.map_err(db("renew the lease of the node"))?;
        tx.commit().await?;
        Ok(renewed.map(|(draining, moves_in)| {
            let draining = draining != 0;
            Standing { draining, moves: draining && moves_in <= 0 }
        }))
    }

    /// Gives the lease back, after the last session has ended. Does nothing for a service that is alone.
    pub async fn release_node(&self) -> Result<()> {
        let node = self.node();
        if node.is_alone() {
            return Ok(());
        }
        let mut tx = self.begin().await?;
        let release = engine::query(RELEASE).bind(&node.name).bind(node.epoch).execute(&mut tx).await;
        release.map_err(db("give the lease of the node back"))?;
        tx.commit().await
    }

    /// The session of a stream that has not ended. `None` for a service that is alone.
    pub async fn open_session(&self, stream: StreamId) -> Result<Option<OpenSession>> {
        let node = self.node();
        if node.is_alone() {
            return Ok(None);
        }
        let open = engine::query_as(OPEN).bind(stream.0).bind(&node.name).fetch_optional(&self.0.readers);
        let open: Option<OpenRow> = open.await.map_err(db("read the owner of a session"))?;
        Ok(open.map(|(id, owner, its_address, former, address)| OpenSession {
            id: SessionId(id),
            owner: owner.zip(its_address),
            former: former.zip(address),
        }))
    }

    /// Name and address of each other living node. None for a service that is alone.
    pub async fn other_nodes(&self) -> Result<Vec<(String, String)>> {
        let node = self.node();
        if node.is_alone() {
            return Ok(Vec::new());
        }
        let others = engine::query_as(OTHERS).bind(&node.name).fetch_all(&self.0.readers).await;
        others.map_err(db("read the other nodes"))
    }

    /// The live sessions of an account at other living nodes, and those that wait for their encoder, oldest first. None for a service
    /// that is alone.
    pub async fn sessions_elsewhere(&self, account: AccountId) -> Result<Vec<SessionElsewhere>> {
        let node = self.node();
        if node.is_alone() {
            return Ok(Vec::new());
        }
        let rows =
            engine::query_as(ELSEWHERE).bind(account.0).bind(&node.name).fetch_all(&self.0.readers).await;
        let rows: Vec<ElsewhereRow> = rows.map_err(db("read the sessions of other nodes"))?;
        let session = |(stream, session, started, node, address): ElsewhereRow| SessionElsewhere {
            stream: StreamId(stream),
            session: SessionId(session),
            started_at: UnixMillis(started),
            node: node.zip(address),
        };
        Ok(rows.into_iter().map(session).collect())
    }

    /// Name and address of the other living node on a data folder.
    pub async fn node_with(&self, holder: &str) -> Result<Option<(String, String)>> {
        let node = engine::query_as(WITH_FOLDER).bind(holder).bind(&self.node().name);
        node.fetch_optional(&self.0.readers).await.map_err(db("read the node with a data folder"))
    }

    /// The name of the newest node on a data folder, and whether it has its lease.
    pub async fn node_on(&self, holder: &str) -> Result<Option<(String, bool)>> {
        let node = engine::query_as(ON_FOLDER).bind(holder).fetch_optional(&self.0.readers).await;
        let node: Option<(String, i64)> = node.map_err(db("read the nodes"))?;
        Ok(node.map(|(name, left)| (name, left > 0)))
    }

    /// Ends every lease; for a service that has the database alone.
    pub(crate) async fn end_leases(&self) -> Result<()> {
        let mut tx = self.begin().await?;
        engine::query(RELEASE_ALL).execute(&mut tx).await.map_err(db("end the leases of nodes"))?;
        tx.commit().await
    }

    /// Has a node refuse new publishers until its next start, and give its sessions up after the time of `patience`. The
    /// node sees it when it renews its lease.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn drain_node(&self, name: &str, patience: Duration) -> Result<()> {
        self.change_node(engine::query(DRAIN).bind(name).bind(millis(patience))).await
    }

    /// Has a node that drains take new publishers again.
    ///
    /// # Errors
    /// [`StoreError::NotFound`].
    pub async fn undrain_node(&self, name: &str) -> Result<()> {
        self.change_node(engine::query(TAKE_BACK).bind(name)).await
    }

    async fn change_node(&self, change: Query) -> Result<()> {
        let mut tx = self.begin().await?;
        if change.execute(&mut tx).await.map_err(db("drain the node"))? == 0 {
            return Err(StoreError::NotFound("node"));
        }
        tx.commit().await
    }
}

/// The nodes by name.
pub(crate) async fn list(reader: &Pool) -> Result<Vec<NodeView>> {
    let rows: Vec<NodeRow> = engine::query_as(LIST).fetch_all(reader).await.map_err(db("read the nodes"))?;
    Ok(rows.into_iter().map(view).collect())
}

fn view(row: NodeRow) -> NodeView {
    let (name, advertise, until, left, draining, version, started, sessions, recordings) = row;
    let state = match (until, left > 0, draining != 0) {
        (0, ..) => NodeState::Stopped,
        (_, false, _) => NodeState::Lost,
        (_, true, true) => NodeState::Draining,
        (_, true, false) => NodeState::Live,
    };
    let lease_left = Duration::from_millis(u64::try_from(left).unwrap_or(0));
    NodeView {
        name,
        advertise,
        state,
        sessions,
        recordings,
        lease_left,
        version,
        started_at: UnixMillis(started),
    }
}

fn millis(lease: Duration) -> i64 {
    i64::try_from(lease.as_millis()).unwrap_or(i64::MAX)
}
