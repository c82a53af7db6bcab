//! Commands for sessions at other nodes, and those that other nodes give to this one.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::live::Live;
use super::session::Command;
use satcast_core::ids::StreamId;
use satcast_store::{CommandTarget, GivenCommand, NodeCommand, StoreError};

/// How often commands are read without a notification.
const POLL: Duration = Duration::from_secs(1);
/// Longest wait for a command at another node. The owner carries it out later, too.
const DONE_WAIT: Duration = Duration::from_secs(5);
/// How often a command at another node is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Live {
    /// Gives a command to the other nodes that have sessions of the target, and waits until it is done. `false` if there
    /// is no such session, or it could not be given.
    pub(super) async fn command_owners(&self, target: CommandTarget<'_>, command: NodeCommand) -> bool {
        let given = match self.inner.store.command_owners(target, command).await {
            Ok(given) if given.is_empty() => return false,
            Ok(given) => given,
            Err(error) => {
                tracing::error!(?target, ?command, %error, "a live session at another node cannot be changed");
                return false;
            }
        };
        if timeout(DONE_WAIT, self.until_done(&given)).await.is_err() {
            tracing::warn!(?target, ?command, "another node has not carried out a command yet");
        }
        true
    }

    async fn until_done(&self, given: &[i64]) {
        for id in given {
            // A failed read says nothing: the next one may say more.
            while self.inner.store.is_waiting(*id).await.unwrap_or(true) {
                sleep(LOOK_EVERY).await;
            }
        }
    }

    /// Carries out what other nodes ask this one to do. Never returns.
    pub async fn keep_commands(self) {
        let given = Notify::new();
        tokio::join!(self.follow_commands(&given), self.inner.store.watch_commands(&given));
    }

    /// Carries out the commands of one stream in order, and those of several streams beside each other: a session that
    /// ends slowly holds up its own commands only. Never returns.
    async fn follow_commands(&self, notified: &Notify) {
        let mut busy: HashSet<StreamId> = HashSet::new();
        let mut followed = FuturesUnordered::new();
        loop {
            match self.inner.store.commands().await {
                Ok(mut waiting) => {
                    waiting.retain(|given| !busy.contains(&given.stream));
                    // The sort is stable: the oldest command of a stream stays first.
                    waiting.sort_by_key(|given| given.stream);
                    for commands in waiting.chunk_by(|one, next| one.stream == next.stream) {
                        let stream = commands[0].stream;
                        busy.insert(stream);
                        followed.push(self.follow_all(stream, commands.to_vec()));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the commands of other nodes cannot be read; retrying");
                }
            }
            tokio::select! {
                () = notified.notified() => {}
                () = sleep(POLL) => {}
                Some(stream) = followed.next() => {
                    busy.remove(&stream);
                }
            }
        }
    }

    /// Returns the stream of the commands, for which nothing is read meanwhile.
    async fn follow_all(&self, stream: StreamId, commands: Vec<GivenCommand>) -> StreamId {
        for given in &commands {
            if let Err(error) = self.follow_command(given).await {
                tracing::warn!(%stream, %error, "a command of another node cannot be carried out yet; retrying");
                sleep(POLL).await;
                break;
            }
        }
        stream
    }

    /// Carries out a command and deletes it.
    async fn follow_command(&self, given: &GivenCommand) -> Result<(), StoreError> {
        // The session may have ended meanwhile, and the stream may have a new one, which the command is not for.
        if let Some(session) = self.find(given.stream).filter(|session| session.id == given.session) {
            match given.command {
                NodeCommand::Stop(reason) => {
                    session.command(|done| Command::Stop { reason, done }).await;
                }
                NodeCommand::Reload => self.reload(given.stream).await?,
            }
        }
        self.inner.store.command_done(given.id).await
    }

    /// Has the session of a stream read again what other nodes may have changed.
    async fn reload(&self, stream: StreamId) -> Result<(), StoreError> {
        if let Some(stream) = self.inner.store.stream(stream).await? {
            self.limits_changed(stream.id, stream.limits).await;
            self.addresses_changed(stream.id, &stream.allowed).await;
        }
        self.destinations_changed(stream).await;
        Ok(())
    }
}
