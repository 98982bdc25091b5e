//! The watermark of several inputs together: what a gate and a union make of their channels and branches.

use crate::clock::EpochMillis;

/// The least watermark of the inputs that count, each given with whether it is idle; `None` if all that go on are idle.
///
/// An input that has come to its end, at MAX, counts only when all have: it neither holds back the others nor speaks for
/// one that is idle and may go on.
pub(crate) fn least_watermark(
    inputs: impl Iterator<Item = (EpochMillis, bool)>,
) -> Option<EpochMillis> {
    let mut least = None;
    let mut have_all_ended = true;
    for (watermark, is_idle) in inputs {
        if watermark == EpochMillis::MAX {
            continue;
        }
        have_all_ended = false;
        if !is_idle {
            least = Some(least.map_or(watermark, |least: EpochMillis| least.min(watermark)));
        }
    }
    if have_all_ended { Some(EpochMillis::MAX) } else { least }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p17_ended_inputs_leave_the_group_and_idle_ones_dont_count() {
        let (max, idle, active) = (EpochMillis::MAX, true, false);
        let of = |inputs: &[(EpochMillis, bool)]| least_watermark(inputs.iter().copied());
        let at = |millis| EpochMillis(millis);
        assert_eq!(of(&[(at(5), active), (at(3), active)]), Some(at(3)));
        assert_eq!(of(&[(at(5), active), (at(3), idle)]), Some(at(5)));
        assert_eq!(of(&[(at(5), idle), (at(3), idle)]), None);
        assert_eq!(of(&[(at(5), active), (max, active)]), Some(at(5)), "one has ended");
        assert_eq!(of(&[(at(5), idle), (max, active)]), None, "the idle one may go on");
        assert_eq!(of(&[(max, active), (max, idle)]), Some(max), "all have ended");
    }
}
