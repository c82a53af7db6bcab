//! Amounts, shares and the order of waiting callers. Nothing depends on time: a polled future either has its permit or not.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};

use super::*;

type Taking<'a> = Pin<Box<dyn Future<Output = Permit<u8>> + 'a>>;

fn take(quota: &Quota<u8>, key: u8, amount: u64) -> Taking<'_> {
    let mut taking: Taking<'_> = Box::pin(quota.take(key, amount));
    assert!(poll(&mut taking).is_none(), "the amount fits: use `now`");
    taking
}

fn poll(taking: &mut Taking<'_>) -> Option<Permit<u8>> {
    match taking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

fn now(quota: &Quota<u8>, key: u8, amount: u64) -> Permit<u8> {
    match pin!(quota.take(key, amount)).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => permit,
        Poll::Pending => panic!("the amount does not fit"),
    }
}

#[test]
fn share_and_total_limit_the_keys() {
    let quota = Quota::new(5, 3);
    let first = quota.try_take(1, 2).unwrap();
    assert_eq!(quota.try_take(1, 2).unwrap_err(), Full::Share);
    let second = quota.try_take(1, 1).unwrap();
    let other = quota.try_take(2, 2).unwrap();
    assert_eq!(quota.try_take(3, 1).unwrap_err(), Full::Total);
    assert_eq!(quota.try_take(1, 1).unwrap_err(), Full::Share, "the share is checked first");
    assert_eq!((quota.taken(), quota.taken_by(&1), quota.keys()), (5, 3, 2));
    drop(first);
    let third = quota.try_take(3, 2).unwrap();
    drop((second, other, third));
    assert_eq!((quota.taken(), quota.keys()), (0, 0), "keys without an amount are removed");
}

#[test]
fn zero_and_overflowing_amounts() {
    let quota = Quota::new(u64::MAX, u64::MAX);
    let nothing = quota.try_take(1, 0).unwrap();
    assert_eq!(quota.keys(), 0);
    let all = quota.try_take(1, u64::MAX).unwrap();
    assert_eq!(quota.try_take(1, 1).unwrap_err(), Full::Share);
    assert_eq!(quota.try_take(2, 1).unwrap_err(), Full::Total);
    drop((nothing, all));
    assert_eq!(Quota::new(0, 1).try_take(1, 1).unwrap_err(), Full::Total);
}

#[test]
fn set_counts_beyond_the_limit() {
    let quota = Quota::new(4, 3);
    let mut found = quota.nothing(1);
    found.set(9);
    assert_eq!((quota.taken(), quota.taken_by(&1)), (9, 9));
    assert_eq!(found.resize(10), Err(Full::Share));
    assert_eq!(quota.try_take(2, 1).unwrap_err(), Full::Total);
    let mut waiting = take(&quota, 2, 2);
    found.set(3);
    assert!(poll(&mut waiting).is_none());
    found.set(2);
    drop(poll(&mut waiting).unwrap());
    found.set(0);
    assert_eq!((quota.taken(), quota.keys()), (0, 0));
}

#[test]
fn a_permit_grows_only_within_the_limits() {
    let quota = Quota::new(10, 6);
    let (mut first, mut second) = (quota.try_take(1, 4).unwrap(), quota.try_take(2, 5).unwrap());
    assert_eq!(first.resize(7), Err(Full::Share));
    assert_eq!(first.resize(6), Err(Full::Total));
    assert_eq!((first.amount(), first.key(), quota.taken()), (4, &1, 9));
    second.resize(1).unwrap();
    first.resize(6).unwrap();
    first.resize(0).unwrap();
    assert_eq!((quota.taken_by(&1), quota.taken()), (0, 1));
}

#[test]
fn waiting_callers_are_served_in_order_and_full_keys_are_skipped() {
    let quota = Quota::new(3, 2);
    let (one, two) = (now(&quota, 1, 2), now(&quota, 2, 1));
    let (mut greedy, mut third, mut fourth) = (take(&quota, 1, 1), take(&quota, 3, 1), take(&quota, 4, 1));
    drop(two);
    assert!(poll(&mut greedy).is_none(), "its share is used up");
    let third = poll(&mut third).unwrap();
    assert!(poll(&mut fourth).is_none());
    drop(one);
    let (greedy, fourth) = (poll(&mut greedy).unwrap(), poll(&mut fourth).unwrap());
    assert_eq!((greedy.key(), third.key(), fourth.key(), quota.taken()), (&1, &3, &4, 3));
}

#[test]
fn a_large_request_is_not_overtaken() {
    let quota = Quota::new(4, 4);
    let held = [now(&quota, 1, 2), now(&quota, 1, 2)];
    let mut large = take(&quota, 2, 3);
    let [first, second] = held;
    drop(first);
    assert_eq!(
        quota.try_take(3, 1).unwrap_err(),
        Full::Total,
        "two are free, reserved for the large request"
    );
    let mut small = take(&quota, 3, 1);
    drop(second);
    let (large, small) = (poll(&mut large).unwrap(), poll(&mut small).unwrap());
    assert_eq!((large.amount(), small.amount()), (3, 1));
    let one = Quota::new(4, 2);
    let held = now(&one, 1, 1);
    let mut more = take(&one, 1, 2);
    assert_eq!(one.try_take(1, 1).unwrap_err(), Full::Share, "not before an earlier request of the same key");
    let other = one.try_take(2, 2).unwrap();
    drop(held);
    assert!(poll(&mut more).is_some());
    drop(other);
}

#[test]
fn a_dropped_request_takes_nothing_and_blocks_nobody() {
    let quota = Quota::new(2, 2);
    let held = now(&quota, 1, 1);
    let large = take(&quota, 2, 2);
    let mut small = take(&quota, 3, 1);
    drop(large);
    let small = poll(&mut small).unwrap();
    // A permit that was granted and not fetched comes back.
    let granted = take(&quota, 4, 1);
    drop(small);
    assert_eq!(quota.taken_by(&4), 1);
    drop(granted);
    drop(held);
    assert_eq!((quota.taken(), quota.keys()), (0, 0));
}

#[test]
fn more_than_a_share_is_taken_as_a_share() {
    let quota = Quota::new(10, 4);
    let all = now(&quota, 1, 100);
    assert_eq!(all.amount(), 4);
    assert_eq!(now(&Quota::new(3, 9), 1, 100).amount(), 3);
    assert_eq!(quota.try_take(2, 100).unwrap_err(), Full::Share);
}

#[test]
fn random_operations_never_exceed_a_limit_and_return_everything() {
    let (total, share) = (20, 7);
    let quota = Quota::new(total, share);
    let (mut held, mut waiting): (Vec<Permit<u8>>, Vec<Taking<'_>>) = Default::default();
    let mut seed = 1_u64;
    let mut random = |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..20_000 {
        let (key, amount) = (random(5) as u8, random(share + 1));
        match random(5) {
            0 => held.extend(quota.try_take(key, amount)),
            1 if waiting.len() < 20 => waiting.push(Box::pin(quota.take(key, amount))),
            2 if !held.is_empty() => drop(held.swap_remove(random(held.len() as u64) as usize)),
            3 if !held.is_empty() => {
                let index = random(held.len() as u64) as usize;
                let _ = held[index].resize(amount);
            }
            4 if !waiting.is_empty() => drop(waiting.swap_remove(random(waiting.len() as u64) as usize)),
            _ => {}
        }
        // Fetching a permit may grant requests that were polled before.
        while let Some((index, permit)) =
            waiting.iter_mut().enumerate().find_map(|(index, taking)| Some((index, poll(taking)?)))
        {
            held.push(permit);
            drop(waiting.swap_remove(index));
        }
        assert_eq!(quota.taken(), held.iter().map(Permit::amount).sum::<u64>());
        assert!(quota.taken() <= total && (0..5).all(|key| quota.taken_by(&key) <= share));
    }
    drop(waiting);
    held.clear();
    assert_eq!((quota.taken(), quota.keys()), (0, 0));
}

#[test]
fn all_threads_are_served() {
    let quota = Quota::new(3, 2);
    std::thread::scope(|scope| {
        for key in 0..4 {
            let quota = quota.clone();
            scope.spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
                for amount in 0..200 {
                    let permit = runtime.block_on(quota.take(key, amount % 3));
                    assert!(quota.taken() <= 3);
                    drop(permit);
                }
            });
        }
    });
    assert_eq!((quota.taken(), quota.keys()), (0, 0));
}
