//! Commands for sessions at other nodes, and those that other nodes give to this one.

use std::collections::HashSet;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::codes;
use super::entry::SILENCE_WAIT;
use super::live::Live;
use super::session::Command;
use satcast_core::ids::{EndReason, StreamId};
use satcast_store::{CommandTarget, GivenCommand, NodeCommand, StoreError};

/// How often commands are read without a notification.
const POLL: Duration = Duration::from_secs(1);
/// Longest wait for a command at another node. The owner carries it out later, too.
const DONE_WAIT: Duration = Duration::from_secs(5);
/// Longest wait of an encoder for the node of its session to give it up. Longer than the silence of a dead encoder and the
/// end of destinations take, and shorter than encoders wait for an answer.
const GIVE_UP_WAIT: Duration = Duration::from_secs(7);
/// How often a command at another node is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);

impl Live {
    /// Ends the sessions of the target that are not at this node, and waits until it is done. `false` if there is no such
    /// session, or the database failed.
    pub(super) async fn stop_elsewhere(&self, target: CommandTarget<'_>, reason: EndReason) -> bool {
        match self.inner.store.stop_elsewhere(target, reason, self.inner.clock.now()).await {
            Ok(stopped) => {
                self.wait_for(target, &stopped.given).await;
                stopped.is_any()
            }
            Err(error) => {
                tracing::error!(?target, %error, "a session at another node cannot be ended");
                false
            }
        }
    }

    /// Waits until other nodes have carried out the commands that came with a change in the database.
    pub(super) async fn followed_elsewhere(&self, target: CommandTarget<'_>) {
        match self.inner.store.commands_elsewhere(target).await {
            Ok(given) => self.wait_for(target, &given).await,
            Err(error) => {
                tracing::warn!(?target, %error, "it is unknown whether another node has carried out a change");
            }
        }
    }

    /// Waits for commands at other nodes, not longer than [`DONE_WAIT`].
    async fn wait_for(&self, target: CommandTarget<'_>, given: &[i64]) {
        if timeout(DONE_WAIT, self.until_done(given)).await.is_err() {
            tracing::warn!(?target, "another node has not carried out a command yet");
        }
    }

    /// Asks the other node that has a session of the stream to give it up; `false` if it does not answer.
    ///
    /// # Errors
    /// The command could not be given.
    pub(super) async fn ask_for_session(&self, stream: StreamId) -> Result<bool, StoreError> {
        let given = self.inner.store.ask_for_session(stream).await?;
        Ok(timeout(GIVE_UP_WAIT, self.until_done(&given)).await.is_ok())
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
                    // The sort is stable: the oldest command of a stream stays first. Those that wait for the silence of an
                    // encoder come last.
                    waiting.sort_by_key(|given| (given.stream, given.command == NodeCommand::GiveUp));
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
        let mut asked = false;
        for given in &commands {
            // One answer is enough for all encoders that come to other nodes meanwhile.
            let answered = given.command == NodeCommand::GiveUp && std::mem::replace(&mut asked, true);
            let followed = match answered {
                true => self.inner.store.command_done(given.id).await,
                false => self.follow_command(given).await,
            };
            if let Err(error) = followed {
                tracing::warn!(%stream, %error, "a command of another node cannot be carried out yet; retrying");
                sleep(POLL).await;
                break;
            }
        }
        stream
    }

    /// Carries out a command and deletes it.
    pub(super) async fn follow_command(&self, given: &GivenCommand) -> Result<(), StoreError> {
        // The session may have ended meanwhile, and the stream may have a new one, which the command is not for.
        let session = self.find(given.stream).filter(|session| session.id == given.session);
        match (given.command, session) {
            (NodeCommand::Stop(reason), session) => {
                let has_ended = match session {
                    Some(session) => session.command(|done| Command::Stop { reason, done }).await,
                    None => false,
                };
                if !has_ended {
                    // It was given up. Its next owner gets a command as well, if there is one already.
                    let (target, now) = (CommandTarget::Session(&given.session), self.inner.clock.now());
                    self.inner.store.stop_elsewhere(target, reason, now).await?;
                }
            }
            (NodeCommand::Reload, Some(_)) => self.reload(given.stream).await?,
            (NodeCommand::GiveUp, Some(session)) => {
                let until = self.inner.clock.monotonic() + SILENCE_WAIT;
                if session.encoder_gives_way(None, &self.inner.clock, until).await {
                    session.command(|done| Command::GiveUp { closed: codes::took_over(), done }).await;
                }
            }
            (NodeCommand::Reload | NodeCommand::GiveUp, None) => {}
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
