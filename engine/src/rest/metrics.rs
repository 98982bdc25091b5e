//! `/metrics`: what the job counts, in the OpenMetrics text format.
//!
//! Nothing is kept here: a scrape reads the counters that workers bump, and asks the control thread for those of the blocklist. If it
//! doesn't answer in time, those are left out rather than told from an older moment.

use std::fmt;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use super::answer::Answer;
use super::ask::ask;
use super::desk::{Desk, Figures, now_millis};
use super::jobs::state;
use crate::metrics::LatencySnapshot;
use crate::runtime::{BlocklistFigures, JobState, JobStatus, Request, TaskStatus};

/// The type of the body.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// `GET /metrics`.
pub(super) async fn answer(desk: &Desk) -> Result<Answer, Answer> {
    let scrape = Scrape {
        job: desk.endpoint.name().to_owned(),
        status: desk.endpoint.status(),
        blocklist: ask(desk, Request::BlocklistCounters).await.ok(),
        server: ServerFigures::of(&desk.figures),
        now_millis: now_millis() as f64,
    };
    let mut registry = Registry::with_prefix("tidegate");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all");
    Ok(Answer::text(CONTENT_TYPE, text))
}

/// The figures of one moment.
#[derive(Debug)]
struct Scrape {
    job: String,
    status: JobStatus,
    blocklist: Option<BlocklistFigures>,
    server: ServerFigures,
    now_millis: f64,
}

#[derive(Debug)]
struct ServerFigures {
    requests: u64,
    refused: u64,
    audit_lines_lost: u64,
    connections_closed_idle: u64,
}

impl ServerFigures {
    fn of(figures: &Figures) -> Self {
        Self {
            requests: figures.requests.load(Relaxed),
            refused: figures.refused.load(Relaxed),
            audit_lines_lost: figures.audit_lines_lost.load(Relaxed),
            connections_closed_idle: figures.connections_closed_idle.load(Relaxed),
        }
    }
}

type Labels = Vec<(&'static str, String)>;

/// Writes families one after the other.
struct Families<'a, 'j> {
    encoder: DescriptorEncoder<'a>,
    job: &'j str,
}

impl Families<'_, '_> {
    /// A family of counters; `_total` is added to the name.
    fn counters(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut family = self.encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in values {
            let labels = with_job(self.job, labels);
            family.encode_family(&labels)?.encode_counter::<NoLabelSet, f64, f64>(&value, None)?;
        }
        Ok(())
    }

    fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.counters(name, help, [(Vec::new(), value as f64)])
    }

    fn gauges(
        &mut self,
        name: &str,
        help: &str,
        unit: Option<Unit>,
        values: impl IntoIterator<Item = (Labels, f64)>,
    ) -> fmt::Result {
        let mut family =
            self.encoder.encode_descriptor(name, help, unit.as_ref(), MetricType::Gauge)?;
        for (labels, value) in values {
            let labels = with_job(self.job, labels);
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }

    fn gauge(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.gauges(name, help, None, [(Vec::new(), value as f64)])
    }

    fn seconds(&mut self, name: &str, help: &str, value: Duration) -> fmt::Result {
        self.gauges(name, help, Some(Unit::Seconds), [(Vec::new(), value.as_secs_f64())])
    }

    fn bytes(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        self.gauges(name, help, Some(Unit::Bytes), [(Vec::new(), value as f64)])
    }

    /// A counter of each subtask.
    fn of_tasks(
        &mut self,
        name: &str,
        help: &str,
        tasks: &[TaskStatus],
        of: fn(&TaskStatus) -> f64,
    ) -> fmt::Result {
        self.counters(name, help, tasks.iter().map(|task| (task_labels(task), of(task))))
    }

    /// Quantiles of durations.
    fn quantiles(&mut self, name: &str, help: &str, durations: &LatencySnapshot) -> fmt::Result {
        let at = |(label, share): (&str, f64)| {
            (vec![("quantile", label.to_owned())], durations.quantile(share).as_secs_f64())
        };
        let shares = [("0.5", 0.5), ("0.99", 0.99), ("0.999", 0.999), ("1", 1.0)];
        self.gauges(name, help, Some(Unit::Seconds), shares.into_iter().map(at))
    }
}

fn with_job(job: &str, mut labels: Labels) -> Labels {
    labels.insert(0, ("job_name", job.to_owned()));
    labels
}

fn task_labels(task: &TaskStatus) -> Labels {
    vec![
        ("vertex", task.subtask.vertex.to_string()),
        ("vertex_name", task.vertex.to_string()),
        ("subtask", task.subtask.index.to_string()),
    ]
}

impl Collector for Scrape {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families { encoder, job: &self.job };
        self.job(&mut families)?;
        self.tasks(&mut families)?;
        self.checkpoints(&mut families)?;
        if let Some(figures) = self.blocklist.as_ref().filter(|figures| figures.is_enabled) {
            blocklist(figures, &mut families)?;
        }
        self.server.write(&mut families)
    }
}

impl Scrape {
    fn job(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let states = [
            JobState::Starting,
            JobState::Running,
            JobState::Restarting,
            JobState::Finished,
            JobState::Failed,
            JobState::Cancelled,
        ];
        families.gauges(
            "job_state",
            "1 for the state that the job is in",
            None,
            states.map(|of| {
                let is_it = f64::from(u8::from(of == self.status.state));
                (vec![("state", state(of).to_owned())], is_it)
            }),
        )?;
        families.counter("job_restarts", "Restarts", u64::from(self.status.restarts))?;
        families.gauge("job_tasks", "Subtasks", self.status.tasks.len() as u64)?;
        families.quantiles(
            "job_latency",
            "Time of latency markers from a source to a sink",
            &self.status.latency,
        )
    }

    fn tasks(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let tasks = &self.status.tasks;
        families.of_tasks("task_records_in", "Records taken from inputs", tasks, |task| {
            task.figures.records_in as f64
        })?;
        families.of_tasks("task_bytes_in", "Bytes taken from channels", tasks, |task| {
            task.figures.bytes_in as f64
        })?;
        families.of_tasks("task_buffers_in", "Buffers taken from channels", tasks, |task| {
            task.figures.buffers_in as f64
        })?;
        let busy = "Time in steps that did something";
        families
            .of_tasks("task_busy_seconds", busy, tasks, |task| task.figures.busy.as_secs_f64())?;
        let idle = "Time with nothing to do";
        families
            .of_tasks("task_idle_seconds", idle, tasks, |task| task.figures.idle.as_secs_f64())?;
        let waited = "Time with something to do and no room for what would come of it";
        families.of_tasks("task_back_pressured_seconds", waited, tasks, |task| {
            task.figures.back_pressured.as_secs_f64()
        })?;
        let queued = "Entries that waited in the channels of a task, when it looked last";
        let of = |task: &TaskStatus| (task_labels(task), task.figures.queued as f64);
        families.gauges("task_queued_entries", queued, None, tasks.iter().map(of))?;
        let lag = "How far the lowest watermark of a task's inputs is behind the time of day";
        let of = |task: &TaskStatus| {
            let lag = self.now_millis - task.figures.watermark?.0 as f64;
            Some((task_labels(task), lag / 1000.0))
        };
        let lags = tasks.iter().filter_map(of);
        families.gauges("task_watermark_lag", lag, Some(Unit::Seconds), lags)?;
        let late = "Records dropped because their windows had closed";
        families.of_tasks("task_late_records", late, tasks, |task| task.figures.late_records as f64)
    }

    fn checkpoints(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        let status = &self.status;
        families.counter("checkpoints_completed", "Checkpoints", status.checkpoints_completed)?;
        families.counter(
            "checkpoints_failed",
            "Checkpoints that failed, were declined or timed out",
            status.checkpoints_failed,
        )?;
        let under_way = u64::from(status.checkpoint_under_way.is_some());
        families.gauge("checkpoints_in_progress", "Checkpoints under way", under_way)?;
        if let Some(last) = status.checkpoints.last() {
            let duration = "From trigger to durable, of the last checkpoint";
            families.seconds("checkpoint_last_duration", duration, last.duration)?;
            let alignment = "The longest alignment of a task in the last checkpoint";
            families.seconds("checkpoint_last_alignment", alignment, last.alignment)?;
            families.bytes("checkpoint_last_size", "What the last checkpoint wrote", last.bytes)?;
        }
        families.quantiles(
            "checkpoint_step",
            "Time of each step of a task in snapshot code",
            &status.snapshot_steps,
        )?;
        families.counter(
            "spilled_bytes",
            "Bytes of records in flight that were written with checkpoints",
            status.spilled_mapped_bytes,
        )
    }
}

/// FLIP-224's gauges, under the scope of the job manager, and what the blocklist counts.
fn blocklist(figures: &BlocklistFigures, families: &mut Families<'_, '_>) -> fmt::Result {
    let nodes = "Blocklisted nodes";
    families.gauge("jobmanager_numBlocklistedNodes", nodes, figures.blocklisted_nodes)?;
    let task_managers = "Blocklisted task managers, those on blocklisted nodes included";
    // FLIP-224, metrics, spells the second so; both are there.
    for name in ["jobmanager_numBlocklistedTaskManagers", "jobmanager_numBlocklistedTaskMangers"] {
        families.gauge(name, task_managers, figures.blocklisted_task_managers)?;
    }
    let by_origin = |counts: &std::collections::BTreeMap<&'static str, u64>| {
        let of = |(origin, count): (&&'static str, &u64)| {
            (vec![("origin", (*origin).to_owned())], *count as f64)
        };
        counts.iter().map(of).collect::<Vec<_>>()
    };
    families.counters("blocklist_items_added", "Items", by_origin(&figures.items_added))?;
    families.counters("blocklist_items_updated", "Items", by_origin(&figures.items_updated))?;
    for (name, help, value) in [
        ("blocklist_items_expired", "Items that ended", figures.items_expired),
        ("blocklist_items_removed", "Items that were removed", figures.items_removed),
        ("blocklist_offers_rejected", "Slots offered and not taken", figures.offers_rejected),
        ("blocklist_free_slots_released", "Free slots given back", figures.free_slots_released),
        ("blocklist_slots_evacuated", "Slots with tasks given back", figures.slots_evacuated),
        ("blocklist_tasks_evacuated", "Subtasks moved", figures.tasks_evacuated),
        ("blocklist_strategy_errors", "Errors of strategies", figures.strategy_errors),
        ("blocklist_refused_by_cap", "Automatic items refused", figures.refused_by_cap),
        ("blocklist_sync_resends", "Notices sent again", figures.sync_resends),
    ] {
        families.counter(name, help, value)?;
    }
    let help = "From an order to blocklist to the slots given back";
    families.quantiles("blocklist_released_after", help, &figures.released_after)
}

impl ServerFigures {
    fn write(&self, families: &mut Families<'_, '_>) -> fmt::Result {
        families.counter("rest_requests", "Requests to this server", self.requests)?;
        families.counter(
            "rest_requests_refused",
            "Of these malformed or forbidden",
            self.refused,
        )?;
        families.counter(
            "rest_audit_lines_lost",
            "Audit lines not written",
            self.audit_lines_lost,
        )?;
        families.counter(
            "rest_connections_closed_idle",
            "Idle connections closed for new ones",
            self.connections_closed_idle,
        )
    }
}
