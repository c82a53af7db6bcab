//! Commands for sessions at other nodes, and those that other nodes give to this one.

use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::live::Live;
use satcast_store::{CommandTarget, Given, GivenCommand, NodeCommand, StoreError};

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
            Ok(Some(given)) => given,
            Ok(None) => return false,
            Err(error) => {
                tracing::error!(?target, ?command, %error, "a live session at another node cannot be changed");
                return false;
            }
        };
        if timeout(DONE_WAIT, self.until_done(given)).await.is_err() {
            tracing::warn!(?target, ?command, "another node has not carried out a command yet");
        }
        true
    }

    async fn until_done(&self, given: Given) {
        // A failed read says nothing: the next one may say more.
        while self.inner.store.is_waiting(given).await.unwrap_or(true) {
            sleep(LOOK_EVERY).await;
        }
    }

    /// Carries out what other nodes ask this one to do. Never returns.
    pub async fn keep_commands(self) {
        let given = Notify::new();
        let following = async {
            loop {
                if let Err(error) = self.follow_commands().await {
                    tracing::warn!(%error, "the commands of other nodes cannot be read; retrying");
                }
                // Without a notification the time is over, which is no error.
                let _ = timeout(POLL, given.notified()).await;
            }
        };
        tokio::join!(following, self.inner.store.watch_commands(&given));
    }

    /// Carries out the commands that wait, those of one stream in order.
    async fn follow_commands(&self) -> Result<(), StoreError> {
        let mut waiting = self.inner.store.commands().await?;
        // The sort is stable: the oldest command of a stream stays first.
        waiting.sort_by_key(|given| given.stream);
        let streams = waiting.chunk_by(|one, next| one.stream == next.stream);
        let followed = futures_util::future::join_all(streams.map(|commands| self.follow_all(commands)));
        followed.await.into_iter().collect()
    }

    async fn follow_all(&self, commands: &[GivenCommand]) -> Result<(), StoreError> {
        for given in commands {
            self.follow_command(given).await?;
            self.inner.store.command_done(given.id).await?;
        }
        Ok(())
    }

    async fn follow_command(&self, given: &GivenCommand) -> Result<(), StoreError> {
        // The session may have ended meanwhile.
        if self.find(given.stream).is_none() {
            return Ok(());
        }
        match given.command {
            NodeCommand::Stop(reason) => drop(self.stop(given.stream, reason).await),
            NodeCommand::Reload => {
                if let Some(stream) = self.inner.store.stream(given.stream).await? {
                    self.limits_changed(stream.id, stream.limits).await;
                    self.addresses_changed(stream.id, &stream.allowed).await;
                }
                self.destinations_changed(given.stream).await;
            }
        }
        Ok(())
    }
}
