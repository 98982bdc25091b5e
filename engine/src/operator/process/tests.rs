//! The operator driven without a task: timers of both clocks, their order against watermarks, and snapshots in between.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use super::{Context, Process, Processing, States, Timer};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::id::{AttemptId, CheckpointId};
use crate::metrics::Counter;
use crate::operator::{Build, KeyedLogic, Logic, OnError, Op, Signal};
use crate::record::key::hash;
use crate::record::key_group::KeyGroups;
use crate::record::{Data, Feed, Output};
use crate::sink::Readiness;
use crate::state::part::{PartData, RestoredData, RestoredPart, RestoredState, Snapshot};
use crate::state::{TimerDomain, ValueState};

/// What the wall clock shows at the beginning.
const WALL: EpochMillis = EpochMillis(1_000_000);

/// What came out, in order.
#[derive(Clone, Debug, PartialEq)]
enum Seen {
    Record(u64, i64),
    Watermark(i64),
}

/// The end of the chain.
struct Down {
    seen: Rc<RefCell<Vec<Seen>>>,
    batch_max: usize,
}

impl Op<(u64, i64)> for Down {
    fn batch<S: Feed<(u64, i64)>>(&mut self, feed: S) {
        let mut records = 0;
        feed.each(|(key, time)| {
            records += 1;
            self.seen.borrow_mut().push(Seen::Record(key, time));
        });
        assert!(records <= self.batch_max);
    }

    fn ready(&mut self, _: Timestamp) -> Readiness {
        Readiness::Ready
    }

    fn batch_max(&self) -> usize {
        self.batch_max
    }

    fn signal(&mut self, signal: &mut Signal<'_>) -> Result<()> {
        if let Signal::Watermark(watermark) = signal {
            self.seen.borrow_mut().push(Seen::Watermark(watermark.0));
        }
        Ok(())
    }
}

/// A record is (key, what to do, when); a timer that fires emits its key and time.
#[derive(Clone, Copy)]
enum Do {
    SetEvent = 0,
    RemoveEvent = 1,
    SetProcessing = 2,
    RemoveProcessing = 3,
    /// Sets an event-time timer that sets another 5 later, twice.
    Repeat = 4,
    Fail = 5,
}

struct Alarms {
    repeats: ValueState<u32>,
}

type Record = (u64, (u8, i64));

impl Process<u64, Record> for Alarms {
    type Out = (u64, i64);

    fn process(
        &mut self,
        (_, (what, time)): <Record as Data>::Ref<'_>,
        cx: &mut Context<'_, u64>,
        _: &mut Output<'_, (u64, i64)>,
    ) -> Result<(), BoxError> {
        let time = EpochMillis(time);
        match what {
            what if what == Do::SetEvent as u8 => cx.set_event_timer(time),
            what if what == Do::RemoveEvent as u8 => cx.remove_event_timer(time),
            what if what == Do::SetProcessing as u8 => cx.set_processing_timer(time),
            what if what == Do::RemoveProcessing as u8 => cx.remove_processing_timer(time),
            what if what == Do::Repeat as u8 => {
                cx.value(&self.repeats).set(2u32);
                cx.set_event_timer(time);
            }
            _ => return Err("asked to fail".into()),
        }
        Ok(())
    }

    fn on_timer(
        &mut self,
        timer: Timer,
        cx: &mut Context<'_, u64>,
        out: &mut Output<'_, (u64, i64)>,
    ) -> Result<(), BoxError> {
        match timer.domain {
            TimerDomain::Event => assert!(timer.time <= cx.watermark()),
            TimerDomain::Processing => assert!(timer.time <= cx.processing_time()),
        }
        out.emit((cx.key(), timer.time.0));
        if let Some(left @ 1..) = cx.value(&self.repeats).get() {
            cx.value(&self.repeats).set(left - 1);
            cx.set_event_timer(EpochMillis(timer.time.0 + 5));
        }
        Ok(())
    }
}

struct Rig {
    logic: super::ProcessLogic<u64, Alarms>,
    down: Down,
    now: Timestamp,
}

fn build(subtask: u32, parallelism: u32, restored: RestoredState) -> Build {
    let mut attempt = AttemptId::default();
    attempt.subtask.index = subtask;
    let (outputs, splits) = (BTreeMap::new(), BTreeMap::new());
    let groups = KeyGroups::at_least(16);
    let metrics = Arc::default();
    let mut build =
        Build::new(attempt, parallelism, groups, outputs, Arc::new(restored), splits, metrics);
    build.wall_at_zero = WALL;
    build
}

impl Rig {
    fn new() -> Self {
        Self::restored(0, 1, Vec::new(), OnError::Fail)
    }

    fn restored(subtask: u32, of: u32, parts: Vec<RestoredPart>, policy: OnError) -> Self {
        let open = |states: &mut States<'_, u64>| Ok(Alarms { repeats: states.value("repeats")? });
        let recipe = Processing::new("alarms", "process", policy, open);
        let restored = RestoredState {
            checkpoint: None,
            operators: BTreeMap::from([("alarms".to_owned(), parts)]),
        };
        let logic = KeyedLogic::<u64, Record>::make(recipe, &mut build(subtask, of, restored));
        let logic = logic.expect("the state is that of this operator");
        let down = Down { seen: Rc::default(), batch_max: usize::MAX };
        Self { logic, down, now: Timestamp::ZERO }
    }

    fn take(&mut self, key: u64, what: Do, time: i64) {
        let Self { logic, down, now } = self;
        Logic::<u64, Record>::ready(logic, *now);
        let record = (key, (what as u8, time));
        let mut emit = |(key, time)| down.seen.borrow_mut().push(Seen::Record(key, time));
        Logic::<u64, Record>::apply(logic, hash::<u64>(key), key, record, &mut emit);
        Logic::<u64, Record>::after_batch(logic);
    }

    fn signal(&mut self, signal: &mut Signal<'_>) {
        Logic::<u64, Record>::signal(&mut self.logic, signal, &mut self.down).expect("it goes on");
    }

    fn proceed(&mut self) -> bool {
        let Self { logic, down, now } = self;
        Logic::<u64, Record>::proceed(logic, *now, down).expect("it goes on")
    }

    fn is_firing(&self) -> bool {
        Logic::<u64, Record>::is_firing(&self.logic)
    }

    fn deadline(&self) -> Option<Timestamp> {
        Logic::<u64, Record>::deadline(&self.logic)
    }

    /// The watermark comes, and all that it makes fire goes out.
    fn watermark(&mut self, watermark: i64) -> Vec<Seen> {
        self.signal(&mut Signal::Watermark(EpochMillis(watermark)));
        while self.proceed() {}
        self.seen()
    }

    fn seen(&self) -> Vec<Seen> {
        self.down.seen.take()
    }

    /// The operator's parts as a restore finds them.
    fn snapshot(&mut self) -> Vec<RestoredPart> {
        let mut snapshot = Snapshot::new(CheckpointId(1));
        self.signal(&mut Signal::Snapshot(&mut snapshot));
        let restored = |part: crate::state::part::Part| {
            let PartData::Blocks(blocks) = part.data else { panic!("keyed state has blocks") };
            let mut bytes = Vec::new();
            let mut keep = |_, block: &[u8]| {
                bytes.extend_from_slice(block);
                Ok(())
            };
            blocks.write(&mut keep).expect("nothing refuses a block");
            RestoredPart { kind: part.kind, name: part.name, data: RestoredData::Inline(bytes) }
        };
        snapshot.into_parts().into_iter().map(restored).collect()
    }
}

fn records(seen: &[Seen]) -> Vec<(u64, i64)> {
    let record = |seen: &Seen| match *seen {
        Seen::Record(key, time) => Some((key, time)),
        Seen::Watermark(_) => None,
    };
    seen.iter().filter_map(record).collect()
}

#[test]
fn timers_fire_once_in_order_and_before_their_watermark_goes_on() {
    let mut rig = Rig::new();
    for (key, time) in [(1, 30), (2, 10), (3, 20), (1, 30), (1, 40)] {
        rig.take(key, Do::SetEvent, time);
    }
    let fired = [(2, 10), (3, 20), (1, 30)].map(|(key, time)| Seen::Record(key, time));
    assert_eq!(rig.watermark(5), [Seen::Watermark(5)]);
    assert_eq!(rig.watermark(30), [&fired[..], &[Seen::Watermark(30)]].concat());
    assert_eq!(rig.watermark(39), [Seen::Watermark(39)]);
    // The end of the input.
    assert_eq!(rig.watermark(i64::MAX), [Seen::Record(1, 40), Seen::Watermark(i64::MAX)]);
}

#[test]
fn a_removed_timer_does_not_fire() {
    let mut rig = Rig::new();
    rig.take(1, Do::SetEvent, 10);
    rig.take(1, Do::SetEvent, 11);
    rig.take(1, Do::RemoveEvent, 10);
    // Another key's timer is another one.
    rig.take(2, Do::RemoveEvent, 11);
    rig.take(1, Do::SetProcessing, WALL.0);
    rig.take(1, Do::RemoveProcessing, WALL.0);
    assert_eq!(rig.deadline(), None);
    assert_eq!(rig.watermark(20), [Seen::Record(1, 11), Seen::Watermark(20)]);
}

#[test]
fn timers_set_while_a_watermark_fires_fire_with_it_if_they_are_due() {
    let mut rig = Rig::new();
    rig.take(1, Do::Repeat, 10);
    rig.take(2, Do::SetEvent, 12);
    let fired = rig.watermark(16);
    let expected = [(1, 10), (2, 12), (1, 15)].map(|(key, time)| Seen::Record(key, time));
    assert_eq!(fired, [&expected[..], &[Seen::Watermark(16)]].concat());
    assert_eq!(rig.watermark(20), [Seen::Record(1, 20), Seen::Watermark(20)]);
}

#[test]
fn long_firing_goes_on_in_batches_and_holds_back_its_watermark() {
    let mut rig = Rig::new();
    for key in 0..1000 {
        rig.take(key, Do::SetEvent, 10);
    }
    rig.signal(&mut Signal::Watermark(EpochMillis(10)));
    let mut batches = Vec::new();
    while rig.is_firing() {
        rig.proceed();
        batches.push(rig.seen());
    }
    assert_eq!(batches.pop(), Some(vec![Seen::Watermark(10)]));
    assert!(batches.len() > 1);
    assert!(batches.iter().all(|batch| batch.len() <= super::logic::FIRE_BATCH));
    assert_eq!(batches.concat().len(), 1000);
}

#[test]
fn a_busy_sink_gets_one_timers_results_at_a_time() {
    let mut rig = Rig::new();
    rig.down.batch_max = 1;
    rig.take(1, Do::SetEvent, 10);
    rig.take(2, Do::SetEvent, 10);
    assert_eq!(records(&rig.watermark(10)).len(), 2);
}

#[test]
fn processing_timers_fire_when_the_wall_clock_shows_their_time_and_not_before() {
    let mut rig = Rig::new();
    rig.take(1, Do::SetProcessing, WALL.0 + 20);
    rig.take(2, Do::SetProcessing, WALL.0 + 10);
    rig.take(3, Do::SetEvent, 10);
    assert_eq!(rig.deadline(), Some(Timestamp::from_millis(10)));
    rig.now = Timestamp::from_nanos(9_999_999);
    assert!(!rig.proceed());
    rig.now = Timestamp::from_millis(10);
    assert!(rig.proceed());
    assert_eq!(rig.seen(), [Seen::Record(2, WALL.0 + 10)]);
    assert_eq!(rig.deadline(), Some(Timestamp::from_millis(20)));
    rig.now = Timestamp::from_millis(500);
    while rig.proceed() {}
    assert_eq!(rig.seen(), [Seen::Record(1, WALL.0 + 20)]);
    assert_eq!(rig.deadline(), None);
}

#[test]
fn after_the_end_of_the_input_no_processing_timer_fires_in_this_attempt_or_a_later_one() {
    let mut rig = Rig::new();
    rig.take(1, Do::SetProcessing, WALL.0 + 10);
    rig.watermark(i64::MAX);
    rig.signal(&mut Signal::Finish { checkpointed: true });
    rig.signal(&mut Signal::EndOfData { drain: true });
    assert_eq!(rig.deadline(), None);
    rig.now = Timestamp::from_millis(1000);
    assert!(!rig.proceed());
    let parts = rig.snapshot();
    let again = Rig::restored(0, 1, parts, OnError::Fail);
    assert_eq!(again.deadline(), None);
}

#[test]
fn a_job_stopped_for_a_while_keeps_its_processing_timers() {
    let mut rig = Rig::new();
    rig.take(1, Do::SetProcessing, WALL.0 + 10);
    rig.signal(&mut Signal::EndOfData { drain: false });
    rig.now = Timestamp::from_millis(1000);
    assert!(!rig.proceed());
    let parts = rig.snapshot();
    let mut again = Rig::restored(0, 1, parts, OnError::Fail);
    assert_eq!(again.deadline(), Some(Timestamp::from_millis(10)));
    again.now = Timestamp::from_millis(1000);
    while again.proceed() {}
    assert_eq!(again.seen(), [Seen::Record(1, WALL.0 + 10)]);
}

#[test]
fn a_snapshot_amid_firing_holds_exactly_what_has_not_fired() {
    let mut rig = Rig::new();
    for key in 0..1000 {
        rig.take(key, Do::SetEvent, 10 + key as i64 % 7);
    }
    rig.signal(&mut Signal::Watermark(EpochMillis(20)));
    rig.proceed();
    let mut fired = records(&rig.seen());
    assert!(!fired.is_empty() && fired.len() < 1000);
    let parts = rig.snapshot();
    for subtask in 0..3 {
        let mut again = Rig::restored(subtask, 3, parts.clone(), OnError::Fail);
        fired.extend(records(&again.watermark(20)));
    }
    fired.sort_unstable();
    assert_eq!(fired, (0..1000).map(|key| (key, 10 + key as i64 % 7)).collect::<Vec<_>>());
}

#[test]
fn user_code_that_fails_fails_the_task_by_name_or_is_counted() {
    let mut rig = Rig::new();
    let thrown = catch_unwind(AssertUnwindSafe(|| rig.take(1, Do::Fail, 0)))
        .expect_err("the task fails")
        .downcast::<Error>()
        .expect("what is thrown is the error");
    assert_eq!((thrown.kind(), thrown.operator()), (ErrorKind::User, Some("alarms")));
    assert!(thrown.to_string().contains("asked to fail"), "{thrown}");

    let failures = Counter::new();
    let policy = OnError::SkipAndCount(failures.clone());
    let mut rig = Rig::restored(0, 1, Vec::new(), policy);
    rig.take(1, Do::Fail, 0);
    rig.take(1, Do::SetEvent, 10);
    assert_eq!(records(&rig.watermark(10)), [(1, 10)]);
    assert_eq!(failures.get(), 1);
}
