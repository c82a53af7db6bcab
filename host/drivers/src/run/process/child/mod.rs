//! The child: a small host that loads one library and forwards everything.
//!
//! Threads: the first one reads the socket, runs no code of the library and writes nothing, so that it never waits
//! for the host; *control* calls into the library; *pump* runs its wakers and callbacks; *ticker* sends reports that
//! may be late.

mod confine;
mod link;
mod media;
mod services;

use std::collections::HashMap;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;
use satcast_plugin_api::Error;
use satcast_plugin_api::host::{BytesDone, Done, Driver, Instance, Recordings};

use self::confine::{confine, die, take_socket};
use self::link::Link;
use self::media::RemoteQueue;
use self::services::Proxy;
use super::channel::{self, ChannelError, Message, Receiver};
use super::message::{Ask, PROTOCOL, Reply, ToChild, ToHost, ToOpen};
use crate::load::loader;
use crate::run::MAX_LEVEL;

/// Exit code of a child that was not started by the service.
const EXIT_NO_HOST: u8 = 3;
const FIRST_MESSAGE_WAIT: Duration = Duration::from_secs(5);
/// Block size of reads: several large packets.
const BLOCK_BYTES: usize = 1024 * 1024;

/// A job of the control thread.
enum Job {
    Call(u64, Box<Ask>),
    End,
}

/// Body of the child; its standard input is the socket. Returns only when there is none.
pub fn run() -> ExitCode {
    match begin() {
        Ok((link, receiver, jobs)) => read(&link, receiver, &jobs),
        Err(reason) => {
            eprintln!("{reason}; this command is for the service itself");
            ExitCode::from(EXIT_NO_HOST)
        }
    }
}

fn begin() -> Result<(Arc<Link>, Receiver, mpsc::Sender<Job>), String> {
    let no_message = |error: &dyn std::fmt::Debug| format!("no first message: {error:?}");
    let socket = take_socket().map_err(|error| format!("no socket: {error}"))?;
    let again = socket.try_clone().map_err(|error| no_message(&error))?;
    channel::set_limits(&again, None, Some(FIRST_MESSAGE_WAIT)).map_err(|error| no_message(&error))?;
    let (sender, mut receiver) = channel::split(socket, BLOCK_BYTES);
    let first: Message<ToChild> = receiver.next().map_err(|error| no_message(&error))?;
    channel::set_limits(&again, None, None).map_err(|error| no_message(&error))?;
    let ToChild::Start { protocol, id, image, max_level, limits, is_grouped } = first.content else {
        return Err("no first message".into());
    };
    let refuse = |reason: String| {
        // A failure here cannot be reported to anyone.
        let _ = sender.send(&ToHost::Refused { reason: reason.clone() }, Vec::new(), None);
        reason
    };
    if protocol != PROTOCOL {
        return Err(refuse(
            "the service's binary was replaced while the service runs; restart the service".into(),
        ));
    }
    confine(&id, &limits, is_grouped).map_err(|error| refuse(format!("cannot be confined: {error}")))?;
    MAX_LEVEL.store(max_level, Ordering::Relaxed);
    let link = Link::new(sender, &id).map_err(|error| error.message)?;
    // The host has one call open at a time, so this queue stays short.
    let (jobs, queue) = mpsc::channel();
    let on_control = link.clone();
    let control = thread::Builder::new().name(format!("c:{id}"));
    control.spawn(move || control_thread(&on_control, &image, &queue)).map_err(|error| error.to_string())?;
    link.start_ticker(&id).map_err(|error| error.to_string())?;
    Ok((link, receiver, jobs))
}

fn read(link: &Arc<Link>, mut receiver: Receiver, jobs: &mpsc::Sender<Job>) -> ExitCode {
    loop {
        let message = match receiver.next() {
            Ok(message) => message,
            Err(ChannelError::TimedOut) => continue,
            Err(_) => die(),
        };
        let Message { content, bytes, descriptor, .. } = message;
        let job = match content {
            ToChild::Call { call, ask } => Job::Call(call, Box::new(ask)),
            ToChild::End => Job::End,
            ToChild::Media { dest, packets } => {
                link.take_media(dest, packets, bytes);
                continue;
            }
            ToChild::MediaEnd { dest } => {
                link.end_media(dest);
                continue;
            }
            ToChild::Answer { call, outcome } => {
                link.answered(call, outcome, descriptor);
                continue;
            }
            ToChild::BodyReleased { body } => {
                link.body_released(body);
                continue;
            }
            ToChild::Start { .. } => continue,
        };
        if jobs.send(job).is_err() {
            die();
        }
    }
}

fn control_thread(link: &Arc<Link>, image: &str, jobs: &mpsc::Receiver<Job>) {
    let driver = match load(link, image) {
        Ok(driver) => driver,
        Err(reason) => {
            link.send(&ToHost::Refused { reason });
            return;
        }
    };
    let mut instances = HashMap::new();
    while let Ok(Job::Call(call, ask)) = jobs.recv() {
        let outcome = answer(link, &driver, &mut instances, *ask);
        link.send(&ToHost::Answer { call, outcome });
    }
    driver.shut_down();
    std::process::exit(0);
}

fn load(link: &Arc<Link>, image: &str) -> Result<Driver, String> {
    let table = loader::open(Path::new(image)).map_err(|error| error.to_string())?;
    let manifest = serde_json::to_string(table.manifest()).map_err(|error| error.to_string())?;
    let (id, version, is_lossless) = (table.id().to_owned(), table.version().to_owned(), table.is_lossless());
    link.send(&ToHost::Loaded { id, version, manifest, is_lossless });
    let services = Arc::new(Proxy::new(link.clone()));
    let driver = Driver::start(table, services, &MAX_LEVEL, 0).map_err(|error| error.message)?;
    let recordings = driver.recordings();
    let reads_recordings = recordings.as_ref().is_some_and(Recordings::can_read);
    link.send(&ToHost::Ready { keeps_recordings: recordings.is_some(), reads_recordings });
    Ok(driver)
}

/// Calls the library.
fn answer(
    link: &Arc<Link>,
    driver: &Driver,
    instances: &mut HashMap<u64, Instance>,
    ask: Ask,
) -> Result<Reply, Error> {
    let taken = |()| Reply::Taken(true);
    match ask {
        Ask::Validate { kind, config } => driver.validate(&kind, &config).map(taken),
        Ask::Open(ToOpen { dest, source, kind, config, about }) => {
            let queue = Arc::new(RemoteQueue::new(link.pump.clone(), link.ticker.clone()));
            link.add_queue(dest, &queue);
            let opened = driver.open(dest, source, &kind, &config, &about, queue);
            if opened.is_err() {
                link.forget(dest);
            }
            instances.insert(dest, opened?);
            Ok(Reply::Taken(true))
        }
        Ask::Reconfigure { dest, config } => {
            let instance = instances.get(&dest);
            instance.map_or(Ok(false), |instance| instance.reconfigure(&config)).map(Reply::Taken)
        }
        Ask::Stop { dest, deadline_ms } => {
            instances.get(&dest).into_iter().for_each(|instance| instance.stop(deadline_ms));
            Ok(Reply::Taken(true))
        }
        Ask::Destroy { dest } => {
            instances.remove(&dest).into_iter().for_each(Instance::destroy);
            link.forget(dest);
            Ok(Reply::Taken(true))
        }
        Ask::Request { dest, token, request } => {
            link.asked(token);
            Ok(Reply::Taken(driver.http().map(|http| http.request(dest, token, &request)).is_some()))
        }
        Ask::Recordings => recordings(driver)?.list().map(Reply::Recordings),
        Ask::Sign { names, valid } => {
            let recordings = recordings(driver)?;
            Ok(Reply::Signed(names.iter().map(|name| recordings.sign(name, valid).ok()).collect()))
        }
        Ask::Retry { request, file_name } => {
            recordings(driver)?.retry(&file_name, done_reporter(link, request));
            Ok(Reply::Taken(true))
        }
        Ask::Delete { request, file_name, remote } => {
            recordings(driver)?.delete(&file_name, remote, done_reporter(link, request));
            Ok(Reply::Taken(true))
        }
        Ask::Probe { request, kind, config } => {
            recordings(driver)?.probe(&kind, &config, done_reporter(link, request));
            Ok(Reply::Taken(true))
        }
        Ask::Read { request, file_name, offset, len } => {
            recordings(driver)?.read(&file_name, offset, len, bytes_reporter(link, request));
            Ok(Reply::Taken(true))
        }
        Ask::Index { request, file_name, first, most } => {
            recordings(driver)?.index(&file_name, first, most, bytes_reporter(link, request));
            Ok(Reply::Taken(true))
        }
        Ask::Keep { request, kind, config, file } => {
            recordings(driver)?.keep(&kind, &config, &file, done_reporter(link, request));
            Ok(Reply::Taken(true))
        }
        Ask::Configured { destination_id, kind, config } => {
            recordings(driver)?.configured(destination_id, &kind, config.as_deref()).map(taken)
        }
        Ask::Announced { file_name, expires_at_ms } => {
            recordings(driver)?.announced(&file_name, expires_at_ms).map(taken)
        }
    }
}

fn recordings(driver: &Driver) -> Result<Recordings, Error> {
    driver.recordings().ok_or_else(|| Error::internal("the driver keeps no recordings"))
}

/// Reports the outcome of a request to the host.
fn done_reporter(link: &Arc<Link>, request: u64) -> Done {
    let report = bytes_reporter(link, request);
    Box::new(move |outcome| report(outcome.map(|()| Bytes::new())))
}

/// The same for bytes that were asked for.
fn bytes_reporter(link: &Arc<Link>, request: u64) -> BytesDone {
    let link = link.clone();
    Box::new(move |outcome: Result<Bytes, Error>| {
        let (outcome, bytes) = match outcome {
            Ok(bytes) => (Ok(()), vec![bytes]),
            Err(error) => (Err(error), Vec::new()),
        };
        link.send_with(&ToHost::Done { request, outcome }, bytes, None);
    })
}

#[cfg(test)]
mod tests;
