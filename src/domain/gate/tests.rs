use proptest::prelude::*;

use super::*;

const NOW: Instant = Instant::from_seconds(1_000_000);

fn at(seconds: i64) -> Instant {
    Instant::from_seconds(1_000_000 + seconds)
}

fn rules(after_done: AfterDone, after_failure: AfterFailure) -> ScopeRules {
    ScopeRules {
        retention: Some(Duration::from_secs(100)),
        after_done,
        after_failure,
        ..ScopeRules::default()
    }
}

fn held(state: GateState, lease_until: i64, changed_at: i64, fingerprint: Option<&str>) -> Held {
    Held {
        state,
        fence: 7,
        fingerprint: fingerprint.map(str::to_owned),
        lease_until: at(lease_until),
        changed_at: at(changed_at),
    }
}

#[test]
fn whoever_asks_is_answered_by_the_table() {
    use AfterDone::{Reject, Replay, Rerun};
    use AfterFailure::{Keep, Retry};
    use GateState::{Done, Failed, InProgress};
    let started = |takeover| Answer::Started { takeover };
    // state, lease until, changed at, stored fingerprint, asked fingerprint, after done, after failure, answer
    let table = [
        (InProgress, 1, -1, None, None, Replay, Retry, Answer::InProgress),
        (InProgress, 1, -1, Some("a"), Some("a"), Replay, Retry, Answer::InProgress),
        (InProgress, 1, -1, Some("a"), Some("b"), Replay, Retry, Answer::Mismatch),
        (InProgress, 1, -1, Some("a"), None, Replay, Retry, Answer::InProgress),
        (InProgress, 1, -1, None, Some("b"), Replay, Retry, Answer::InProgress),
        (InProgress, 0, -1, None, None, Replay, Retry, started(true)),
        (InProgress, -1, -1, Some("a"), Some("a"), Replay, Retry, started(true)),
        (InProgress, -1, -1, Some("a"), Some("b"), Rerun, Retry, Answer::Mismatch),
        (InProgress, 1, -200, None, None, Replay, Retry, Answer::InProgress),
        (InProgress, -99, -100, Some("a"), Some("b"), Replay, Retry, started(false)),
        (Done, 1, -1, None, None, Replay, Retry, Answer::Done),
        (Done, -1, -1, Some("a"), Some("a"), Replay, Keep, Answer::Done),
        (Done, -1, -1, Some("a"), Some("b"), Replay, Retry, Answer::Mismatch),
        (Done, 1, -1, None, None, Reject, Retry, Answer::Rejected),
        (Done, 1, -1, Some("a"), Some("b"), Reject, Retry, Answer::Mismatch),
        (Done, 1, -1, None, None, Rerun, Keep, started(false)),
        (Done, 1, -1, Some("a"), Some("b"), Rerun, Retry, started(false)),
        (Done, -1, -99, None, None, Replay, Retry, Answer::Done),
        (Done, 1, -100, None, None, Reject, Retry, started(false)),
        (Failed, 1, -1, None, None, Replay, Retry, started(false)),
        (Failed, 1, -1, None, None, Replay, Keep, Answer::Failed),
        (Failed, 1, -1, Some("a"), Some("b"), Replay, Retry, Answer::Mismatch),
        (Failed, 1, -1, Some("a"), Some("b"), Rerun, Keep, Answer::Mismatch),
        (Failed, 1, -100, None, None, Replay, Keep, started(false)),
    ];
    for (state, lease_until, changed_at, stored, asked, after_done, after_failure, answer) in table {
        let held = held(state, lease_until, changed_at, stored);
        assert_eq!(
            acquire(Some(&held), asked, &rules(after_done, after_failure), NOW),
            answer,
            "{held:?} {asked:?}"
        );
    }
    assert_eq!(acquire(None, Some("a"), &ScopeRules::default(), NOW), started(false));
}

#[test]
fn a_key_without_an_age_is_never_forgotten() {
    let rules = ScopeRules { retention: None, ..ScopeRules::default() };
    let ancient = held(GateState::Done, -999_999, -999_999, None);
    assert_eq!(acquire(Some(&ancient), None, &rules, NOW), Answer::Done);
}

#[test]
fn a_holder_acts_under_its_fence_alone() {
    use Act::{Complete, Fail, Renew};
    use GateState::{Done, Failed, InProgress};
    let table = [
        (InProgress, 7, Complete, Allowed::Yes),
        (InProgress, 7, Fail, Allowed::Yes),
        (InProgress, 7, Renew, Allowed::Yes),
        (InProgress, 6, Complete, Allowed::Lost),
        (InProgress, 8, Renew, Allowed::Lost),
        (Done, 7, Complete, Allowed::Repeated),
        (Done, 7, Fail, Allowed::Lost),
        (Done, 7, Renew, Allowed::Lost),
        (Done, 6, Complete, Allowed::Lost),
        (Failed, 7, Fail, Allowed::Repeated),
        (Failed, 7, Complete, Allowed::Lost),
        (Failed, 7, Renew, Allowed::Lost),
        (Failed, 6, Fail, Allowed::Lost),
    ];
    for (state, fence, wanted, allowed) in table {
        // A lease that ran out changes nothing.
        for lease_until in [-1, 1] {
            assert_eq!(
                act(&held(state, lease_until, 0, None), fence, wanted),
                allowed,
                "{state:?} {fence} {wanted:?}"
            );
        }
    }
}

#[test]
fn a_key_is_told_from_its_absence() {
    for good in ["1", "order 17/paid", "ž€", "nullable", " x ", &"k".repeat(LONGEST_KEY)] {
        assert_eq!(GateKey::parse(good).unwrap().as_str(), good);
    }
    for missing in ["", " ", "\t", "undefined", "null", "NaN", " None ", "[object Object]"] {
        assert_eq!(GateKey::parse(missing), Err(NoKey::Missing(missing.to_owned())));
    }
    assert_eq!(GateKey::parse(&"k".repeat(LONGEST_KEY + 1)), Err(NoKey::TooLong(LONGEST_KEY + 1)));
    assert_eq!(GateKey::parse("a\nb"), Err(NoKey::Control));
    let told = NoKey::Missing("undefined".to_owned()).to_string();
    assert!(told.starts_with("the key is missing (it is the text `undefined`): "), "{told}");
    assert!(NoKey::Missing(String::new()).to_string().starts_with("the key is missing: "));
}

#[test]
fn the_wait_is_rounded_up_to_whole_seconds() {
    for (micros, seconds) in [(-5, 1), (0, 1), (1, 1), (1_000_000, 1), (1_000_001, 2), (900_000_000, 900)] {
        assert_eq!(retry_after(Instant::from_micros(NOW.micros() + micros), NOW), seconds);
    }
}

proptest! {
    /// Whatever happened to a key, nobody is let through while another has it, and the rules alone let one through again.
    #[test]
    fn nobody_is_let_through_while_another_has_the_key(
        lease_until in 1_i64..1_000,
        changed_at in -1_000_i64..0,
        fingerprint in proptest::option::of("[ab]"),
        asked in proptest::option::of("[ab]"),
        rerun: bool,
        keep: bool,
    ) {
        let after_done = if rerun { AfterDone::Rerun } else { AfterDone::Replay };
        let after_failure = if keep { AfterFailure::Keep } else { AfterFailure::Retry };
        let held = held(GateState::InProgress, lease_until, changed_at, fingerprint.as_deref());
        let answer = acquire(Some(&held), asked.as_deref(), &rules(after_done, after_failure), NOW);
        prop_assert!(matches!(answer, Answer::InProgress | Answer::Mismatch));
    }
}
