//! R01 to R08 and what others got wrong about giving out slots.

use std::collections::BTreeSet;
use std::time::Duration;

use super::manager::{SlotManager, SlotManagerConfig, SlotManagerOutput};
use super::profile::{ResourceCounter, ResourceProfile};
use super::task_slots::{SlotStatus, TaskSlots, TaskSlotsOutput};
use crate::clock::Timestamp;
use crate::control::driver::{DriverCommand, WorkerSpec};
use crate::control::identity::{AllocationId, JobId, LeaderId, ResourceId};

const NOW: Timestamp = Timestamp::ZERO;

fn rid(id: &str) -> ResourceId {
    ResourceId::new(id).expect("short")
}

fn profile() -> ResourceProfile {
    ResourceProfile::default()
}

fn needs(count: u32) -> ResourceCounter {
    ResourceCounter::of(profile(), count)
}

fn blocked(ids: &[&str]) -> BTreeSet<ResourceId> {
    ids.iter().map(|id| rid(id)).collect()
}

fn manager(can_request: bool) -> SlotManager {
    SlotManager::new(SlotManagerConfig {
        worker: WorkerSpec { slots: 5, profile: profile() },
        can_request,
        idle_timeout: Duration::from_secs(30),
        slots_max: None,
        blocked_exceed_limit: false,
        term: LeaderId(1),
    })
}

fn free_slots(count: u32) -> Vec<SlotStatus> {
    (0..count).map(|index| SlotStatus { index, holder: None }).collect()
}

fn drive(manager: &mut SlotManager, blocked: &BTreeSet<ResourceId>) -> Vec<SlotManagerOutput> {
    let mut out = Vec::new();
    manager.check_resource_requirements(blocked, &mut out);
    out
}

fn workers(out: &[SlotManagerOutput]) -> usize {
    let asks = |o: &&SlotManagerOutput| {
        matches!(o, SlotManagerOutput::Driver(DriverCommand::RequestWorker(_)))
    };
    out.iter().filter(asks).count()
}

fn granted(out: &[SlotManagerOutput]) -> Vec<(String, AllocationId)> {
    let grants = out.iter().filter_map(|o| match o {
        SlotManagerOutput::RequestSlot { task_manager, allocation, .. } => {
            Some((task_manager.to_string(), *allocation))
        }
        SlotManagerOutput::Driver(_) | SlotManagerOutput::NotEnoughSlots { .. } => None,
    });
    grants.collect()
}

#[test]
fn r01_a_blocklisted_task_manager_fulfils_nothing() {
    let mut manager = manager(true);
    manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(5));
    manager.declare_requirements(JobId(1), needs(10));
    let out = drive(&mut manager, &blocked(&["tm"]));
    assert_eq!((granted(&out).len(), workers(&out)), (0, 2));
}

#[test]
fn r02_a_blocklisted_free_slot_makes_exactly_one_worker_be_requested() {
    let mut manager = manager(true);
    manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1));
    manager.declare_requirements(JobId(1), needs(1));
    assert_eq!(workers(&drive(&mut manager, &blocked(&["tm"]))), 1);
    assert_eq!(workers(&drive(&mut manager, &blocked(&["tm"]))), 0, "it is under way");
}

#[test]
fn r03_the_overview_counts_blocked_slots_apart() {
    let mut manager = manager(true);
    manager.register_task_manager(NOW, &rid("tm1"), profile(), &free_slots(3));
    manager.register_task_manager(NOW, &rid("tm2"), profile(), &free_slots(5));
    let overview = manager.overview(&blocked(&["tm2"]));
    let numbers = (overview.task_managers, overview.slots, overview.free_slots);
    assert_eq!(numbers, (2, 8, 3));
    assert_eq!((overview.blocked_task_managers, overview.blocked_free_slots), (1, 5));
}

#[test]
fn r04_an_unblocked_task_manager_serves_what_waits_and_the_worker_is_cancelled() {
    let mut manager = manager(true);
    manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1));
    manager.declare_requirements(JobId(1), needs(1));
    assert_eq!(workers(&drive(&mut manager, &blocked(&["tm"]))), 1);
    let out = drive(&mut manager, &BTreeSet::new());
    assert_eq!(granted(&out).len(), 1);
    let worker = WorkerSpec { slots: 5, profile: profile() };
    assert!(out.contains(&SlotManagerOutput::Driver(DriverCommand::CancelRequest(worker))));
    assert_eq!(manager.pending_workers(), 0);
}

#[test]
fn r05_a_managed_idle_task_manager_on_a_blocked_node_is_ended_at_once_and_stays_away() {
    let mut managed = manager(true);
    managed.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1));
    let mut out = Vec::new();
    managed.release_idle(NOW, &blocked(&["tm"]), &mut out);
    assert_eq!(out, [SlotManagerOutput::Driver(DriverCommand::ReleaseWorker(rid("tm")))]);
    let mut standalone = manager(false);
    standalone.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1));
    out.clear();
    standalone.release_idle(NOW, &blocked(&["tm"]), &mut out);
    assert!(out.is_empty() && standalone.is_registered(&rid("tm")), "nobody would start it again");
}

#[test]
fn b15_an_ended_task_manager_can_not_register_again() {
    let mut manager = manager(true);
    manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1));
    manager.release_idle(NOW, &blocked(&["tm"]), &mut Vec::new());
    assert!(!manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1)));
}

#[test]
fn r06_standalone_with_everything_blocked_says_what_would_help() {
    let mut manager = manager(false);
    manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(2));
    manager.declare_requirements(JobId(1), needs(2));
    let out = drive(&mut manager, &blocked(&["tm"]));
    let expected = SlotManagerOutput::NotEnoughSlots {
        job: JobId(1),
        missing: 2,
        blocklisted: vec![rid("tm")],
    };
    assert_eq!(out, [expected]);
    assert_eq!(granted(&drive(&mut manager, &BTreeSet::new())).len(), 2, "after the block");
}

#[test]
fn b07_blocked_slots_are_not_available_and_may_be_replaced_beyond_the_limit() {
    for (exceed, expected) in [(false, 0), (true, 1)] {
        let mut manager = SlotManager::new(SlotManagerConfig {
            worker: WorkerSpec { slots: 5, profile: profile() },
            can_request: true,
            idle_timeout: Duration::from_secs(30),
            slots_max: Some(5),
            blocked_exceed_limit: exceed,
            term: LeaderId(1),
        });
        manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(5));
        manager.declare_requirements(JobId(1), needs(2));
        assert_eq!(workers(&drive(&mut manager, &blocked(&["tm"]))), expected);
    }
}

#[test]
fn b08_a_fully_blocked_cluster_asks_for_new_workers() {
    let mut manager = manager(true);
    for tm in ["tm1", "tm2"] {
        manager.register_task_manager(NOW, &rid(tm), profile(), &free_slots(1));
    }
    manager.declare_requirements(JobId(1), needs(1));
    let all = blocked(&["tm1", "tm2"]);
    assert_eq!(workers(&drive(&mut manager, &all)), 1);
    let mut out = Vec::new();
    manager.release_idle(NOW, &all, &mut out);
    assert_eq!(out.len(), 2, "and ends the idle blocked ones");
}

#[test]
fn b18_a_grant_under_way_on_a_task_manager_that_gets_blocked_is_given_out_again() {
    let mut manager = manager(false);
    manager.register_task_manager(NOW, &rid("tm1"), profile(), &free_slots(2));
    manager.declare_requirements(JobId(1), needs(1));
    assert_eq!(granted(&drive(&mut manager, &BTreeSet::new()))[0].0, "tm1");
    manager.register_task_manager(NOW, &rid("tm2"), profile(), &free_slots(1));
    let out = drive(&mut manager, &blocked(&["tm1"]));
    assert_eq!(
        granted(&out)[0].0,
        "tm2",
        "a pending slot on a blocked task manager does not count"
    );
}

#[test]
fn a_held_slot_on_a_blocked_task_manager_still_counts_for_its_job() {
    let mut manager = manager(true);
    manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1));
    manager.declare_requirements(JobId(1), needs(1));
    let (_, allocation) = granted(&drive(&mut manager, &BTreeSet::new())).remove(0);
    manager.slot_request_answered(NOW, &rid("tm"), allocation, true);
    assert!(drive(&mut manager, &blocked(&["tm"])).is_empty(), "its task runs there");
    manager.slot_freed(NOW, &rid("tm"), allocation);
    assert_eq!(workers(&drive(&mut manager, &blocked(&["tm"]))), 1);
}

#[test]
fn a_task_manager_with_unsent_buffers_is_not_idle() {
    let mut manager = manager(true);
    manager.register_task_manager(NOW, &rid("tm"), profile(), &free_slots(1));
    manager.slot_report(NOW, &rid("tm"), &free_slots(1), false);
    let mut out = Vec::new();
    manager.release_idle(Timestamp::MAX, &blocked(&["tm"]), &mut out);
    assert!(out.is_empty());
    manager.slot_report(NOW, &rid("tm"), &free_slots(1), true);
    manager.release_idle(NOW, &blocked(&["tm"]), &mut out);
    assert_eq!(out.len(), 1);
}

#[test]
fn a_task_manager_frees_what_its_job_master_does_not_know() {
    let (mut slots, mut out) = (TaskSlots::new(2, profile(), Duration::from_secs(10)), Vec::new());
    for (index, allocation) in [(0, AllocationId(1)), (1, AllocationId(2))] {
        assert!(slots.grant(NOW, index, JobId(1), allocation, &mut out));
    }
    let both = [AllocationId(1), AllocationId(2)];
    slots.answered(JobId(1), &both, &both, &mut out);
    out.clear();
    slots.reconcile(JobId(1), &BTreeSet::from([AllocationId(2)]), &mut out);
    assert_eq!(out, [TaskSlotsOutput::Freed { index: 0, allocation: AllocationId(1) }]);
    out.clear();
    slots.job_master_lost(NOW, JobId(1));
    assert_eq!(slots.deadline(), Some(Timestamp::from_millis(10_000)));
    slots.tick(Timestamp::from_millis(10_000), &mut out);
    assert_eq!(out, [TaskSlotsOutput::Freed { index: 1, allocation: AllocationId(2) }]);
}

/// A job master gave a slot up while a second offer of it was under way, took it again, and sent tasks to a slot that nobody had.
#[test]
fn a_slot_that_is_accepted_after_it_was_freed_is_told_to_be_gone() {
    let (mut slots, mut out) = (TaskSlots::new(1, profile(), Duration::from_secs(10)), Vec::new());
    let (job, slot) = (JobId(1), AllocationId(1));
    assert!(slots.grant(Timestamp::ZERO, 0, job, slot, &mut out));
    slots.free(slot, &mut out);
    out.clear();
    slots.answered(job, &[slot], &[slot], &mut out);
    assert_eq!(out, [TaskSlotsOutput::Gone(job, slot)]);
    out.clear();
    slots.answered(job, &[slot], &[], &mut out);
    assert_eq!(out, [], "neither has it");
}

/// A task manager with unsent buffers is not ended, but its idle timeout stayed the next deadline for ever: the control thread span.
#[test]
fn a_task_manager_that_still_sends_has_no_deadline() {
    let (mut manager, mut out) = (manager(true), Vec::new());
    manager.register_task_manager(Timestamp::ZERO, &rid("tm1"), profile(), &free_slots(1));
    assert!(manager.deadline().is_some());
    manager.slot_report(Timestamp::ZERO, &rid("tm1"), &free_slots(1), false);
    assert_eq!(manager.deadline(), None);
    manager.slot_report(Timestamp::ZERO, &rid("tm1"), &free_slots(1), true);
    let due = manager.deadline().expect("it is quiet and idle");
    manager.release_idle(due, &blocked(&[]), &mut out);
    assert_eq!(out.len(), 1);
}
