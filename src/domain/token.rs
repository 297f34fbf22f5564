//! Access tokens that run out: when one is renewed before its time, what a refusal of one means, and how
//! long a provider that gave none is left alone (field case C32).

use std::time::Duration;

use super::instant::Instant;

/// The longest time before its end that a token is renewed.
const LONGEST_MARGIN: Duration = Duration::from_mins(1);

/// How long a refused job goes without causing another renewal: a source that refuses even a fresh token
/// must not use up what the provider gives out (ten tokens in ten minutes at some).
pub const FUTILE_FOR: Duration = Duration::from_mins(10);

/// The first and the longest time that a provider is left alone after it answered with a refusal, which
/// waiting alone does not heal.
const REFUSED: (Duration, Duration) = (Duration::from_mins(1), Duration::from_mins(10));

/// The same after a failure that may pass.
const FAILED: (Duration, Duration) = (Duration::from_secs(1), Duration::from_mins(1));

/// When a token is renewed: a tenth of its life before its end, and a minute at most, so that it does not
/// die on its way. A token whose end is not told is used until it is refused.
pub fn renewed_at(obtained_at: Instant, expires_at: Option<Instant>) -> Option<Instant> {
    let expires_at = expires_at?;
    let margin = (expires_at.since(obtained_at) / 10).min(LONGEST_MARGIN);
    Some(expires_at.minus(margin))
}

/// Whether a token is due to be renewed.
pub fn is_due(obtained_at: Instant, expires_at: Option<Instant>, now: Instant) -> bool {
    renewed_at(obtained_at, expires_at).is_some_and(|due| due <= now)
}

/// What to do about a request whose token was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Another request has had the token renewed since: this one is repeated with the new token.
    UseNewer,
    /// The token is renewed, and the request repeated.
    Renew,
    /// A newer token would be refused as well.
    GiveUp,
}

/// Decides on a refusal. `used` and `current` number the account's tokens; `repeated` says that the request
/// was repeated already after a refusal; `futile_since` is when this job was last refused with a token that
/// was fresh.
pub fn after_refusal(
    used: i64,
    current: i64,
    repeated: bool,
    futile_since: Option<Instant>,
    now: Instant,
) -> Refusal {
    if repeated {
        return Refusal::GiveUp;
    }
    if used < current {
        return Refusal::UseNewer;
    }
    match futile_since {
        Some(since) if now < since.plus(FUTILE_FOR) => Refusal::GiveUp,
        _ => Refusal::Renew,
    }
}

/// How long a provider is left alone after `failures` failures in a row (from 1). `may_pass` says that the
/// last one was of a kind that passes by itself.
pub fn pause(failures: u32, may_pass: bool) -> Duration {
    let (first, longest) = if may_pass { FAILED } else { REFUSED };
    let factor = 1_u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
    first.saturating_mul(factor).min(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);
    const T0: Instant = Instant::from_seconds(1_790_000_000);

    #[test]
    fn c32_a_token_is_renewed_a_little_before_its_end() {
        let cases = [(Some(60), Some(54)), (Some(3_600), Some(3_540)), (Some(1), Some(0)), (None, None)];
        for (expires_in, expected) in cases {
            let expires_at = expires_in.map(|seconds| T0.plus(seconds * SECOND));
            let renewed = renewed_at(T0, expires_at).map(|at| at.since(T0).as_secs());
            assert_eq!(renewed, expected, "{expires_in:?}");
            let due = |after: u32| is_due(T0, expires_at, T0.plus(after * SECOND));
            if let Some(at) = expected.and_then(|at| u32::try_from(at).ok()).filter(|at| *at > 0) {
                assert!(due(at) && !due(at - 1));
            }
        }
        assert!(is_due(T0, Some(T0.minus(SECOND)), T0));
        assert!(!is_due(T0, None, T0.plus(1_000_000 * SECOND)));
    }

    #[test]
    fn c32_a_refusal_renews_once_for_all_and_never_for_nothing() {
        let ago = |seconds: u32| Some(T0.minus(seconds * SECOND));
        let cases = [
            (1, 1, false, None, Refusal::Renew),
            (1, 2, false, None, Refusal::UseNewer),
            (1, 2, false, ago(5), Refusal::UseNewer),
            (2, 2, true, None, Refusal::GiveUp),
            (1, 2, true, None, Refusal::GiveUp),
            (2, 2, false, ago(599), Refusal::GiveUp),
            (2, 2, false, ago(600), Refusal::Renew),
        ];
        for (used, current, repeated, futile, expected) in cases {
            let decided = after_refusal(used, current, repeated, futile, T0);
            assert_eq!(decided, expected, "{used} of {current}, repeated {repeated}, {futile:?}");
        }
    }

    #[test]
    fn a_provider_that_refuses_is_asked_less_and_less() {
        let pauses = |may_pass| (1..8).map(|n| pause(n, may_pass).as_secs()).collect::<Vec<_>>();
        assert_eq!(pauses(true), [1, 2, 4, 8, 16, 32, 60]);
        assert_eq!(pauses(false), [60, 120, 240, 480, 600, 600, 600]);
        assert_eq!(pause(u32::MAX, false), 600 * SECOND);
        let in_ten_minutes = (1..5).map(|n| pause(n, false)).sum::<Duration>();
        assert!(in_ten_minutes > 600 * SECOND, "fewer than five requests, of ten that the strictest allow");
    }
}
