//! What an answer of n8n means for the event that was sent, and when it is tried again.

use std::time::Duration;

use super::{backoff::jittered, health::Health, instant::Instant};

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

/// What an answer's body says that its status does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Says {
    /// Nothing of interest.
    #[default]
    Nothing,
    /// n8n knows no active workflow of that path.
    NotRegistered,
    /// n8n is starting and takes nothing yet, whatever the status says.
    Starting,
    /// A gate in the workflow: the event's effect is done already.
    Done,
}

/// How one attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The receiver answered.
    Status {
        /// The HTTP status.
        code: u16,
        /// How long it asks to wait, where it does.
        retry_after: Option<Duration>,
        /// What its body says.
        says: Says,
    },
    /// The request cannot have reached the receiver: no address, no connection.
    Unreached,
    /// Whoever answered there cannot prove to be the receiver, or speaks no TLS; or the address is one that may
    /// not be reached.
    Untrusted,
    /// The request was sent and its answer was lost: the receiver may have acted on it.
    Lost,
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The receiver has it.
    Delivered,
    /// Try again by the schedule. The attempt says nothing about the event itself.
    Failed {
        /// The receiver may already have acted on the event.
        ambiguous: bool,
        /// The shortest wait the receiver asks for.
        at_least: Option<Duration>,
    },
    /// The same, since it did not reach the receiver.
    Unreached,
    /// The destination is not what it is taken for: no event of it can be delivered until that is mended.
    Misplaced,
    /// The receiver refuses what it was sent.
    Refused,
    /// It refuses it for its size.
    TooLarge,
    /// The receiver is busy: wait, and do not count the attempt.
    Wait(Duration),
}

impl Verdict {
    /// Its name in the store and in JSON.
    pub const fn class(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Failed { ambiguous: false, .. } => "failed",
            Self::Failed { ambiguous: true, .. } => "lost",
            Self::Unreached => "unreached",
            Self::Misplaced => "misplaced",
            Self::Refused => "refused",
            Self::TooLarge => "too_large",
            Self::Wait(_) => "busy",
        }
    }
}

/// How long a busy receiver is left alone where it does not say, and the longest it may ask for: whoever
/// asks for more has its units wrong.
const BUSY_WAIT: Duration = Duration::from_secs(5);
const LONGEST_WAIT: Duration = Duration::from_hours(24);

/// Reads an answer. Only a 2xx is a delivery, unless n8n says that it is only starting, or a gate's word that it was
/// one; redirects are never followed.
pub fn judge(answer: Answer) -> Verdict {
    let failed = |ambiguous, at_least| Verdict::Failed { ambiguous, at_least };
    let (code, wait, says) = match answer {
        Answer::Unreached => return Verdict::Unreached,
        Answer::Untrusted => return Verdict::Misplaced,
        Answer::Lost => return failed(true, None),
        Answer::Status { code, retry_after, says } => {
            (code, retry_after.map(|wait| wait.min(LONGEST_WAIT)), says)
        }
    };
    match (code, wait) {
        _ if says == Says::Starting => failed(false, wait),
        (200..=299, _) => Verdict::Delivered,
        (409, _) if says == Says::Done => Verdict::Delivered,
        (429, wait) => Verdict::Wait(wait.unwrap_or(BUSY_WAIT)),
        (503, Some(wait)) => Verdict::Wait(wait),
        (404, _) if says == Says::NotRegistered => Verdict::Misplaced,
        (300..=399 | 401 | 403 | 410, _) => Verdict::Misplaced,
        (408 | 409 | 425, wait) => failed(false, wait),
        (413, _) => Verdict::TooLarge,
        (400..=499, _) => Verdict::Refused,
        // A gateway's 502 or 504, or a proxy's 524, may come after n8n began the execution.
        (502 | 504 | 520..=527, wait) => failed(true, wait),
        (_, wait) => failed(false, wait),
    }
}

/// What is known of a message that was tried once more: of its events, what holds back the least.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tried {
    /// How often it was tried before.
    pub tries: u32,
    /// How many of those count towards its end.
    pub spent: u32,
    /// When it was last tried, by the database's clock.
    pub tried_at: Option<Instant>,
    /// It was sent to see whether the destination is well again.
    pub is_probe: bool,
    /// It holds more than one event.
    pub is_batch: bool,
    /// The receiver may already have acted on it.
    pub is_ambiguous: bool,
}

/// What becomes of a message after an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// It is settled.
    Delivered,
    /// It is tried again.
    Again {
        /// After how long.
        after: Duration,
        /// Whether the attempt counts towards its end.
        spent: bool,
        /// Whether the receiver may already have acted on it.
        ambiguous: bool,
    },
    /// It is tried again at once in two halves, to find the event that it failed for.
    Split {
        /// Whether the receiver may already have acted on it.
        ambiguous: bool,
    },
    /// A dead letter: it is not tried again without a person.
    Dead,
}

/// The next step for a message, with what was known of its destination before this attempt. `random` in [0, 1)
/// spreads a wait over ±20 %.
///
/// Nothing counts against an event but with evidence that its destination takes others: an outage, however
/// long, makes no dead letters. Nor does it die for what came with it: a batch is split until the one is found, also
/// where there is no evidence, once it has been tried again as often as the schedule has waits.
pub fn next(verdict: Verdict, tried: Tried, health: &Health, delays: &[Duration], random: f64) -> Next {
    let delay = || {
        let index = usize::try_from(tried.tries).unwrap_or(usize::MAX);
        let planned = delays.get(index).or(delays.last()).copied().unwrap_or(BUSY_WAIT);
        planned.mul_f64(0.8 + 0.4 * random.clamp(0.0, 1.0))
    };
    let again = |after, spent, ambiguous| Next::Again { after, spent, ambiguous };
    // It took another one since this one was last tried, or at that moment, as far as clocks can tell.
    let took_others = tried.tried_at.is_some_and(|tried_at| health.delivered_at >= Some(tried_at));
    // The last that was heard of the destination was that it took one.
    let takes_others = tried.tried_at.is_none() && health.refusals == 0 && health.delivered_at.is_some();
    let is_open = !health.condition.is_shut() && !tried.is_probe;
    let counts = is_open && (took_others || takes_others);
    let most = u32::try_from(delays.len()).unwrap_or(u32::MAX);
    let failed = |ambiguous, at_least: Option<Duration>, is_reached| {
        let is_spent = took_others && tried.spent.saturating_add(1) >= most;
        let is_ambiguous = ambiguous || tried.is_ambiguous;
        // What may have been acted on is repeated as it was for as long as it can be.
        let is_worn = is_reached && tried.tries >= most;
        match tried.is_batch {
            true if is_spent || is_worn || (took_others && !is_ambiguous) => {
                Next::Split { ambiguous: is_ambiguous }
            }
            false if is_spent => Next::Dead,
            _ => again(delay().max(at_least.unwrap_or_default()), took_others, ambiguous),
        }
    };
    match verdict {
        Verdict::Delivered => Next::Delivered,
        Verdict::Wait(wait) => again(jittered(wait, random), false, false),
        Verdict::Failed { ambiguous, at_least } => failed(ambiguous, at_least, true),
        Verdict::Unreached => failed(false, None, false),
        // Where nothing shows that others are taken, what may have been acted on keeps its name.
        Verdict::Refused if tried.is_batch && tried.is_ambiguous && !counts && tried.tries < most => {
            again(delay(), false, false)
        }
        // It may have acted on those before the one that it refuses.
        Verdict::Refused if tried.is_batch => Next::Split { ambiguous: true },
        Verdict::TooLarge if tried.is_batch => Next::Split { ambiguous: false },
        Verdict::Refused | Verdict::TooLarge if counts => Next::Dead,
        Verdict::Misplaced | Verdict::Refused | Verdict::TooLarge => again(delay(), false, false),
    }
}

#[cfg(test)]
mod tests {
    use super::{super::health::Condition, *};

    fn status(code: u16) -> Answer {
        Answer::Status { code, retry_after: None, says: Says::Nothing }
    }

    fn said(code: u16, says: Says) -> Answer {
        Answer::Status { code, retry_after: None, says }
    }

    fn asking(code: u16, seconds: u64) -> Answer {
        Answer::Status { code, retry_after: Some(Duration::from_secs(seconds)), says: Says::Nothing }
    }

    #[test]
    fn c35_only_2xx_is_a_delivery() {
        let failed = Verdict::Failed { ambiguous: false, at_least: None };
        let maybe = Verdict::Failed { ambiguous: true, at_least: None };
        let patient = Verdict::Failed { ambiguous: false, at_least: Some(Duration::from_secs(9)) };
        let cases = [
            (status(200), Verdict::Delivered),
            (status(204), Verdict::Delivered),
            (said(200, Says::Starting), failed),
            (said(404, Says::Starting), failed),
            (status(302), Verdict::Misplaced),
            (said(404, Says::NotRegistered), Verdict::Misplaced),
            (status(404), Verdict::Refused),
            (status(410), Verdict::Misplaced),
            (status(401), Verdict::Misplaced),
            (status(403), Verdict::Misplaced),
            (status(408), failed),
            (status(409), failed),
            (said(409, Says::Done), Verdict::Delivered),
            (said(500, Says::Done), failed),
            (status(425), failed),
            (asking(425, 9), patient),
            (status(500), failed),
            (asking(500, 9), patient),
            (status(503), failed),
            (asking(503, 9), Verdict::Wait(Duration::from_secs(9))),
            (status(524), maybe),
            (status(400), Verdict::Refused),
            (status(413), Verdict::TooLarge),
            (status(422), Verdict::Refused),
            (status(429), Verdict::Wait(BUSY_WAIT)),
            (asking(429, 9), Verdict::Wait(Duration::from_secs(9))),
            (Answer::Unreached, Verdict::Unreached),
            (Answer::Untrusted, Verdict::Misplaced),
            (Answer::Lost, maybe),
        ];
        for (answer, expected) in cases {
            assert_eq!(judge(answer), expected, "{answer:?}");
        }
    }

    const DELAYS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(100)];
    const FAILED: Verdict = Verdict::Failed { ambiguous: false, at_least: None };

    fn again(seconds: u64, spent: bool) -> Next {
        Next::Again { after: Duration::from_secs(seconds), spent, ambiguous: false }
    }

    /// An event that was tried so often, the last time at second 50.
    fn tried(tries: u32, spent: u32) -> Tried {
        Tried { tries, spent, tried_at: (tries > 0).then_some(Instant::from_seconds(50)), ..Tried::default() }
    }

    /// A destination that took an event at this second.
    fn took(second: i64) -> Health {
        Health { delivered_at: Some(Instant::from_seconds(second)), ..Health::default() }
    }

    #[test]
    fn attempts_follow_the_schedule() {
        let next = |verdict, tries| next(verdict, tried(tries, 0), &Health::default(), &DELAYS, 0.5);
        assert_eq!(next(FAILED, 0), again(10, false));
        assert_eq!(next(FAILED, 1), again(100, false));
        assert_eq!(next(FAILED, 50), again(100, false), "an outage makes no dead letters");
        assert_eq!(next(Verdict::Misplaced, 0), again(10, false));
        let patient = Verdict::Failed { ambiguous: true, at_least: Some(Duration::from_mins(1)) };
        let expected = Next::Again { after: Duration::from_mins(1), spent: false, ambiguous: true };
        assert_eq!(next(patient, 0), expected);
    }

    #[test]
    fn failures_count_where_the_destination_took_others_since() {
        let next = |tries, spent, health: &Health| next(FAILED, tried(tries, spent), health, &DELAYS, 0.5);
        assert_eq!(next(0, 0, &took(60)), again(10, false), "the first one never");
        assert_eq!(next(1, 0, &took(60)), again(100, true));
        assert_eq!(next(2, 1, &took(60)), Next::Dead);
        assert_eq!(next(2, 1, &took(40)), again(100, false), "nothing since");
    }

    #[test]
    fn an_event_that_is_refused_is_dead_where_others_are_taken() {
        let next = |tries, health: &Health| next(Verdict::Refused, tried(tries, 0), health, &DELAYS, 0.5);
        let refusing = |refusals, second| Health { refusals, ..took(second) };
        assert_eq!(next(0, &took(1)), Next::Dead, "the last one was taken");
        assert_eq!(next(0, &refusing(1, 1)), again(10, false), "the last one was refused as well");
        assert_eq!(next(0, &Health::default()), again(10, false), "none was ever taken");
        assert_eq!(next(1, &refusing(3, 60)), Next::Dead, "others were taken since");
        assert_eq!(next(1, &refusing(3, 40)), again(100, false));
        let parked = Health { condition: Condition::Parked, ..took(60) };
        assert_eq!(next(1, &parked), again(100, false), "it is parked");
        let probe = Tried { is_probe: true, ..tried(1, 0) };
        assert_eq!(super::next(Verdict::Refused, probe, &took(60), &DELAYS, 0.5), again(100, false));
    }

    #[test]
    fn a_batch_is_split_before_an_event_dies() {
        let lost = Verdict::Failed { ambiguous: true, at_least: None };
        let split = |ambiguous| Next::Split { ambiguous };
        let lost_again =
            |seconds, spent| Next::Again { after: Duration::from_secs(seconds), spent, ambiguous: true };
        let batch = |tries, spent| Tried { is_batch: true, ..tried(tries, spent) };
        let doubtful = |tries, spent| Tried { is_ambiguous: true, ..batch(tries, spent) };
        // answer, batch, took one since -> next
        let cases = [
            (Verdict::Delivered, batch(0, 0), false, Next::Delivered),
            (Verdict::Refused, batch(0, 0), false, split(true)),
            (Verdict::Refused, Tried { is_probe: true, ..batch(0, 0) }, false, split(true)),
            (Verdict::Refused, doubtful(1, 0), true, split(true)),
            (Verdict::Refused, doubtful(1, 0), false, again(100, false)),
            (Verdict::Refused, Tried { is_probe: true, ..doubtful(1, 0) }, true, again(100, false)),
            (Verdict::Refused, doubtful(2, 0), false, split(true)),
            (Verdict::TooLarge, batch(0, 0), false, split(false)),
            (Verdict::TooLarge, doubtful(1, 0), true, split(false)),
            (Verdict::Misplaced, batch(1, 1), true, again(100, false)),
            (FAILED, batch(0, 0), true, again(10, false)),
            (FAILED, batch(1, 0), false, again(100, false)),
            (FAILED, batch(2, 0), false, split(false)),
            (Verdict::Unreached, batch(2, 0), false, again(100, false)),
            (Verdict::Unreached, batch(1, 0), true, split(false)),
            (Verdict::Unreached, doubtful(8, 1), false, again(100, false)),
            (FAILED, batch(1, 0), true, split(false)),
            (FAILED, doubtful(1, 0), true, again(100, true)),
            (FAILED, doubtful(1, 1), false, again(100, false)),
            (FAILED, doubtful(2, 0), false, split(true)),
            (FAILED, doubtful(2, 1), true, split(true)),
            (lost, batch(1, 0), true, lost_again(100, true)),
            (lost, batch(2, 1), true, split(true)),
        ];
        for (verdict, tried, took_one, expected) in cases {
            let health = took(if took_one { 60 } else { 40 });
            assert_eq!(next(verdict, tried, &health, &DELAYS, 0.5), expected, "{verdict:?} {tried:?}");
        }
    }

    #[test]
    fn a_busy_receiver_is_left_alone_as_long_as_it_asks_and_no_longer_than_a_day() {
        let next = |answer| next(judge(answer), tried(0, 0), &Health::default(), &DEFAULT_DELAYS, 0.0);
        assert_eq!(next(asking(429, 7)), again(7, false));
        assert_eq!(next(asking(503, 1_796_079_600)), again(86_400, false));
    }
}
