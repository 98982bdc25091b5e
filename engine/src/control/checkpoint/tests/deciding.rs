//! RD: which request starts when.

use std::time::Duration;

use super::rig::*;
use crate::clock::Timestamp;
use crate::control::checkpoint::config::CoordinatorConfig;
use crate::control::checkpoint::decider::{Decision, Load, RequestDecider};
use crate::control::checkpoint::failure::FailureReason;
use crate::control::checkpoint::message::Outcome;
use crate::control::checkpoint::options::SnapshotKind;
use crate::control::checkpoint::request::{Origin, Request, RequestId};

fn request(origin: Origin, kind: SnapshotKind) -> Request {
    Request { origin, kind, at: Timestamp::ZERO }
}

fn periodic() -> Request {
    request(Origin::Periodic, SnapshotKind::Checkpoint)
}

fn user(id: u64) -> Request {
    request(Origin::User(RequestId(id)), SnapshotKind::Checkpoint)
}

fn savepoint(id: u64) -> Request {
    request(Origin::User(RequestId(id)), SnapshotKind::Savepoint)
}

fn decider(queue_max: usize) -> RequestDecider {
    RequestDecider::new(1, Duration::ZERO, queue_max)
}

fn pending(pending: usize) -> Load {
    Load { pending, ..Load::default() }
}

#[test]
fn rd_01_a_forced_request_starts_at_the_limit() {
    let mut decider = decider(10);
    decider.submit(savepoint(1));
    assert_eq!(decider.next(Timestamp::ZERO, pending(1)), Decision::Start(savepoint(1)));
}

#[test]
fn rd_02_a_normal_request_waits_for_the_limit() {
    let mut decider = decider(10);
    decider.submit(user(1));
    assert_eq!(decider.next(Timestamp::ZERO, pending(1)), Decision::Wait);
    assert_eq!(decider.next(Timestamp::ZERO, pending(0)), Decision::Start(user(1)));
}

#[test]
fn rd_03_nothing_starts_while_too_many_are_being_discarded() {
    let mut decider = decider(10);
    decider.submit(savepoint(1));
    let cleaning = |cleaning| Load { cleaning, ..Load::default() };
    assert_eq!(decider.next(Timestamp::ZERO, cleaning(2)), Decision::Wait);
    assert_eq!(decider.next(Timestamp::ZERO, cleaning(1)), Decision::Start(savepoint(1)));
}

#[test]
fn rd_04_a_savepoint_goes_before_a_periodic_request() {
    let mut decider = decider(10);
    decider.submit(periodic());
    decider.submit(savepoint(1));
    assert_eq!(decider.queued(), [savepoint(1), periodic()]);
}

#[test]
fn rd_05_a_savepoint_takes_the_place_of_a_checkpoint_in_a_full_queue() {
    let mut decider = decider(1);
    decider.submit(periodic());
    assert_eq!(decider.submit(savepoint(1)), Some(periodic()));
    assert_eq!(decider.queued(), [savepoint(1)]);
}

#[test]
fn rd_06_a_full_queue_drops_the_last_periodic_request_or_else_the_new_one() {
    let mut full = decider(2);
    full.submit(user(1));
    full.submit(user(2));
    assert_eq!(full.submit(user(3)), Some(user(3)));
    let mut with_periodic = decider(2);
    with_periodic.submit(periodic());
    with_periodic.submit(user(1));
    assert_eq!(with_periodic.submit(user(2)), Some(periodic()));
    assert_eq!(with_periodic.queued(), [user(1), user(2)]);
}

#[test]
fn rd_06_whoever_does_not_fit_is_told() {
    let config = CoordinatorConfig { queue_max: 1, ..CoordinatorConfig::default() };
    let mut rig = Rig::new(config, topology(&[1], &[]));
    rig.checkpoint();
    rig.checkpoint();
    let reason = FailureReason::TooManyRequests;
    assert_eq!(outcomes(&rig.checkpoint()), [Outcome::Failed { checkpoint: None, reason }]);
}

#[test]
fn rd_07_the_pause_holds_for_periodic_requests_only() {
    let min_pause = Duration::from_millis(10);
    let load = Load { last_completion: Some(Timestamp::ZERO), ..Load::default() };
    let now = Timestamp::from_millis(3);
    let next = |request| {
        let mut decider = RequestDecider::new(1, min_pause, 10);
        decider.submit(request);
        decider.next(now, load)
    };
    assert_eq!(next(periodic()), Decision::TooSoon(periodic(), Timestamp::from_millis(10)));
    assert_eq!(next(user(1)), Decision::Start(user(1)));
    assert_eq!(next(savepoint(1)), Decision::Start(savepoint(1)));
}

#[test]
fn rd_07_the_timer_is_armed_anew_for_the_rest_of_the_pause() {
    let milliseconds = Duration::from_millis;
    let interval = Some(milliseconds(10));
    let config =
        CoordinatorConfig { interval, min_pause: milliseconds(10), ..CoordinatorConfig::default() };
    let mut rig = Rig::new(config, topology(&[1], &[]));
    assert_eq!(triggers(&rig.pass(milliseconds(10))), [(1, task(0, 0))]);
    rig.now = Timestamp::from_millis(17);
    rig.complete(1);
    let out = rig.pass(milliseconds(3));
    assert_eq!(failures(&out), [(None, FailureReason::MinimumTimeBetween)]);
    assert_eq!(rig.coordinator.deadline(), Some(Timestamp::from_millis(27)));
    assert_eq!(triggers(&rig.pass(milliseconds(7))), [(2, task(0, 0))]);
}
