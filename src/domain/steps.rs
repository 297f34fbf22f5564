//! The steps of one run: its window tiled oldest first, and a step cut in half where the source cannot
//! give all of it at once.

use std::time::Duration;

use super::{
    instant::micros_of,
    version::Version,
    window::{Step, WindowRule},
};

/// The steps that a run has before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Steps {
    rule: WindowRule,
    from: Option<Version>,
    /// Where the current step ends, and behind it the ends of the steps that it was cut out of.
    ends: Vec<Option<Version>>,
    /// Where the window ends, as far as that is known beforehand.
    hi: Option<Version>,
    length: Option<Duration>,
    /// Where the last step ends; `None` where it is open.
    end: Option<Version>,
    /// A version above all that the source can hold by now, but for those from the future.
    horizon: Option<Version>,
    /// How far the next cut behind the horizon is.
    stride: i64,
}

impl Steps {
    /// The steps over a window from `from` on, each of `length`; only the last one reaches beyond `hi`.
    pub fn new(
        rule: WindowRule,
        from: Option<Version>,
        hi: Option<Version>,
        length: Option<Duration>,
    ) -> Self {
        Self::beginning_with(rule, rule.step(from, hi, length), hi, length)
    }

    /// The same, where the last step can be cut up to `horizon`.
    #[must_use]
    pub fn up_to(self, horizon: Option<Version>) -> Self {
        Self { horizon, ..self }
    }

    /// The same, where the last step is closed and ends at `end`.
    #[must_use]
    pub fn ending_at(self, end: Option<Version>) -> Self {
        Self { end, ..self }
    }

    /// The same, where the first step was laid by an earlier attempt.
    pub fn beginning_with(
        rule: WindowRule,
        step: Step,
        hi: Option<Version>,
        length: Option<Duration>,
    ) -> Self {
        let ends = vec![step.to];
        Self { rule, from: step.from, ends, hi, length, end: None, horizon: hi, stride: rule.shortest() }
    }

    /// How many steps a window takes that is laid like that, before any of them is cut.
    pub fn count(
        rule: WindowRule,
        from: Option<Version>,
        until: Option<Version>,
        length: Option<Duration>,
    ) -> u64 {
        let whole = from.zip(until).filter(|_| rule.is_time);
        let whole =
            whole.and_then(|(Version(from), Version(until))| u64::try_from(until.saturating_sub(from)).ok());
        let length = length.map(|length| micros_of(length).max(1).unsigned_abs());
        whole.zip(length).map_or(1, |(whole, length)| whole.div_ceil(length).max(1))
    }

    /// The step to walk over.
    pub fn current(&self) -> Step {
        Step { from: self.from, to: self.ends.last().copied().flatten().or(self.end) }
    }

    /// Where the window ends, as far as that was known beforehand.
    pub const fn hi(&self) -> Option<Version> {
        self.hi
    }

    /// Goes on behind the current step; `false` where it was the last one.
    pub fn advance(&mut self) -> bool {
        let Some(end) = self.ends.pop().flatten().filter(|to| self.end.is_none_or(|end| *to < end)) else {
            return false;
        };
        self.from = Some(end);
        if self.ends.is_empty() {
            self.ends.push(self.rule.step(self.from, self.hi, self.length).to);
        }
        true
    }

    /// Cuts the current step in half; `false` where it has no beginning or cannot be any shorter.
    ///
    /// The last step, which has no end, is cut half way to the horizon; behind it, where only rows are that
    /// a clock or the source has wrong, by strides that grow, so that it comes to wherever they are.
    pub fn split(&mut self) -> bool {
        let Step { from: Some(Version(from)), to } = self.current() else { return false };
        let half_way = |Version(end): Version| end.saturating_sub(from) / 2;
        let half = match (to, self.horizon) {
            (Some(to), _) => half_way(to),
            (None, Some(horizon)) if half_way(horizon) >= self.stride => half_way(horizon),
            (None, _) => {
                self.stride = self.stride.saturating_mul(2);
                self.stride / 2
            }
        };
        // A whole number of the shortest steps, so that no half asks for the same as the whole.
        let half = half - half % self.rule.shortest();
        let cut = from.saturating_add(half);
        if !self.rule.is_time || half <= 0 || cut == i64::MAX {
            return false;
        }
        self.ends.push(Some(Version(cut)));
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: WindowRule = WindowRule {
        start: None,
        lookback: Duration::ZERO,
        settle: Duration::ZERO,
        step: None,
        granularity: Duration::from_secs(1),
        precision: 1_000_000,
        open_start: false,
        open_end: false,
        is_time: true,
    };

    const fn at(second: i64) -> Version {
        Version(second * 1_000_000)
    }

    #[test]
    fn so_many_steps_are_told_beforehand_as_are_walked() {
        let length = |seconds| Some(Duration::from_secs(seconds));
        // from, until, length
        let windows = [
            (Some(at(0)), at(100), length(40)),
            (Some(at(0)), at(80), length(40)),
            (Some(at(0)), at(81), length(40)),
            (Some(at(0)), at(10), length(40)),
            (Some(at(90)), at(10), length(40)),
            (Some(at(0)), at(10), None),
            (None, at(10), length(1)),
        ];
        for (from, until, length) in windows {
            let steps = Steps::new(RULE, from, Some(until), length).ending_at(Some(until));
            let count = Steps::count(RULE, from, Some(until), length);
            assert_eq!(count, walked(steps, &[]).len() as u64, "{from:?} {until:?} {length:?}");
        }
        let integers = WindowRule { is_time: false, ..RULE };
        assert_eq!(Steps::count(integers, Some(at(0)), Some(at(100)), length(1)), 1);
    }

    /// All steps in whole seconds; those at these places are cut in half first.
    fn walked(mut steps: Steps, cut: &[usize]) -> Vec<(Option<i64>, Option<i64>)> {
        let whole = |version: Option<Version>| version.map(|Version(at)| at / 1_000_000);
        let mut walked = Vec::new();
        loop {
            if cut.contains(&walked.len()) {
                assert!(steps.split());
            }
            let step = steps.current();
            walked.push((whole(step.from), whole(step.to)));
            if !steps.advance() {
                return walked;
            }
        }
    }

    #[test]
    fn steps_tile_the_window_and_the_last_one_is_open() {
        let steps = |length| Steps::new(RULE, Some(at(0)), Some(at(10)), length);
        let four = Some(Duration::from_secs(4));
        assert_eq!(walked(steps(None), &[]), [(Some(0), None)]);
        assert_eq!(walked(steps(four), &[]), [(Some(0), Some(4)), (Some(4), Some(8)), (Some(8), None)]);
        let resumed = Step { from: Some(at(5)), to: Some(at(6)) };
        let resumed = Steps::beginning_with(RULE, resumed, Some(at(10)), four);
        assert_eq!(walked(resumed, &[]), [(Some(5), Some(6)), (Some(6), None)]);
    }

    #[test]
    fn a_step_that_is_cut_still_tiles() {
        let steps = || Steps::new(RULE, Some(at(0)), Some(at(20)), Some(Duration::from_secs(8)));
        let cut = walked(steps(), &[0]);
        assert_eq!(cut, [(0, 4), (4, 8), (8, 16), (16, -1)].map(bounds));
        let cut = walked(steps(), &[0, 1]);
        assert_eq!(cut, [(0, 4), (4, 6), (6, 8), (8, 16), (16, -1)].map(bounds));
        let last = walked(steps(), &[2]);
        assert_eq!(last, [(0, 8), (8, 16), (16, 18), (18, -1)].map(bounds), "the open step, up to `hi`");
        let last = walked(steps().up_to(Some(at(26))), &[2, 3]);
        assert_eq!(last, [(0, 8), (8, 16), (16, 21), (21, 23), (23, -1)].map(bounds), "and beyond it");
    }

    #[test]
    fn a_window_that_is_closed_ends_where_it_should() {
        let closed = |length| Steps::new(RULE, Some(at(0)), Some(at(10)), length).ending_at(Some(at(10)));
        let four = Some(Duration::from_secs(4));
        assert_eq!(walked(closed(None), &[]), [bounds((0, 10))]);
        assert_eq!(walked(closed(four), &[]), [(0, 4), (4, 8), (8, 10)].map(bounds));
        assert_eq!(walked(closed(four), &[2]), [(0, 4), (4, 8), (8, 9), (9, 10)].map(bounds));
        let resumed = Step { from: Some(at(8)), to: Some(at(10)) };
        let resumed = Steps::beginning_with(RULE, resumed, Some(at(10)), four).ending_at(Some(at(10)));
        assert_eq!(walked(resumed, &[]), [bounds((8, 10))]);
        let numbers = WindowRule { is_time: false, ..RULE };
        let numbers = Steps::new(numbers, Some(at(0)), Some(at(10)), four).ending_at(Some(at(10)));
        assert_eq!(walked(numbers, &[]), [bounds((0, 10))]);
    }

    fn bounds((from, to): (i64, i64)) -> (Option<i64>, Option<i64>) {
        (Some(from), (to >= 0).then_some(to))
    }

    #[test]
    fn no_step_becomes_shorter_than_the_request_can_spell() {
        let halvings = |rule: WindowRule, from, to| {
            let mut steps = Steps::beginning_with(rule, Step { from, to }, None, None);
            std::iter::from_fn(|| steps.split().then_some(())).take(100).count()
        };
        assert_eq!(halvings(RULE, Some(at(0)), Some(at(9))), 3, "4, 2, 1");
        assert_eq!(halvings(RULE, Some(at(0)), Some(at(1))), 0);
        assert_eq!(halvings(RULE, Some(at(5)), Some(at(1))), 0, "a window that ends before it begins");
        assert_eq!(halvings(RULE, None, Some(at(9))), 0, "no beginning");
        assert_eq!(halvings(WindowRule { is_time: false, ..RULE }, Some(at(0)), Some(at(9))), 0, "numbers");
    }

    #[test]
    fn the_last_step_comes_to_rows_from_the_future() {
        let year = 365 * 24 * 3_600;
        for rows_at in [30, year, 80 * year] {
            let mut steps = Steps::new(RULE, Some(at(0)), Some(at(10)), None).up_to(Some(at(20)));
            let mut asked = 0;
            // Too much for one request, until less than two seconds are left around the rows.
            loop {
                let Step { from, to } = steps.current();
                asked += 1;
                let holds = from <= Some(at(rows_at)) && to.is_none_or(|to| at(rows_at) < to);
                let is_short = to.is_some_and(|to| to.0 - from.unwrap().0 < 2_000_000);
                assert!(asked < 200, "{rows_at}");
                if holds && is_short {
                    break;
                }
                if !holds || !steps.split() {
                    assert!(steps.advance(), "{rows_at} is never reached");
                }
            }
        }
    }
}
