//! Restarts when the service cannot provide a child's resources.

use std::path::PathBuf;
use std::thread;

use parking_lot::{Condvar, Mutex};

use super::super::super::ToOpen;
use super::super::super::session::tests::{Deaf, Source, begin};
use super::super::super::shortage::tests::{in_a_process_with_few_files, take_all_files};
use super::super::super::spawn::Spec;
use super::super::Hooks;
use super::*;
use crate::run::Loaded;
use crate::run::control::{Backend, Control};
use crate::run::pump::Pump;
use crate::run::services::tests::with_pump;
use satcast_core::clock::Clock;
use satcast_core::config::ProcessLimits;
use satcast_plugin_api::recording::About;

fn remote(exe: &str) -> Arc<Remote> {
    remote_with(exe, Box::new(|_, _| false))
}

fn remote_with(exe: &str, fault: super::super::Fault) -> Arc<Remote> {
    let exe = PathBuf::from(exe);
    let spec = Spec { image: exe.clone(), exe, id: "t".into(), limits: ProcessLimits::default() };
    let parts = Parts {
        spec,
        services: Arc::new(Deaf),
        pump: Arc::new(Pump::start("t").unwrap()),
        clock: Clock::system(),
        max_level: 3,
        hooks: Hooks { accept: Box::new(|_| Ok(())), up: Box::new(|| {}), fault },
    };
    Arc::new(Remote {
        parts,
        state: Mutex::new(State::Starting),
        changed: Condvar::new(),
        keeps_recordings: false.into(),
        reads_recordings: false.into(),
        bisection: Mutex::default(),
        crashed: 0.into(),
        ended_in: 0.into(),
    })
}

const NAME: &str =
    "run::process::remote::supervise::tests::a_shortage_of_descriptors_waits_and_counts_as_no_crash";

#[test]
fn a_shortage_of_descriptors_waits_and_counts_as_no_crash() {
    if !in_a_process_with_few_files(NAME) {
        return;
    }
    let remote = remote("/bin/true");
    let taken = take_all_files();
    let too_many_open = std::io::Error::from_raw_os_error(libc::EMFILE).to_string();
    let end = remote.one_child(&mut None);
    assert!(end.why.contains(&too_many_open) && end.why.contains("LimitNOFILE"), "{}", end.why);
    assert_eq!(end.cause, Cause::Shortage);
    let supervised = remote.clone();
    let supervisor = thread::spawn(move || supervised.supervise(None));
    while !matches!(*remote.state.lock(), State::Down { .. }) {
        thread::sleep(Duration::from_millis(5));
    }
    assert!(remote.trouble().unwrap().contains("LimitNOFILE"), "the operator sees the remedy");
    assert_eq!(remote.crashed(), 0);
    remote.end();
    supervisor.join().unwrap();
    drop(taken);
    let end = remote.one_child(&mut None);
    let fault = Cause::Fault(BTreeSet::new());
    assert_eq!((end.why.as_str(), end.cause), ("ended with exit code 0", fault), "it is started again");
}

#[test]
fn an_end_by_itself_is_a_crash() {
    let remote = remote("/bin/true");
    let supervised = remote.clone();
    let supervisor = thread::spawn(move || supervised.supervise(None));
    while remote.crashed() < 2 {
        thread::sleep(Duration::from_millis(5));
    }
    remote.end();
    supervisor.join().unwrap();
}

#[test]
fn a_failed_start_is_no_crash() {
    let end = remote("/nowhere/satcast").one_child(&mut None);
    assert!(end.why.starts_with(&not_started("/nowhere/satcast".as_ref())), "{}", end.why);
    assert_eq!(end.cause, Cause::Shortage);
}

#[test]
fn a_child_that_is_not_started_text() {
    assert_eq!(not_started("/nowhere/satcast".as_ref()), "cannot be started as /nowhere/satcast");
}

#[test]
fn waits_grow_while_a_process_ends_with_no_account_inside() {
    let remote = remote_with("/bin/true", Box::new(|account, _| account == 7));
    let end = |cause| End { why: "crashed".into(), cause };
    let crash = |inside: &[i64]| end(Cause::Fault(inside.iter().copied().collect()));
    let mut ends = 0;
    let mut after = |end: &End| remote.wait_after(end, &mut ends);
    assert_eq!(after(&crash(&[])), (RESTART_WAIT_MIN, None));
    assert_eq!(after(&crash(&[])), (2 * RESTART_WAIT_MIN, None));
    assert_eq!(after(&crash(&[7, 8, 9])), (RESTART_WAIT_MIN, None));
    assert_eq!(after(&crash(&[8])), (RESTART_WAIT_MIN, Some(8)));
    assert!(remote.bisection.lock().admit(9, Duration::ZERO).is_err(), "the search runs");
    assert_eq!(after(&crash(&[7])), (RESTART_WAIT_MIN, Some(7)));
    assert!(
        remote.bisection.lock().admit(8, Duration::ZERO).is_ok(),
        "the account is set aside and the search is over"
    );
    assert_eq!(remote.crashed(), 5);
    for _ in 0..3 {
        assert_eq!(after(&end(Cause::Spent)), (RESTART_WAIT_MIN, None));
    }
    assert_eq!(remote.crashed(), 5, "that is no crash");
    let waits: Vec<Duration> = (0..6).map(|_| after(&end(Cause::Shortage)).0).collect();
    assert_eq!((waits[0], waits[5]), (RESTART_WAIT_MIN, SHORTAGE_WAIT_MAX));
}

#[tokio::test]
async fn a_hanging_opening_counts_only_as_the_end_of_the_process() {
    let (remote, both, (services, pump)) = (remote("/bin/true"), begin(), with_pump());
    *remote.state.lock() = State::Up(both.session.clone());
    let backend = Backend::Process(remote.clone());
    let control = Control::start("t", Clock::system(), move || Ok(backend)).unwrap();
    let loaded = Loaded {
        control,
        pump,
        services: Arc::new(services),
        remote: Some(remote.clone()),
        takes_archive: false,
    };
    let about = About { account_id: 7, ..About::default() };
    let opened = remote.open(&ToOpen { dest: 2, about, ..ToOpen::default() }, Arc::<Source>::default());
    let error = opened.map(drop).unwrap_err();
    loaded.note(7, 2, &error);
    assert_eq!(loaded.services.panicked(), 0);
    loaded.note(7, 1, &error);
    assert_eq!(loaded.services.panicked(), 1, "another destination, which panicked");
}

#[test]
fn a_process_that_is_being_ended_is_not_available() {
    let (remote, both) = (remote("/bin/true"), begin());
    *remote.state.lock() = State::Up(both.session.clone());
    assert!(remote.may_open(7).is_ok());
    both.session.fail("did nothing");
    assert!(remote.may_open(7).is_err());
}

#[test]
fn waits_grow_to_a_limit() {
    let waits: Vec<u64> = (0..9).map(|n| restart_wait(n, RESTART_WAIT_MAX).as_millis() as u64).collect();
    assert_eq!(waits, [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000, 30_000]);
    assert_eq!(restart_wait(9, SHORTAGE_WAIT_MAX), SHORTAGE_WAIT_MAX);
}
