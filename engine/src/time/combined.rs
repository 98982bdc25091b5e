//! The watermark of several inputs together: what a gate and a union make of their channels and branches.

use crate::clock::EpochMillis;

/// What several inputs make together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CombinedTime {
    /// How far time has come.
    pub(crate) watermark: EpochMillis,
    /// Whether all inputs that go on are idle.
    pub(crate) is_idle: bool,
}

impl CombinedTime {
    /// Of inputs, each given with its watermark and whether it is idle: the least watermark of those that are not.
    ///
    /// If all are idle, none holds back another: the greatest counts, whichever became idle last. An input that has come to
    /// its end, at MAX, counts only when all have: it neither holds back the others nor speaks for one that may go on.
    pub(crate) fn of(inputs: impl Iterator<Item = (EpochMillis, bool)>) -> Self {
        let (mut least, mut greatest_idle) = (None, None);
        for (watermark, is_idle) in inputs {
            if watermark == EpochMillis::MAX {
                continue;
            }
            if is_idle {
                greatest_idle = greatest_idle.max(Some(watermark));
            } else {
                least = Some(least.map_or(watermark, |least: EpochMillis| least.min(watermark)));
            }
        }
        match (least, greatest_idle) {
            (Some(watermark), _) => Self { watermark, is_idle: false },
            (None, Some(watermark)) => Self { watermark, is_idle: true },
            (None, None) => Self { watermark: EpochMillis::MAX, is_idle: false },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p17_ended_inputs_leave_the_group_and_idle_ones_dont_count() {
        const MAX: i64 = i64::MAX;
        let (idle, active) = (true, false);
        let of = |inputs: &[(i64, bool)]| {
            let inputs = inputs.iter().map(|&(millis, is_idle)| (EpochMillis(millis), is_idle));
            let combined = CombinedTime::of(inputs);
            (combined.watermark.0, combined.is_idle)
        };
        assert_eq!(of(&[(5, active), (3, active)]), (3, active));
        assert_eq!(of(&[(5, active), (3, idle)]), (5, active));
        assert_eq!(of(&[(5, idle), (3, idle)]), (5, idle), "none holds back another");
        assert_eq!(of(&[(5, active), (MAX, active)]), (5, active), "one has ended");
        assert_eq!(of(&[(5, idle), (MAX, active)]), (5, idle), "the idle one may go on");
        assert_eq!(of(&[(MAX, active), (MAX, idle)]), (MAX, active), "all have ended");
    }
}
