//! What an answer of n8n means for the event that was sent, and when it is tried again.

use std::time::Duration;

use super::backoff::jittered;

/// The waits between attempts where a destination names none.
pub const DEFAULT_DELAYS: [Duration; 11] = [
    Duration::from_secs(5),
    Duration::from_secs(30),
    Duration::from_mins(2),
    Duration::from_mins(10),
    Duration::from_mins(30),
    Duration::from_hours(2),
    Duration::from_hours(5),
    Duration::from_hours(10),
    Duration::from_hours(14),
    Duration::from_hours(20),
    Duration::from_hours(24),
];

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The receiver answered.
    Status {
        /// The HTTP status.
        code: u16,
        /// How long it asks to wait, where it does.
        retry_after: Option<Duration>,
    },
    /// The request cannot have reached the receiver: no address, no connection, no TLS.
    Unreached,
    /// The request was sent and its answer was lost: the receiver may have acted on it.
    Lost,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver has it.
    Delivered,
    /// Try again by the schedule. The attempt says nothing about the event itself.
    Retry {
        /// The receiver may already have acted on the event.
        ambiguous: bool,
        /// The shortest wait the receiver asks for.
        at_least: Option<Duration>,
    },
    /// The receiver refuses this event: try again by the schedule, and give up at its end.
    Refused,
    /// The receiver is busy: wait, and do not count the attempt.
    Wait(Duration),
}

/// How long a busy receiver is left alone where it does not say, and the longest it may ask for: whoever
/// asks for more has its units wrong.
const BUSY_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// Reads an answer. Only a 2xx is a delivery; redirects are never followed.
pub fn judge(answer: Answer) -> Verdict {
    let retry = |ambiguous, at_least| Verdict::Retry { ambiguous, at_least };
    match answer {
        Answer::Unreached => retry(false, None),
        Answer::Lost => retry(true, None),
        Answer::Status { code, retry_after } => {
            match (code, retry_after.map(|wait| wait.min(LONGEST_WAIT))) {
                (200..=299, _) => Verdict::Delivered,
                (429, wait) => Verdict::Wait(wait.unwrap_or(BUSY_WAIT)),
                (300..=399 | 401 | 403 | 404 | 408 | 409 | 410 | 425, wait) => retry(false, wait),
                (400..=499, _) => Verdict::Refused,
                // A gateway's 502 or 504, or a proxy's 524, may come after n8n began the execution.
                (502 | 504 | 520..=527, wait) => retry(true, wait),
                (_, wait) => retry(false, wait),
            }
        }
    }
}

/// What becomes of an event after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is settled.
    Delivered,
    /// It is tried again.
    Again {
        /// After how long.
        after: Duration,
        /// Whether the receiver refused the event itself.
        refused: bool,
        /// Whether the receiver may already have acted on it.
        ambiguous: bool,
    },
    /// A dead letter: it is not tried again without a person.
    Dead,
}

/// The next step for an event that was tried `tries` times and refused `refusals` times, this time included.
/// Only refusals lead to the end: an outage, however long, makes no dead letters. `random` in [0, 1)
/// spreads a wait over ±20 %.
pub fn next(verdict: Verdict, tries: u32, refusals: u32, delays: &[Duration], random: f64) -> Next {
    let index = |count: u32| usize::try_from(count).unwrap_or(usize::MAX).saturating_sub(1);
    let delay = || {
        let planned = delays.get(index(tries)).or(delays.last()).copied().unwrap_or(BUSY_WAIT);
        planned.mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0))
    };
    match verdict {
        Verdict::Delivered => Next::Delivered,
        Verdict::Wait(wait) => {
            Next::Again { after: jittered(wait, random), refused: false, ambiguous: false }
        }
        Verdict::Refused if index(refusals) >= delays.len() => Next::Dead,
        Verdict::Refused => Next::Again { after: delay(), refused: true, ambiguous: false },
        Verdict::Retry { ambiguous, at_least } => {
            Next::Again { after: delay().max(at_least.unwrap_or_default()), refused: false, ambiguous }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(code: u16) -> Answer {
        Answer::Status { code, retry_after: None }
    }

    #[test]
    fn c35_only_2xx_is_a_delivery() {
        let retry = Verdict::Retry { ambiguous: false, at_least: None };
        let maybe = Verdict::Retry { ambiguous: true, at_least: None };
        let cases = [
            (status(200), Verdict::Delivered),
            (status(204), Verdict::Delivered),
            (status(302), retry),
            (status(404), retry),
            (status(410), retry),
            (status(401), retry),
            (status(408), retry),
            (status(425), retry),
            (status(500), retry),
            (status(503), retry),
            (status(524), maybe),
            (status(400), Verdict::Refused),
            (status(413), Verdict::Refused),
            (status(422), Verdict::Refused),
            (status(429), Verdict::Wait(BUSY_WAIT)),
            (Answer::Unreached, retry),
            (Answer::Lost, maybe),
        ];
        for (answer, expected) in cases {
            assert_eq!(judge(answer), expected, "{answer:?}");
        }
    }

    const DELAYS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(100)];

    fn again(seconds: u64, refused: bool) -> Next {
        Next::Again { after: Duration::from_secs(seconds), refused, ambiguous: false }
    }

    #[test]
    fn attempts_follow_the_schedule() {
        let retry = judge(status(500));
        assert_eq!(next(retry, 1, 0, &DELAYS, 0.5), again(10, false));
        assert_eq!(next(retry, 2, 0, &DELAYS, 0.5), again(100, false));
        assert_eq!(next(retry, 50, 0, &DELAYS, 0.5), again(100, false), "an outage makes no dead letters");
        let patient = Verdict::Retry { ambiguous: false, at_least: Some(Duration::from_mins(1)) };
        assert_eq!(next(patient, 1, 0, &DELAYS, 0.5), again(60, false));
    }

    #[test]
    fn only_refusals_lead_to_a_dead_letter() {
        assert_eq!(next(Verdict::Refused, 2, 2, &DELAYS, 0.5), again(100, true));
        assert_eq!(next(Verdict::Refused, 3, 3, &DELAYS, 0.5), Next::Dead);
        assert_eq!(
            next(Verdict::Refused, 50, 1, &DELAYS, 0.5),
            again(100, true),
            "the outage before does not count"
        );
        assert_eq!(next(Verdict::Refused, 1, 1, &[], 0.5), Next::Dead);
    }

    #[test]
    fn a_busy_receiver_is_left_alone_as_long_as_it_asks_and_no_longer_than_a_day() {
        let asked = |seconds| Answer::Status { code: 429, retry_after: Some(Duration::from_secs(seconds)) };
        assert_eq!(next(judge(asked(7)), 1, 0, &DEFAULT_DELAYS, 0.0), again(7, false));
        assert_eq!(next(judge(asked(1_796_079_600)), 1, 0, &DEFAULT_DELAYS, 0.0), again(86_400, false));
    }
}
