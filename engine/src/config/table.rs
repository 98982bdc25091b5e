//! The table of options: each row is a field's meaning, name, type, default and key; and what makes sense together.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use super::value::{
    CpuList, IdleStrategy, Mode, OnNoCapacity, RestartType, StrategyMode, TaskManagerList, Value,
};
use super::{ConfigError, ConfigOption, Origin};

macro_rules! table {
    ($($(#[doc = $section_doc:literal])* $section:ident: $Section:ident {
        $($(#[doc = $doc:literal])* $field:ident: $type:ty = $default:expr, $key:literal;)*
    })*) => {
        $(
            $(#[doc = $section_doc])*
            #[derive(Clone, Debug, PartialEq)]
            #[non_exhaustive]
            pub struct $Section { $($(#[doc = $doc])* pub $field: $type,)* }

            impl Default for $Section {
                fn default() -> Self { Self { $($field: $default,)* } }
            }
        )*

        /// All options. Assign fields, or set them from text by key.
        ///
        /// ```
        /// use std::time::Duration;
        /// use tidegate::config::{Config, Origin};
        ///
        /// let mut config = Config::default();
        /// config.checkpoint.interval = Some(Duration::from_millis(200));
        /// config.set("checkpoint.dir", "out/checkpoints", Origin::Flag)?;
        /// # Ok::<(), tidegate::error::Error>(())
        /// ```
        #[derive(Clone, Debug, Default, PartialEq)]
        #[non_exhaustive]
        pub struct Config {
            $($(#[doc = $section_doc])* pub $section: $Section,)*
            /// Options of the blocklist's strategies by key, without the prefix, and where the values came from.
            pub(super) strategies: std::collections::BTreeMap<String, (String, Origin)>,
            /// For each option that was set from text, its index in the table and where the value came from.
            pub(super) origins: Vec<(usize, Origin)>,
        }

        impl Config {
            /// The table of options.
            pub const OPTIONS: &'static [ConfigOption] = &[$($(
                ConfigOption {
                    key: $key,
                    doc: concat!($($doc),*).trim_ascii(),
                    parse: |config, text| {
                        config.$section.$field = Value::parse(text)?;
                        Ok(())
                    },
                    show: |config| config.$section.$field.show(),
                },
            )*)*];
        }
    };
}

table! {
    /// Checkpoints: where, when and how.
    checkpoint: Checkpoint {
        /// The directory of checkpoints; without one the job keeps them in memory and can't outlive its process.
        dir: Option<PathBuf> = None, "checkpoint.dir";
        /// Time between the triggers of two checkpoints; `never` for savepoints and the last checkpoint only.
        interval: Option<Duration> = Some(Duration::from_secs(1)), "checkpoint.interval";
        /// After this time a checkpoint that is not complete is given up.
        timeout: Duration = Duration::from_secs(600), "checkpoint.timeout";
        /// Least time between the end of a checkpoint and the trigger of the next.
        min_pause: Duration = Duration::ZERO, "checkpoint.min-pause";
        /// So many checkpoints may be under way at a time.
        max_concurrent: u32 = 1, "checkpoint.max-concurrent";
        /// `exactly-once` or `at-least-once`.
        mode: Mode = Mode::ExactlyOnce, "checkpoint.mode";
        /// Whether barriers may overtake buffers, which are then part of the checkpoint.
        unaligned_enabled: bool = true, "checkpoint.unaligned.enabled";
        /// Whether that holds for pointwise, broadcast and forward edges too; such a checkpoint can't be rescaled there.
        unaligned_any_edge: bool = false, "checkpoint.unaligned.any-edge";
        /// A checkpoint begins aligned and becomes unaligned after this time; 0 begins unaligned.
        aligned_timeout: Duration = Duration::from_millis(200), "checkpoint.aligned-timeout";
        /// Whether a finishing task keeps its inputs' last buffers until a checkpoint can pass.
        drain_hold: bool = true, "checkpoint.drain-hold";
        /// So many consecutive checkpoints may fail before the job does.
        tolerable_failed: Option<u32> = None, "checkpoint.tolerable-failed";
        /// So many complete checkpoints are kept.
        num_retained: u32 = 2, "checkpoint.num-retained";
        /// Whether a checkpoint writes only those parts of keyed state that have changed since the last one.
        incremental: bool = false, "checkpoint.incremental";
        /// Whether checkpoints stay when the job is cancelled.
        retain_on_cancel: bool = true, "checkpoint.retain-on-cancel";
    }
    /// What happens after a failure.
    restart_strategy: RestartStrategy {
        /// `none`, `fixed-delay`, `failure-rate` or `exponential-delay`.
        kind: RestartType = RestartType::ExponentialDelay, "restart-strategy.type";
        /// So many restarts.
        fixed_delay_attempts: u32 = 1, "restart-strategy.fixed-delay.attempts";
        /// Time between failure and restart.
        fixed_delay_delay: Duration = Duration::from_secs(1), "restart-strategy.fixed-delay.delay";
        /// So many failures in an interval are borne.
        failure_rate_max_failures: u32 = 1, "restart-strategy.failure-rate.max-failures-per-interval";
        /// The interval in which failures are counted.
        failure_rate_interval: Duration = Duration::from_secs(60), "restart-strategy.failure-rate.failure-rate-interval";
        /// Time between failure and restart.
        failure_rate_delay: Duration = Duration::from_secs(1), "restart-strategy.failure-rate.delay";
        /// The delay after the second failure; the first restart of a region has none.
        exponential_initial: Duration = Duration::from_secs(1), "restart-strategy.exponential-delay.initial-backoff";
        /// The longest delay.
        exponential_max: Duration = Duration::from_secs(60), "restart-strategy.exponential-delay.max-backoff";
        /// By so much the delay grows with each failure.
        exponential_multiplier: f64 = 1.5, "restart-strategy.exponential-delay.backoff-multiplier";
        /// After so long without a failure the delay is the first again.
        exponential_reset: Duration = Duration::from_secs(3600), "restart-strategy.exponential-delay.reset-backoff-threshold";
        /// By up to this share the delay is longer or shorter at random.
        exponential_jitter: f64 = 0.1, "restart-strategy.exponential-delay.jitter-factor";
        /// So many restarts before the delay is reset.
        exponential_attempts: Option<u32> = None, "restart-strategy.exponential-delay.attempts-before-reset-backoff";
    }
    /// Into how many subtasks a job is divided.
    parallelism: Parallelism {
        /// Subtasks of an operator that says nothing else; `auto` for one a worker.
        default: Option<NonZeroU32> = None, "parallelism.default";
        /// Key groups, and so the most subtasks that a keyed operator can ever have.
        max: u32 = 128, "parallelism.max";
    }
    /// This process.
    taskmanager: TaskManager {
        /// Workers, each a pinned thread; `auto` for one an allowed CPU.
        slots: Option<NonZeroU32> = None, "taskmanager.slots";
        /// The CPUs that workers are pinned to, in turn.
        cores: CpuList = CpuList::default(), "taskmanager.cores";
        /// The machine's name in the blocklist; `none` for its external address.
        node_id: Option<String> = None, "taskmanager.node-id";
        /// Several task managers in this process, like `node1:2,node1:2,node2:2:gpu`: machine and slots of each, a slot
        /// being a worker, and where it matters the machine's node pool; `none` for one with `taskmanager.slots`.
        list: TaskManagerList = TaskManagerList::default(), "taskmanager.list";
        /// Task managers beside those of the list that are started when slots run short, and ended when nobody uses them.
        on_request: TaskManagerList = TaskManagerList::default(), "taskmanager.on-request";
    }
    /// Buffers between tasks.
    buffer: Buffer {
        /// Bytes of a buffer: a power of two, from 4 KiB to 16 MiB.
        segment_bytes: usize = 32 << 10, "buffer.segment-bytes";
        /// A buffer that is not full is sent after this time at the latest; an idle task sends at once.
        timeout: Duration = Duration::from_millis(100), "buffer.timeout";
        /// Buffers in flight on each channel, at least 2; all channels of one output have 64 together at the most, or 2 each.
        per_channel: u32 = 16, "buffer.per-channel";
    }
    /// Records.
    record: Record {
        /// A larger record is an error.
        max_bytes: usize = 64 << 20, "record.max-bytes";
    }
    /// Emissions that can't be interrupted.
    emission: Emission {
        /// An emission that takes more memory while its output is full is an error.
        max_bytes: usize = 256 << 20, "emission.max-bytes";
    }
    /// Workers without work.
    idle: Idle {
        /// `spin`, `backoff` or `park`.
        strategy: IdleStrategy = IdleStrategy::Backoff, "idle-strategy";
    }
    /// The wire between processes.
    net: Net {
        /// The address to listen on; any but a loopback address needs TLS or `net.insecure-network`.
        address: String = "127.0.0.1:0".to_owned(), "net.address";
        /// Whether other addresses than loopback may be used without TLS.
        insecure_network: bool = false, "net.insecure-network";
        /// The longest frame accepted, from 64 KiB to 16 MiB.
        frame_max_bytes: usize = 1 << 20, "net.frame-max-bytes";
    }
    /// TLS with certificates on both sides.
    security: Security {
        /// The certificate of this process, PEM.
        certificate: Option<PathBuf> = None, "security.certificate";
        /// Its private key, PEM.
        key: Option<PathBuf> = None, "security.key";
        /// The authority that signed the certificates of the others, PEM.
        authority: Option<PathBuf> = None, "security.authority";
    }
    /// The REST interface of a running job.
    rest: Rest {
        /// Where it is served, like `127.0.0.1:8081`; any but a loopback address needs `rest.token-file`.
        address: Option<String> = None, "rest.address";
        /// A file with mode 0600 that holds the token which each request must bear.
        token_file: Option<PathBuf> = None, "rest.token-file";
        /// Where each change leaves a line of JSON.
        audit_file: Option<PathBuf> = None, "rest.audit-file";
    }
    /// The blocklist (FLIP-224, configuration): machines that get no work.
    blocklist: Blocklist {
        /// Whether there is a blocklist.
        enabled: bool = false, "cluster.resource-blocklist.enabled";
        /// How long an item without an end of its own stays.
        item_timeout: Option<Duration> = Some(Duration::from_secs(600)), "cluster.resource-blocklist.item.timeout";
        /// Time between two looks for items that ended.
        item_timeout_check_interval: Duration = Duration::from_secs(1), "cluster.resource-blocklist.item.timeout-check-interval";
        /// The longest time that may be asked for.
        item_max_timeout: Duration = Duration::from_secs(86_400), "cluster.resource-blocklist.item.max-timeout";
        /// Automatic items beyond this share of a node pool's known nodes are refused, but for the first in a pool.
        max_blocked_ratio: f64 = 0.33, "cluster.resource-blocklist.max-blocked-ratio";
        /// Automatic items beyond so many nodes of all pools are refused.
        max_blocked_nodes: u32 = 10, "cluster.resource-blocklist.max-blocked-nodes";
        /// What marks nodes by itself: `noop` for nothing, `rules`, `health`, or several as `chain:health,rules`. The options of
        /// each are below `cluster.resource-blocklist.strategy.rules` and so on.
        strategy: String = "noop".to_owned(), "cluster.resource-blocklist.strategy";
        /// `shadow` only counts what strategies want; `enforce` does it.
        strategy_mode: StrategyMode = StrategyMode::Enforce, "cluster.resource-blocklist.strategy.mode";
        /// How long slots elsewhere and a checkpoint may take before subtasks are moved off a machine; 0 moves at once.
        evacuation_grace: Duration = Duration::from_secs(30), "cluster.resource-blocklist.evacuation.grace";
        /// `wait` or `fail-over`, if there are no slots elsewhere.
        evacuation_on_no_capacity: OnNoCapacity = OnNoCapacity::Wait, "cluster.resource-blocklist.evacuation.on-no-capacity";
        /// Whether blocklisted task managers may be replaced beyond the cluster's limit of slots.
        excluded_from_limits: bool = false, "cluster.resource-blocklist.excluded-from-limits";
    }
}

impl Config {
    /// Checks what the types of the options leave open.
    ///
    /// # Errors
    /// The first option whose value makes no sense, by itself or with another.
    pub fn validate(&self) -> Result<(), ConfigError> {
        /// More key groups than this have no place in a checkpoint's format.
        const PARALLELISM_MAX: u32 = 32_768;
        let Self { checkpoint, restart_strategy: restart, parallelism, buffer, blocklist, .. } =
            self;
        let max = parallelism.max;
        let segment = buffer.segment_bytes;
        let positive =
            |key, is_positive: bool| (key, is_positive, "must be more than 0".to_owned());
        let rules = [
            positive("checkpoint.interval", checkpoint.interval != Some(Duration::ZERO)),
            positive("checkpoint.timeout", checkpoint.timeout > Duration::ZERO),
            positive("checkpoint.max-concurrent", checkpoint.max_concurrent > 0),
            positive("checkpoint.num-retained", checkpoint.num_retained > 0),
            (
                "parallelism.max",
                (1..=PARALLELISM_MAX).contains(&max),
                format!("must be from 1 to {PARALLELISM_MAX}"),
            ),
            (
                "parallelism.default",
                parallelism.default.is_none_or(|default| default.get() <= max),
                format!("must be at most parallelism.max, which is {max}"),
            ),
            (
                "buffer.segment-bytes",
                segment.is_power_of_two() && (4 << 10..=16 << 20).contains(&segment),
                "must be a power of two from 4KiB to 16MiB".to_owned(),
            ),
            ("buffer.per-channel", buffer.per_channel >= 2, "must be at least 2".to_owned()),
            (
                "record.max-bytes",
                (segment..u32::MAX as usize).contains(&self.record.max_bytes),
                "must be at least buffer.segment-bytes and less than 4GiB".to_owned(),
            ),
            (
                "emission.max-bytes",
                self.emission.max_bytes >= segment,
                "must be at least buffer.segment-bytes".to_owned(),
            ),
            (
                "net.frame-max-bytes",
                (64 << 10..=16 << 20).contains(&self.net.frame_max_bytes),
                "must be from 64KiB to 16MiB".to_owned(),
            ),
            positive(
                "restart-strategy.failure-rate.max-failures-per-interval",
                restart.failure_rate_max_failures > 0,
            ),
            positive(
                "restart-strategy.failure-rate.failure-rate-interval",
                restart.failure_rate_interval > Duration::ZERO,
            ),
            positive(
                "restart-strategy.exponential-delay.initial-backoff",
                restart.exponential_initial > Duration::ZERO,
            ),
            (
                "restart-strategy.exponential-delay.max-backoff",
                restart.exponential_max >= restart.exponential_initial,
                "must be at least the initial backoff".to_owned(),
            ),
            (
                "restart-strategy.exponential-delay.backoff-multiplier",
                restart.exponential_multiplier >= 1.0 && restart.exponential_multiplier.is_finite(),
                "must be at least 1".to_owned(),
            ),
            (
                "restart-strategy.exponential-delay.jitter-factor",
                (0.0..=1.0).contains(&restart.exponential_jitter),
                "must be from 0 to 1".to_owned(),
            ),
            positive(
                "cluster.resource-blocklist.item.timeout",
                blocklist.item_timeout != Some(Duration::ZERO),
            ),
            positive(
                "cluster.resource-blocklist.item.max-timeout",
                blocklist.item_max_timeout > Duration::ZERO,
            ),
            positive(
                "cluster.resource-blocklist.max-blocked-nodes",
                blocklist.max_blocked_nodes > 0,
            ),
            positive(
                "cluster.resource-blocklist.item.timeout-check-interval",
                blocklist.item_timeout_check_interval > Duration::ZERO,
            ),
            (
                "cluster.resource-blocklist.max-blocked-ratio",
                (0.0..=1.0).contains(&blocklist.max_blocked_ratio),
                "must be from 0 to 1".to_owned(),
            ),
        ];
        match rules.into_iter().find(|(_, holds, _)| !holds) {
            Some((key, _, problem)) => Err(ConfigError::invalid(key, problem)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_make_no_sense_are_refused_naming_the_key() {
        assert_eq!(Config::default().validate(), Ok(()));
        for (key, value) in [
            ("checkpoint.interval", "0"),
            ("checkpoint.max-concurrent", "0"),
            ("parallelism.default", "129"),
            ("parallelism.max", "0"),
            ("parallelism.max", "40000"),
            ("buffer.segment-bytes", "5000"),
            ("buffer.segment-bytes", "2KiB"),
            ("buffer.per-channel", "1"),
            ("record.max-bytes", "1KiB"),
            ("record.max-bytes", "4GiB"),
            ("net.frame-max-bytes", "32MiB"),
            ("restart-strategy.exponential-delay.backoff-multiplier", "NaN"),
            ("restart-strategy.exponential-delay.max-backoff", "1ms"),
            ("cluster.resource-blocklist.max-blocked-ratio", "1.5"),
            ("cluster.resource-blocklist.item.timeout", "0"),
        ] {
            let mut config = Config::default();
            config.set(key, value, Origin::Code).expect("the value is of its type");
            let Err(ConfigError::Invalid { key: refused, .. }) = config.validate() else {
                panic!("{key} = {value} was not refused")
            };
            assert_eq!(refused, key);
        }
        for key in ["parallelism.default", "taskmanager.slots"] {
            let error = Config::default().set(key, "0", Origin::Code).expect_err("0 is refused");
            assert_eq!(
                error.to_string(),
                format!("option '{key}': expected a whole number from 1, or auto, found '0'")
            );
        }
    }
}
