//! The types of options: how each is read from text, and shown as text that reads back.

use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

/// A type that an option can have.
pub(super) trait Value: Sized {
    /// Reads a value.
    ///
    /// # Errors
    /// Says what the text should be.
    fn parse(text: &str) -> Result<Self, &'static str>;

    /// Shows a value as text that reads back as the same value.
    fn show(&self) -> String;
}

macro_rules! plain {
    ($($type:ty: $expected:literal;)*) => {$(
        impl Value for $type {
            fn parse(text: &str) -> Result<Self, &'static str> { text.parse().map_err(|_| $expected) }
            fn show(&self) -> String { self.to_string() }
        }
    )*};
}
plain! {
    bool: "true or false";
    u32: "a whole number";
    NonZeroU32: "a whole number from 1";
    f64: "a number";
    String: "a text";
}

/// A size in bytes.
impl Value for usize {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a size like 32KiB, 1MiB or 4096";
        let (number, unit) = number_and_unit(text);
        let unit = match unit {
            "" | "B" => 1,
            "KiB" | "K" | "k" => 1 << 10,
            "MiB" | "M" | "m" => 1 << 20,
            "GiB" | "G" | "g" => 1 << 30,
            _ => return Err(EXPECTED),
        };
        let number: Self = number.parse().map_err(|_| EXPECTED)?;
        number.checked_mul(unit).ok_or(EXPECTED)
    }

    fn show(&self) -> String {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        let unit = units.iter().find(|(shift, _)| *self != 0 && self.trailing_zeros() >= *shift);
        unit.map_or_else(|| self.to_string(), |(shift, name)| format!("{}{name}", self >> shift))
    }
}

/// A duration: a whole number and a unit, milliseconds if there is none, as in Flink.
impl Value for Duration {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "a duration like 200ms, 10s, 5min or 1h";
        let (number, unit) = number_and_unit(text);
        let number: u64 = number.parse().map_err(|_| EXPECTED)?;
        let seconds = match unit {
            "ns" => return Ok(Self::from_nanos(number)),
            "us" | "µs" => return Ok(Self::from_micros(number)),
            "" | "ms" => return Ok(Self::from_millis(number)),
            "s" => 1,
            "m" | "min" => 60,
            "h" => 3600,
            "d" => 86_400,
            _ => return Err(EXPECTED),
        };
        number.checked_mul(seconds).map(Self::from_secs).ok_or(EXPECTED)
    }

    fn show(&self) -> String {
        const NANOS: [(u128, &str); 7] = [
            (86_400_000_000_000, "d"),
            (3_600_000_000_000, "h"),
            (60_000_000_000, "min"),
            (1_000_000_000, "s"),
            (1_000_000, "ms"),
            (1_000, "us"),
            (1, "ns"),
        ];
        let nanos = self.as_nanos();
        let whole = |(unit, _): &&(u128, &str)| nanos != 0 && nanos.is_multiple_of(*unit);
        let unit = NANOS.iter().find(whole);
        unit.map_or_else(|| "0ms".to_owned(), |(unit, name)| format!("{}{name}", nanos / unit))
    }
}

/// A number's digits, and the unit behind them.
fn number_and_unit(text: &str) -> (&str, &str) {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    (&text[..end], text[end..].trim())
}

/// Options that may have no value, each with the word for that; the first is the one shown.
macro_rules! optional {
    ($($type:ty: $none:literal $(| $also:literal)*, $expected:literal;)*) => {$(
        impl Value for Option<$type> {
            fn parse(text: &str) -> Result<Self, &'static str> {
                match text {
                    $none $(| $also)* => Ok(None),
                    _ => <$type>::parse(text).map(Some).map_err(|_| $expected),
                }
            }
            fn show(&self) -> String { self.as_ref().map_or($none.to_owned(), Value::show) }
        }
    )*};
}
optional! {
    Duration: "never" | "infinite", "a duration like 200ms, 10s or 1h, or never";
    u32: "unlimited" | "infinite", "a whole number, or unlimited";
    NonZeroU32: "auto", "a whole number from 1, or auto";
    String: "none" | "", "a text, or none";
    PathBuf: "none" | "", "a path, or none";
}

impl Value for PathBuf {
    fn parse(text: &str) -> Result<Self, &'static str> {
        Ok(text.into())
    }

    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// CPUs, or none for all that are allowed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuList(pub Vec<usize>);

impl Value for CpuList {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "CPUs like 0,2 or 0-3, or auto";
        /// No machine has more; a longer range is a slip of the pen.
        const CPU_MAX: usize = 4096;
        if text == "auto" {
            return Ok(Self::default());
        }
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let first: usize = first.trim().parse().map_err(|_| EXPECTED)?;
            let last: usize = last.trim().parse().map_err(|_| EXPECTED)?;
            if first > last || last > CPU_MAX {
                return Err(EXPECTED);
            }
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }

    fn show(&self) -> String {
        if self.0.is_empty() {
            return "auto".to_owned();
        }
        let cpus: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        cpus.join(",")
    }
}

/// A task manager as it is written down: `node1:2` has two slots on machine `node1`, and `node1:2:gpu` says as well
/// that the machine is in the node pool `gpu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskManagerSpec {
    /// The machine.
    pub node: String,
    /// Slots, each a worker thread.
    pub slots: u32,
    /// The machine's node pool; `None` for the default one.
    pub pool: Option<String>,
}

/// Task managers, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskManagerList(pub Vec<TaskManagerSpec>);

impl Value for TaskManagerList {
    fn parse(text: &str) -> Result<Self, &'static str> {
        const EXPECTED: &str = "task managers like node1:2,node1:2,node2:2:gpu, or none";
        const POOL: &str = "a node pool that begins with a letter, as in node1:2:gpu";
        /// Slots of one task manager; more threads than this are a slip of the pen.
        const SLOTS_MAX: u32 = 4096;
        if matches!(text, "" | "none") {
            return Ok(Self::default());
        }
        let spec = |part: &str| {
            // A machine's name may have colons, so the last field that is a number is the slots.
            let (node, last) = part.trim().rsplit_once(':').ok_or(EXPECTED)?;
            let (node, slots, pool) = match (last.trim().parse(), node.rsplit_once(':')) {
                (Ok(slots), _) => (node, slots, None),
                (Err(_), Some((node, slots))) => {
                    let slots = slots.trim().parse().map_err(|_| EXPECTED)?;
                    (node, slots, Some(last.trim()))
                }
                (Err(_), None) => return Err(EXPECTED),
            };
            if node.is_empty() || !(1..=SLOTS_MAX).contains(&slots) {
                return Err(EXPECTED);
            }
            if pool.is_some_and(|pool| !pool.starts_with(char::is_alphabetic)) {
                return Err(POOL);
            }
            Ok(TaskManagerSpec { node: node.to_owned(), slots, pool: pool.map(str::to_owned) })
        };
        text.split(',').map(spec).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> String {
        if self.0.is_empty() {
            return "none".to_owned();
        }
        let spec = |TaskManagerSpec { node, slots, pool }: &TaskManagerSpec| match pool {
            Some(pool) => format!("{node}:{slots}:{pool}"),
            None => format!("{node}:{slots}"),
        };
        let specs: Vec<String> = self.0.iter().map(spec).collect();
        specs.join(",")
    }
}

/// An option that is one of some words.
macro_rules! words {
    ($($(#[$doc:meta])* $name:ident, $expected:literal {
        $($(#[$variant_doc:meta])* $variant:ident = $word:literal,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl Value for $name {
            fn parse(text: &str) -> Result<Self, &'static str> {
                match text {
                    $($word => Ok(Self::$variant),)*
                    _ => Err($expected),
                }
            }
            fn show(&self) -> String {
                match self { $(Self::$variant => $word.to_owned(),)* }
            }
        }
    )*};
}
words! {
    /// What a checkpoint guarantees after a restart.
    Mode, "exactly-once or at-least-once" {
        /// Each record counts once.
        ExactlyOnce = "exactly-once",
        /// Each record counts, some twice; barriers are not aligned.
        AtLeastOnce = "at-least-once",
    }
    /// What a worker without work does.
    IdleStrategy, "spin, backoff or park" {
        /// Looks again at once: the lowest latency, a whole CPU.
        Spin = "spin",
        /// Spins a while, then yields, then parks.
        Backoff = "backoff",
        /// Parks at once: the fewest cycles.
        Park = "park",
    }
    /// Whether strategies of the blocklist act.
    StrategyMode, "enforce or shadow" {
        /// What they want is blocklisted.
        Enforce = "enforce",
        /// What they want is only counted.
        Shadow = "shadow",
    }
    /// What happens to subtasks that are to leave a blocklisted machine when there is no room elsewhere.
    OnNoCapacity, "wait or fail-over" {
        /// They keep running where they are.
        Wait = "wait",
        /// They stop, and wait for slots.
        FailOver = "fail-over",
    }
    /// Whether and when a failed region is started again.
    RestartType, "none, fixed-delay, failure-rate or exponential-delay" {
        /// The first failure fails the job.
        None = "none",
        /// So many restarts, the same time apart.
        FixedDelay = "fixed-delay",
        /// As long as failures are rare enough.
        FailureRate = "failure-rate",
        /// Always, with a growing delay.
        ExponentialDelay = "exponential-delay",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units_or_are_milliseconds() {
        for (text, shown, millis) in [
            ("200ms", "200ms", 200),
            ("0", "0ms", 0),
            ("1500", "1500ms", 1500),
            ("60 s", "1min", 60_000),
            ("5m", "5min", 300_000),
            ("1h", "1h", 3_600_000),
            ("24 h", "1d", 86_400_000),
        ] {
            let duration = Duration::parse(text).expect("the text is a duration");
            assert_eq!(
                (duration, duration.show().as_str()),
                (Duration::from_millis(millis), shown)
            );
        }
        assert_eq!(Duration::parse("7us").map(|d| d.show()), Ok("7us".to_owned()));
        for text in
            ["", "s", "-1s", "1.5s", "1 week", "99999999999999999999", "18446744073709551615d"]
        {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
        assert_eq!(Option::<Duration>::parse("never"), Ok(None));
        assert_eq!(Option::<Duration>::None.show(), "never");
    }

    #[test]
    fn sizes_are_powers_of_1024() {
        assert_eq!(usize::parse("32KiB"), Ok(32 << 10));
        assert_eq!(usize::parse("1 MiB"), Ok(1 << 20));
        assert_eq!(usize::parse("4096"), Ok(4096));
        assert_eq!(
            (usize::show(&(3 << 20)), usize::show(&1000), usize::show(&0)),
            ("3MiB".into(), "1000".into(), "0".into())
        );
        for text in ["", "KiB", "1KB", "-1", "99999999999999GiB"] {
            assert!(usize::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cpu_lists_have_ranges() {
        assert_eq!(CpuList::parse("0,2-4, 7"), Ok(CpuList(vec![0, 2, 3, 4, 7])));
        assert_eq!(CpuList::parse("auto"), Ok(CpuList::default()));
        for text in ["", "x", "4-2", "0-1000000000", "1,,2"] {
            assert!(CpuList::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn one_of_some_words_reads_back() {
        for word in ["none", "fixed-delay", "failure-rate", "exponential-delay"] {
            assert_eq!(RestartType::parse(word).map(|value| value.show()), Ok(word.to_owned()));
        }
        assert_eq!(Mode::parse("twice"), Err("exactly-once or at-least-once"));
        assert_eq!(IdleStrategy::parse("park"), Ok(IdleStrategy::Park));
    }
}
