//! The child: a small host that loads one library and passes everything on.
//!
//! Threads: the first one reads the socket and runs no code of the library; *control* calls into the library; *pump* runs its
//! wakers and callbacks; *ticker* sends what may wait a moment.

mod link;
mod media;
mod recordings;
mod services;

use std::collections::HashMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, Signal};
use satcast_plugin_api::host::{Driver, HttpRequest, Instance};
use satcast_plugin_api::http::Method;
use satcast_plugin_api::recording::About;
use satcast_plugin_api::{Audience, Error};

use self::link::Link;
use self::media::RemoteQueue;
use self::recordings::Asked;
use self::services::Proxy;
use super::channel::{Channel, ChannelError, MESSAGE_BYTES_MAX};
use super::handed::sealed_memory;
use super::memory::SharedView;
use super::message::{self, Failure, Message, PROTOCOL, ToChild, ToHost};
use super::{BYTES_PER_MB, SHARED_BYTES};
use crate::config::ProcessLimits;
use crate::drivers::{MAX_LEVEL, loader};

/// Exit code of a child that was not started by the service.
const EXIT_NO_HOST: u8 = 3;
/// How long the first message may take.
const FIRST_MESSAGE_WAIT: Duration = Duration::from_secs(5);
/// How often what may wait is sent: counters and packets let go of.
const TICK: Duration = Duration::from_millis(200);
/// What private memory may be asked for beyond twice the limit: stacks of threads, which are not used to their end. The host looks at what is
/// used (`usage`); this is for who is quicker than it looks.
const ASKED_HEADROOM: u64 = 1024 * 1024 * 1024;
/// What the allocator reserves for each processor: eight arenas of 64 MiB, twice that while they are made.
const ADDRESS_PER_CPU: u64 = 1024 * 1024 * 1024;

/// What the library is called for.
enum Job {
    Validate {
        call: u64,
        kind: String,
        config: String,
    },
    Open {
        call: u64,
        dest: u64,
        source: u64,
        kind: String,
        config: String,
        about: About,
    },
    Reconfigure {
        call: u64,
        dest: u64,
        config: String,
    },
    Stop {
        call: u64,
        dest: u64,
        deadline_ms: u32,
    },
    Destroy {
        call: u64,
        dest: u64,
    },
    /// About recordings.
    Recordings(Asked),
    /// Of a viewer.
    Request {
        call: u64,
        request: HttpRequest,
    },
    End,
}

/// Body of the child; its standard input is the socket. Returns only when there is none.
pub fn run() -> ExitCode {
    match begin() {
        Ok((link, jobs)) => read(&link, &jobs),
        Err(reason) => {
            eprintln!("{reason}; this command is for the service itself");
            ExitCode::from(EXIT_NO_HOST)
        }
    }
}

fn begin() -> Result<(Arc<Link>, Sender<Job>), String> {
    let channel = take_socket().map_err(|error| format!("no socket: {error}"))?;
    let no_message = |error: &dyn std::fmt::Debug| format!("no first message: {error:?}");
    channel.set_limits(None, Some(FIRST_MESSAGE_WAIT)).map_err(|error| no_message(&error))?;
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    let (len, descriptors) = channel.recv(&mut buffer).map_err(|error| no_message(&error))?;
    channel.set_limits(None, None).map_err(|error| no_message(&error))?;
    let Ok(Message::Text(first)) = message::read::<ToChild>(&buffer[..len]) else {
        return Err("no first message".into());
    };
    let ToChild::Start { protocol, id, image, max_level, limits } = *first else {
        return Err("no first message".into());
    };
    if protocol != PROTOCOL {
        return Err(refuse(&channel, "the service's binary was replaced while it runs; restart it"));
    }
    if let Err(error) = confine(&id, &limits) {
        return Err(refuse(&channel, &format!("cannot be confined: {error}")));
    }
    let view = descriptors.first().ok_or("no shared memory")?;
    let view = match SharedView::open(view) {
        Ok(view) => view,
        Err(error) => return Err(refuse(&channel, &format!("cannot map the shared memory: {error}"))),
    };
    MAX_LEVEL.store(max_level, Ordering::Relaxed);
    let link = Link::new(channel, view, &id).map_err(|error| error.message)?;
    let (jobs, queue) = channel_of_jobs();
    let on_control = link.clone();
    let control = thread::Builder::new().name(format!("c:{id}"));
    control.spawn(move || control_thread(&on_control, &image, &queue)).map_err(|error| error.to_string())?;
    let ticking = link.clone();
    let ticker = thread::Builder::new().name(format!("t:{id}"));
    let tick = move || loop {
        thread::sleep(TICK);
        ticking.flush();
    };
    ticker.spawn(tick).map_err(|error| error.to_string())?;
    Ok((link, jobs))
}

fn channel_of_jobs() -> (Sender<Job>, Receiver<Job>) {
    // The host has one call open at a time, so this stays short.
    channel()
}

fn refuse(channel: &Channel, reason: &str) -> String {
    // Nobody is left to be told when this fails.
    let _ = channel.send(&message::text(&ToHost::Refused { reason: reason.to_owned() }), &[]);
    reason.to_owned()
}

/// Takes the socket from standard input and leaves an empty file there.
fn take_socket() -> std::io::Result<Channel> {
    let socket: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned()?;
    rustix::stdio::dup2_stdin(std::fs::File::open("/dev/null")?)?;
    Ok(Channel::new(socket))
}

/// What is set before the library is there; it binds what the library starts, too.
fn confine(id: &str, limits: &ProcessLimits) -> std::io::Result<()> {
    // The socket's end would tell as well, but only this thread.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    rustix::thread::set_no_new_privs(true)?;
    // What the library starts stays below this process, where the host sees it.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    let limit = |resource, value| {
        // More than the service itself may use is not to be had.
        let most = rustix::process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
        let value = Some(most.min(value));
        rustix::process::setrlimit(resource, Rlimit { current: value, maximum: value })
    };
    limit(Resource::Core, 0)?;
    let memory = limits.memory_mb.saturating_mul(BYTES_PER_MB);
    let asked = memory.saturating_mul(2).saturating_add(ASKED_HEADROOM);
    limit(Resource::Data, asked)?;
    let cpus = thread::available_parallelism().map_or(1, |cpus| cpus.get() as u64);
    let beside = (SHARED_BYTES as u64).saturating_add(cpus.saturating_mul(ADDRESS_PER_CPU));
    limit(Resource::As, asked.saturating_add(beside))?;
    limit(Resource::Nofile, limits.open_files)?;
    if limits.cpu_secs > 0 {
        limit(Resource::Cpu, limits.cpu_secs)?;
    }
    // Only for people who look at the process list; the name is a driver id, which holds no NUL.
    if let Ok(name) = std::ffi::CString::new(format!("driver:{id}")) {
        let _ = rustix::thread::set_name(&name);
    }
    Ok(())
}

/// Without a host there is nothing left to do, and nothing of the library shall run any more.
fn die() -> ! {
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
    std::process::abort()
}

fn read(link: &Arc<Link>, jobs: &Sender<Job>) -> ExitCode {
    let mut buffer = vec![0; MESSAGE_BYTES_MAX];
    loop {
        let (len, descriptors) = match link.channel.recv(&mut buffer) {
            Ok(received) => received,
            // The library has all descriptors in use: what needs what came beside the message fails alone.
            Err(ChannelError::Short(len)) => (len, Vec::new()),
            Err(ChannelError::TimedOut) => continue,
            Err(_) => die(),
        };
        match message::read::<ToChild>(&buffer[..len]) {
            Ok(Message::Media(batch)) => link.take_media(&batch),
            Ok(Message::Text(message)) => dispatch(link, jobs, *message, descriptors),
            Ok(Message::Demand(_)) | Err(_) => die(),
        }
    }
}

fn dispatch(link: &Arc<Link>, jobs: &Sender<Job>, message: ToChild, descriptors: Vec<OwnedFd>) {
    let job = match message {
        ToChild::Validate { call, kind, config } => Job::Validate { call, kind, config },
        ToChild::Open { call, dest, source, kind, config, about } => {
            Job::Open { call, dest, source, kind, config, about }
        }
        ToChild::Reconfigure { call, dest, config } => Job::Reconfigure { call, dest, config },
        ToChild::Stop { call, dest, deadline_ms } => Job::Stop { call, dest, deadline_ms },
        ToChild::Destroy { call, dest } => Job::Destroy { call, dest },
        ToChild::Request { call, dest, token, is_head, is_preview, path, query } => {
            link.asked(token);
            let method = if is_head { Method::Head } else { Method::Get };
            let audience = if is_preview { Audience::Preview } else { Audience::Hosted };
            Job::Request { call, request: HttpRequest { dest, token, method, audience, path, query } }
        }
        ToChild::Recordings { call } => Job::Recordings(Asked::List { call }),
        ToChild::Sign { call, valid_secs } => {
            Job::Recordings(Asked::Sign { call, valid: Duration::from_secs(valid_secs), names: descriptors })
        }
        ToChild::Retry { call, request, file_name } => {
            Job::Recordings(Asked::Retry { call, request, file_name })
        }
        ToChild::Delete { call, request, file_name, remote } => {
            Job::Recordings(Asked::Delete { call, request, file_name, remote })
        }
        ToChild::Probe { call, request, kind, config } => {
            Job::Recordings(Asked::Probe { call, request, kind, config })
        }
        ToChild::Configured { call, destination_id, kind, config } => {
            Job::Recordings(Asked::Configured { call, destination_id, kind, config })
        }
        ToChild::End => Job::End,
        ToChild::MediaEnd { dest } => return link.end_media(dest),
        ToChild::Connected { call, failure } => {
            return link.connected(call, failure, descriptors.into_iter().next());
        }
        ToChild::Answer { call, outcome } => return link.answered(call, outcome),
        ToChild::BodyReleased { body } => return link.body_released(body),
        // This thread must not wait; if there is no room, the host has enough of us to read.
        ToChild::Ping => {
            let _ = link.channel.try_send(&message::text(&ToHost::Pong));
            return;
        }
        ToChild::Start { .. } => return,
    };
    if jobs.send(job).is_err() {
        die();
    }
}

fn control_thread(link: &Arc<Link>, image: &str, jobs: &Receiver<Job>) {
    let driver = match load(link, image) {
        Ok(driver) => driver,
        Err(reason) => {
            link.send(&ToHost::Refused { reason });
            return;
        }
    };
    let mut instances: HashMap<u64, Instance> = HashMap::new();
    while let Ok(job) = jobs.recv() {
        let (call, outcome) = match job {
            Job::Validate { call, kind, config } => (call, driver.validate(&kind, &config).map(|()| true)),
            Job::Open { call, dest, source, kind, config, about } => {
                let queue = Arc::new(RemoteQueue::new(dest, link.clone()));
                link.add_queue(dest, &queue);
                let opened = driver.open(dest, source, &kind, &config, &about, queue);
                if opened.is_err() {
                    link.forget(dest);
                }
                (call, opened.map(|instance| instances.insert(dest, instance).is_none()))
            }
            Job::Reconfigure { call, dest, config } => {
                let instance = instances.get(&dest);
                (call, instance.map_or(Ok(false), |instance| instance.reconfigure(&config)))
            }
            Job::Stop { call, dest, deadline_ms } => {
                if let Some(instance) = instances.get(&dest) {
                    instance.stop(deadline_ms);
                }
                (call, Ok(true))
            }
            Job::Destroy { call, dest } => {
                if let Some(instance) = instances.remove(&dest) {
                    instance.destroy();
                }
                link.forget(dest);
                (call, Ok(true))
            }
            Job::Request { call, request } => {
                (call, Ok(driver.http().map(|http| http.request(&request)).is_some()))
            }
            Job::Recordings(asked) => {
                asked.answer(link, &driver);
                continue;
            }
            Job::End => {
                driver.shut_down();
                std::process::exit(0);
            }
        };
        link.send(&ToHost::Answer { call, outcome: outcome.map_err(Failure::from) });
    }
}

fn load(link: &Arc<Link>, image: &str) -> Result<Driver, String> {
    let table = loader::open(std::path::Path::new(image)).map_err(|error| error.to_string())?;
    let (id, version) = (table.id().to_owned(), table.version().to_owned());
    let manifest = serde_json::to_vec(table.manifest()).map_err(|error| error.to_string())?;
    let services = Arc::new(Proxy::new(link.clone()));
    let in_words = |error: Error| error.message;
    let manifest = sealed_memory(&manifest).map_err(in_words)?;
    let is_lossless = table.is_lossless();
    link.send_with(&ToHost::Loaded { id, version, is_lossless }, &manifest);
    let driver = Driver::start(table, services, &MAX_LEVEL, 0).map_err(in_words)?;
    link.send(&ToHost::Ready { keeps_recordings: driver.recordings().is_some() });
    Ok(driver)
}
