//! What once went wrong in the job master.
#![expect(clippy::wildcard_enum_match_arm, reason = "a test looks for one kind of output")]

use std::collections::BTreeSet;

use super::scenarios::{Bench, node};
use super::*;
use crate::clock::EpochMillis;
use crate::control::blocklist::Tombstone;
use crate::control::blocklist::item::{BlocklistAction, ItemKey, Version};
use crate::control::evacuation::EvacuationInput;

const M: BlocklistAction = BlocklistAction::MarkBlocklisted;
const E: BlocklistAction = BlocklistAction::MarkAndEvacuate;

/// While cancelled tasks had not answered, the end of the restart's wait stayed the next deadline for ever: the control thread span.
#[test]
fn the_end_of_the_wait_is_no_deadline_while_something_has_yet_to_stop() {
    let mut bench = Bench::build(2, None, 5);
    bench.task_manager("tm1", "n1", 2);
    bench.fail(0, 0);
    bench.stop_canceled();
    assert_eq!(bench.deployed().len(), 8);
    bench.fail(0, 0);
    bench.now = 2_000;
    bench.tell(JobMasterInput::Tick);
    assert_eq!(bench.deployed().len(), 0, "three attempts have not stopped");
    assert!(bench.jm.deadline() > Some(Timestamp::from_millis(bench.now)));
    bench.stop_canceled();
    assert_eq!(bench.deployed().len(), 4);
}

/// A victim that was restarted because another task of its region failed stayed a victim: slots were wanted for it, and an alarm
/// was raised, until the item ended.
#[test]
fn a_victim_that_restarts_for_another_reason_is_no_victim() {
    let mut bench = Bench::new(2, None);
    bench.task_manager("tm1", "n1", 1);
    bench.task_manager("tm2", "n2", 1);
    assert_eq!(bench.deployed().len(), 4);
    bench.block(node("n1"), E);
    assert_eq!(bench.needs(), 3);
    let index = bench.index_on("tm2");
    bench.fail(0, index);
    bench.stop_canceled();
    assert_eq!(bench.needs(), 2, "its slot is given back, and nobody has to leave");
    bench.now = 100_000;
    bench.tell(JobMasterInput::Tick);
    assert_eq!(bench.count(|o| matches!(o, JobMasterOutput::EvacuationStuck(_))), 0);
}

/// A task manager that lost its connection and came back before its loss was noticed kept its executions, which it had ended.
#[test]
fn who_registers_again_has_lost_what_ran_there() {
    let mut bench = Bench::running(None);
    bench.task_manager("tm1", "n1", 2);
    let deployed = bench.deployed();
    assert_eq!(deployed.len(), 4);
    assert!(deployed.iter().all(|(attempt, _)| attempt.attempt.0 == 1), "{deployed:?}");
}

/// A task finished in a checkpoint that completed only while its region was restarting, and was deployed again.
#[test]
fn what_a_checkpoint_records_as_finished_is_left_out_though_it_completes_late() {
    let mut bench = Bench::running(None);
    bench.report(0, 0, TaskReport::Finished);
    bench.fail(1, 0);
    let finished = BTreeSet::from([SubtaskId::new(0, 0)]);
    bench.tell(JobMasterInput::CheckpointCompleted { finished });
    bench.stop_canceled();
    let restored = bench.out.iter().find_map(|o| match o {
        JobMasterOutput::Restore(ids) => Some(ids.len()),
        _ => None,
    });
    assert_eq!((restored, bench.deployed().len()), (Some(3), 3));
}

/// All tasks had finished in the last checkpoint, but one's slot was lost before its report: nothing is left to run.
#[test]
fn a_job_whose_last_checkpoint_has_everything_finished_ends_without_running_again() {
    let mut bench = Bench::running(None);
    let finished = bench.jm.executions().iter().map(|(subtask, _)| subtask).collect();
    bench.tell(JobMasterInput::CheckpointCompleted { finished });
    for (vertex, index) in [(0, 0), (0, 1), (1, 0)] {
        bench.report(vertex, index, TaskReport::Finished);
    }
    bench.fail(1, 1);
    assert_eq!(bench.count(|o| *o == JobMasterOutput::JobFinished), 1);
    assert!(bench.deployed().is_empty());
}

/// The order to evacuate was removed, but somebody's later mark was left: the tasks were moved all the same.
#[test]
fn an_evacuation_ends_with_its_order_though_a_mark_is_left() {
    let mut bench = Bench::running(None);
    let key = node("n1");
    let mut mark = Bench::item(key.clone(), M);
    mark.version = Version { timestamp: 5, ..Version::default() };
    bench.notice(vec![Bench::item(key.clone(), E), mark], Vec::new());
    assert_eq!(bench.needs(), 4);
    let version = Version { timestamp: 1, ..Version::default() };
    let keep_until = EpochMillis(1_000_000);
    bench.notice(Vec::new(), vec![Tombstone { key, version, keep_until }]);
    assert_eq!(bench.needs(), 2);
    assert!(bench.jm.evacuation.victims().is_empty());
}

/// Only what leaves is forgotten.
#[test]
fn a_victim_that_stays_is_kept() {
    let mut bench = Bench::running(None);
    bench.block(node("n1"), E);
    bench.tell(JobMasterInput::Tick);
    assert_eq!(bench.jm.evacuation.victims().len(), 4);
    let mut out = Vec::new();
    let victim = bench.jm.executions().id(SubtaskId::new(0, 0));
    bench.jm.evacuate(Moment::at_millis(0), EvacuationInput::Left(victim), &mut out);
    assert_eq!(bench.jm.evacuation.victims().len(), 3);
}

/// One notice removed the order to leave a node and brought one to leave the task manager there: the evacuation was withdrawn and
/// began again, with a new grace and a second checkpoint.
#[test]
fn an_order_that_takes_the_place_of_another_goes_on_with_its_evacuation() {
    let mut bench = Bench::running(None);
    let order = Bench::item(node("n1"), E);
    let (key, version) = (order.key.clone(), order.version);
    bench.notice(vec![order], Vec::new());
    let deadline = bench.jm.evacuation.deadline();
    let keep_until = EpochMillis(1_000_000);
    let other = ResourceId::new("tm1").expect("short");
    bench.now += 1_000;
    bench.notice(
        vec![Bench::item(ItemKey::TaskManager(other), E)],
        vec![Tombstone { key, version, keep_until }],
    );
    assert_eq!(bench.count(|o| *o == JobMasterOutput::TriggerCheckpoint), 1);
    assert_eq!(bench.jm.evacuation.deadline(), deadline);
    assert_eq!(bench.jm.evacuation.items().len(), 1);
}
