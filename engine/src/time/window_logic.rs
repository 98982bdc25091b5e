//! Windowed aggregation: one small table of accumulators for each open window (a pane), fired by the watermark.
//!
//! A window fires when the watermark reaches its last moment, and is dropped `allowed lateness` later. Records that come in between
//! update it and fire their key again; those that come after go to the late output, or are counted and dropped. Firing emits at
//! most [`FIRE_BATCH`] results at a time, so that a full output or a barrier is never far away.

use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use super::window::{Window, Windows};
use crate::clock::{EpochMillis, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::metrics::TaskMetrics;
use crate::operator::{Build, KeyedLogic, Logic, Op, SideOutput, Signal, Stage, restore_table};
use crate::record::{AsData, Data, Feed, Key};
use crate::sink::Readiness;
use crate::state::part::PartKind;
use crate::state::{Table, TableOptions, Value};

/// Results of firing windows that go out at a time.
const FIRE_BATCH: usize = 256;

/// The recipe of a windowed aggregation.
pub struct WindowAggregate<E, A, G, H, R> {
    pub(crate) name: String,
    pub(crate) windows: Windows,
    pub(crate) lateness: i64,
    pub(crate) late: Option<usize>,
    pub(crate) time: E,
    pub(crate) init: A,
    pub(crate) add: G,
    pub(crate) finish: H,
    pub(crate) of: PhantomData<fn() -> R>,
}

impl<E: Clone, A: Clone, G: Clone, H: Clone, R> Clone for WindowAggregate<E, A, G, H, R> {
    fn clone(&self) -> Self {
        Self {
            name: self.name.clone(),
            windows: self.windows,
            lateness: self.lateness,
            late: self.late,
            time: self.time.clone(),
            init: self.init.clone(),
            add: self.add.clone(),
            finish: self.finish.clone(),
            of: PhantomData,
        }
    }
}

impl<E, A, G, H, R> fmt::Debug for WindowAggregate<E, A, G, H, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowAggregate").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<K, T, E, A, G, H, R> KeyedLogic<K, T> for WindowAggregate<E, A, G, H, R>
where
    K: Key,
    T: Data,
    E: for<'a> Fn(T::Ref<'a>) -> i64 + Clone + Send + 'static,
    A: Value,
    G: for<'a> FnMut(&mut A, T::Ref<'a>) + Clone + Send + 'static,
    H: Fn(&A) -> R + Clone + Send + 'static,
    R: AsData + 'static,
{
    type Out = (K, Window, R::Data);
    type Logic = WindowLogic<K, T, E, A, G, H, R>;

    fn make(self, build: &mut Build) -> Result<Self::Logic> {
        let mut logic = WindowLogic {
            name: self.name.as_str().into(),
            windows: self.windows,
            lateness: self.lateness,
            late: self.late.map(|id| build.side_output(id)),
            time: self.time,
            options: TableOptions { clock: build.nanos, ..TableOptions::small(build.key_groups) },
            init: self.init,
            add: self.add,
            finish: self.finish,
            panes: Vec::new(),
            spare: Vec::new(),
            hit: 0,
            watermark: EpochMillis::MIN,
            firing: None,
            metrics: build.metrics.clone(),
            of: PhantomData,
        };
        logic.restore(&self.name, build)?;
        Ok(logic)
    }

    fn describe(&self, stage: &mut Stage) {
        let windows = self.windows;
        let name = self.name.clone();
        stage.checks.push((
            name.clone(),
            Arc::new(move || windows.check().map_err(|error| error.in_operator(&name))),
        ));
        stage.names.push(self.name.clone());
        stage.operators.push(format!("window '{}'", self.name));
        stage.has_state = true;
        stage.splits.extend(self.late);
    }
}

/// One window's accumulators.
struct Pane<K: Key, A: Value> {
    end: i64,
    table: Table<K, A>,
    has_fired: bool,
}

/// Where firing has got to.
struct Firing {
    watermark: EpochMillis,
    /// The pane that fires, its results so far unsent.
    at: usize,
    sent: usize,
}

/// The operator.
pub struct WindowLogic<K: Key, T: Data, E, A: Value, G, H, R> {
    name: Rc<str>,
    windows: Windows,
    lateness: i64,
    late: Option<SideOutput<T>>,
    time: E,
    options: TableOptions,
    init: A,
    add: G,
    finish: H,
    /// Open windows by end, ascending.
    panes: Vec<Pane<K, A>>,
    /// Empty tables of windows that are gone, to be used again.
    spare: Vec<Table<K, A>>,
    /// The pane of the last record.
    hit: usize,
    watermark: EpochMillis,
    firing: Option<Firing>,
    metrics: Arc<TaskMetrics>,
    of: PhantomData<fn() -> R>,
}

impl<K: Key, T: Data, E, A: Value, G, H, R> fmt::Debug for WindowLogic<K, T, E, A, G, H, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WindowLogic")
            .field("name", &self.name)
            .field("open", &self.panes.len())
            .finish_non_exhaustive()
    }
}

impl<K: Key, T: Data, E, A: Value, G, H, R> WindowLogic<K, T, E, A, G, H, R> {
    /// The place of the pane that ends at `end`, made if it isn't there.
    #[inline(always)]
    fn pane(&mut self, end: i64) -> usize {
        if self.panes.get(self.hit).is_some_and(|pane| pane.end == end) {
            return self.hit;
        }
        self.pane_elsewhere(end)
    }

    fn pane_elsewhere(&mut self, end: i64) -> usize {
        self.hit = match self.panes.binary_search_by_key(&end, |pane| pane.end) {
            Ok(at) => at,
            Err(at) => {
                let table = self.spare.pop().unwrap_or_else(|| Table::new(self.options, self.init));
                self.panes.insert(at, Pane { end, table, has_fired: false });
                at
            }
        };
        self.hit
    }

    /// Whether a window's results are final at `watermark`.
    fn is_over(end: i64, lateness: i64, watermark: EpochMillis) -> bool {
        end.saturating_sub(1).saturating_add(lateness) <= watermark.0
    }

    /// Drops panes that no record can change any more.
    fn drop_panes(&mut self) {
        let (lateness, watermark) = (self.lateness, self.watermark);
        let keep = self
            .panes
            .iter()
            .position(|pane| !pane.has_fired || !Self::is_over(pane.end, lateness, watermark))
            .unwrap_or(self.panes.len());
        for mut pane in self.panes.drain(..keep) {
            if self.spare.len() < SPARE_MAX {
                pane.table.clear_keep_memory();
                self.spare.push(pane.table);
            }
        }
        self.hit = 0;
    }

    fn restore(&mut self, name: &str, build: &Build) -> Result<()> {
        for part in build.restored_parts(name) {
            if part.kind == PartKind::Keyed {
                let state = part.name.clone();
                let (end, has_fired) = parse_pane(&state)?;
                let at = self.pane_elsewhere(end);
                if self.panes[at].table.is_empty() {
                    self.panes[at].has_fired = has_fired;
                    restore_table(&mut self.panes[at].table, name, &state, build)?;
                }
            }
        }
        Ok(())
    }
}

/// Empty tables that are kept.
const SPARE_MAX: usize = 64;

fn pane_name(end: i64, has_fired: bool) -> String {
    format!("{}{end}", if has_fired { "fired " } else { "open " })
}

fn parse_pane(name: &str) -> Result<(i64, bool)> {
    let parsed = match name.split_once(' ') {
        Some(("open", end)) => end.parse().ok().map(|end| (end, false)),
        Some(("fired", end)) => end.parse().ok().map(|end| (end, true)),
        Some(_) | None => None,
    };
    parsed.ok_or_else(|| {
        Error::new(ErrorKind::Checkpoint, format!("state '{name}' is not that of a window"))
    })
}

/// Reads a pane's name and writes it again; for those who feed it text from anywhere.
#[cfg(feature = "simulation")]
pub fn pane_again(name: &str) -> Result<String> {
    parse_pane(name).map(|(end, has_fired)| pane_name(end, has_fired))
}

impl<K, T, E, A, G, H, R> Logic<K, T> for WindowLogic<K, T, E, A, G, H, R>
where
    K: Key,
    T: Data,
    E: for<'a> Fn(T::Ref<'a>) -> i64 + 'static,
    A: Value,
    G: for<'a> FnMut(&mut A, T::Ref<'a>) + 'static,
    H: Fn(&A) -> R + 'static,
    R: AsData + 'static,
{
    type Out = (K, Window, R::Data);

    fn is_large(&self) -> bool {
        false
    }

    fn copy_nanos(&self) -> u64 {
        self.panes.iter().map(|pane| pane.table.copy_nanos()).sum()
    }

    fn prefetch(&self, _: u64) {}

    #[inline(always)]
    fn apply<O: for<'x> FnMut(<Self::Out as Data>::Ref<'x>)>(
        &mut self,
        hash: u64,
        key: K::Ref<'_>,
        record: T::Ref<'_>,
        g: &mut O,
    ) {
        let time = (self.time)(record);
        let mut is_late = true;
        for end in self.windows.ends(time) {
            if Self::is_over(end, self.lateness, self.watermark) {
                break;
            }
            is_late = false;
            let at = self.pane(end);
            let pane = &mut self.panes[at];
            let accumulator = pane.table.entry(hash, key);
            (self.add)(accumulator, record);
            if pane.has_fired {
                let window = self.windows.window(end);
                g((K::shorten(key), window, (self.finish)(accumulator).view()));
            }
            if self.windows.is_tumbling() {
                break;
            }
        }
        if is_late {
            match &mut self.late {
                Some(late) => late.push(record),
                None => self.metrics.dropped_late(1),
            }
        }
    }

    fn after_batch(&mut self) {
        if let Some(late) = &mut self.late {
            late.deliver();
        }
    }

    fn ready(&mut self, now: Timestamp) -> Readiness {
        self.late.as_mut().map_or(Readiness::Ready, |late| late.ready(now))
    }

    fn signal<D: Op<Self::Out>>(&mut self, signal: &mut Signal<'_>, down: &mut D) -> Result<()> {
        match signal {
            Signal::Watermark(watermark) => {
                // Passed on when all that it fires is out.
                self.firing = Some(Firing { watermark: *watermark, at: 0, sent: 0 });
                return Ok(());
            }
            Signal::Snapshot(snapshot) => {
                for pane in &mut self.panes {
                    let name = pane_name(pane.end, pane.has_fired);
                    let blocks = Box::new(pane.table.snapshot());
                    snapshot.blocks(&self.name, PartKind::Keyed, &name, blocks);
                }
            }
            Signal::EmitWatermark { .. }
            | Signal::Idle(_)
            | Signal::Flush
            | Signal::Barrier(_)
            | Signal::Complete(_)
            | Signal::Aborted(..)
            | Signal::QuiesceTimers
            | Signal::Finish { .. }
            | Signal::EndOfData { .. }
            | Signal::EndOfPartition
            | Signal::LatencyMarker { .. }
            | Signal::EndOfDataTaken(_)
            | Signal::Flushed(_) => {}
        }
        if let Some(late) = &mut self.late {
            late.signal(signal)?;
        }
        down.signal(signal)
    }

    fn is_firing(&self) -> bool {
        self.firing.is_some()
    }

    fn proceed<D: Op<Self::Out>>(&mut self, _: Timestamp, down: &mut D) -> Result<bool> {
        let Some(firing) = &mut self.firing else { return Ok(false) };
        while let Some(pane) = self.panes.get_mut(firing.at) {
            if pane.end.saturating_sub(1) > firing.watermark.0 {
                break;
            }
            if pane.has_fired {
                firing.at += 1;
                continue;
            }
            let window = self.windows.window(pane.end);
            let mut taken = 0;
            down.batch(PaneFeed {
                table: &pane.table,
                window,
                finish: &self.finish,
                skip: firing.sent,
                taken: &mut taken,
                of: PhantomData::<fn() -> R>,
            });
            firing.sent += taken;
            if firing.sent < pane.table.len() {
                return Ok(true);
            }
            pane.has_fired = true;
            firing.at += 1;
            firing.sent = 0;
            return Ok(true);
        }
        let watermark = firing.watermark;
        self.firing = None;
        self.watermark = watermark;
        self.drop_panes();
        if let Some(late) = &mut self.late {
            late.signal(&mut Signal::Watermark(watermark))?;
        }
        down.signal(&mut Signal::Watermark(watermark))?;
        Ok(false)
    }
}

/// Some results of one pane.
struct PaneFeed<'p, K: Key, A: Value, H, R> {
    table: &'p Table<K, A>,
    window: Window,
    finish: &'p H,
    skip: usize,
    taken: &'p mut usize,
    of: PhantomData<R>,
}

impl<K: Key, A: Value, H: Fn(&A) -> R, R: AsData> Feed<(K, Window, R::Data)>
    for PaneFeed<'_, K, A, H, fn() -> R>
{
    fn each<G: for<'x> FnMut(<(K, Window, R::Data) as Data>::Ref<'x>)>(self, mut g: G) {
        for (key, accumulator) in self.table.iter().skip(self.skip).take(FIRE_BATCH) {
            g((K::shorten(key), self.window, (self.finish)(accumulator).view()));
            *self.taken += 1;
        }
    }
}
