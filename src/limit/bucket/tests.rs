//! The buckets on a clock that jumps, and their lines on one that waits.

use std::num::NonZeroU32;

use proptest::prelude::*;

use super::*;
use crate::{config::account::Auth, domain::clock::Wait};

/// A clock that jumps instead of waiting and keeps its waits.
#[derive(Debug)]
struct Jumping {
    now: Mutex<Instant>,
    waits: Mutex<Vec<Duration>>,
}

impl Jumping {
    fn start() -> Arc<Self> {
        Arc::new(Self { now: Mutex::new(Instant::from_seconds(1_000)), waits: Mutex::default() })
    }

    fn set(&self, now: Instant) {
        *self.now.lock().unwrap() = now;
    }

    fn waits(&self) -> Vec<Duration> {
        std::mem::take(&mut *self.waits.lock().unwrap())
    }
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        *self.now.lock().unwrap()
    }

    fn sleep(&self, duration: Duration) -> Wait<'_> {
        self.waits.lock().unwrap().push(duration);
        let mut now = self.now.lock().unwrap();
        *now = now.plus(duration);
        Box::pin(std::future::ready(()))
    }
}

fn account(bucket: &str, requests: u32, per: Duration) -> Account {
    let limit = NonZeroU32::new(requests).map(|requests| RateLimit::quota(requests, per));
    Account { bucket: bucket.into(), connector: "c".into(), auth: Auth::None, rate_limit: limit }
}

async fn admit(limits: &Limits, account: &Account) -> Result<(), Held> {
    limits.admit(Precedence::Live, &[Ask::from(account)]).await
}

fn limits(clock: &Arc<Jumping>) -> Limits {
    let clock: Arc<dyn Clock> = clock.clone();
    Limits::new(clock).with_random(|| 0.0)
}

const SECOND: Duration = Duration::from_secs(1);

/// Whether no period of `per` holds more than `requests` of these instants.
fn keeps(admitted: &[Instant], requests: u32, per: Duration) -> bool {
    admitted.iter().all(|first| {
        let within = admitted.iter().filter(|at| *at >= first && **at < first.plus(per)).count();
        within <= requests as usize
    })
}

fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn no_sliding_period_admits_more_than_its_quota(
        account in (1..80_u32, 1..90_u64),
        stream in proptest::option::of((1..80_u32, 1..90_u64)),
        steps in prop::collection::vec((0..3_u8, 0..40_000_u64), 20..160),
    ) {
        run(async {
            let clock = Jumping::start();
            let limits = limits(&clock);
            let quota = |(requests, per): (u32, u64)| {
                RateLimit::quota(NonZeroU32::new(requests).unwrap(), Duration::from_secs(per))
            };
            let (of_account, of_stream) = (quota(account), stream.map(quota));
            let account = Ask { bucket: "a", limit: Some(&of_account) };
            let stream = of_stream.as_ref().map(|limit| Ask { bucket: "a/s", limit: Some(limit) });
            let (mut all, mut of_the_stream) = (Vec::new(), Vec::new());
            for (kind, millis) in steps {
                match kind {
                    // Somebody else pauses, or the source asks for patience.
                    0 => clock.set(clock.now().plus(Duration::from_millis(millis))),
                    1 if millis > 39_000 => {
                        limits.hold("a", clock.now().plus(Duration::from_millis(millis / 10)));
                    }
                    _ => {
                        let is_stream = stream.is_some() && millis % 2 == 0;
                        let asks: Vec<_> = stream.filter(|_| is_stream).into_iter().chain([account]).collect();
                        let precedence = if millis % 3 == 0 { Precedence::Replay } else { Precedence::Live };
                        limits.admit(precedence, &asks).await.unwrap();
                        all.push(clock.now());
                        if is_stream {
                            of_the_stream.push(clock.now());
                        }
                    }
                }
            }
            assert!(keeps(&all, of_account.requests.get(), of_account.per), "{all:?}");
            if let Some(limit) = &of_stream {
                assert!(keeps(&of_the_stream, limit.requests.get(), limit.per), "{of_the_stream:?}");
            }
        });
    }
}

#[tokio::test]
async fn waiters_of_two_buckets_are_let_through_by_both_in_the_same_instant() {
    let clock = Jumping::start();
    let limits = limits(&clock);
    let (fast, slow) = (account("a", 4, SECOND), account("a/s", 1, 3 * SECOND));
    let mut admitted = Vec::new();
    for _ in 0..4 {
        limits.admit(Precedence::Live, &[Ask::from(&slow), Ask::from(&fast)]).await.unwrap();
        admitted.push(clock.now().since(Instant::from_seconds(1_000)).as_millis());
        // The other streams of the account are let through at once in between.
        limits.admit(Precedence::Live, &[Ask::from(&fast)]).await.unwrap();
    }
    assert_eq!(admitted, [0, 3_000, 6_000, 9_000]);
}

#[tokio::test]
async fn after_a_hold_waiters_go_in_turn_and_apart_and_none_too_early() {
    let clock: Arc<dyn Clock> = Arc::new(crate::limit::SystemClock);
    let limits = Arc::new(Limits::new(Arc::clone(&clock)));
    let opens = clock.now().plus(SECOND);
    limits.hold("a", opens);
    let went = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = tokio::task::JoinSet::new();
    for number in 0..8 {
        let (clock, limits, went) = (Arc::clone(&clock), Arc::clone(&limits), Arc::clone(&went));
        waiters.spawn(async move {
            admit(&limits, &account("a", 0, SECOND)).await.unwrap();
            went.lock().unwrap().push((number, clock.now()));
        });
        // One after another into the line.
        tokio::task::yield_now().await;
    }
    waiters.join_all().await;
    let went = went.lock().unwrap();
    assert_eq!(went.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert!(went.iter().all(|(_, at)| *at >= opens), "{went:?}");
    for pair in went.windows(2) {
        // Clocks differ by less than a tenth of what lies between.
        assert!(pair[1].1.since(pair[0].1) >= APART * 9 / 10, "{went:?}");
    }
}

#[tokio::test]
async fn a_gate_that_shuts_again_stops_those_who_stand_in_line() {
    let clock: Arc<dyn Clock> = Arc::new(crate::limit::SystemClock);
    let limits = Arc::new(Limits::new(Arc::clone(&clock)));
    limits.hold("a", clock.now().plus(SECOND / 2));
    let waiters: Vec<_> = (0..2)
        .map(|_| {
            let limits = Arc::clone(&limits);
            tokio::spawn(async move { admit(&limits, &account("a", 0, SECOND)).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(20)).await;
    // The first answer after the hold asks for a day: whoever follows is told so, and does not ask.
    let until = clock.now().plus(86_400 * SECOND);
    limits.hold("a", until);
    for waiter in waiters {
        let held = waiter.await.unwrap().unwrap_err();
        assert!(held.until.since(until) < SECOND && until.since(held.until) < SECOND, "{held}");
    }
}

#[tokio::test]
async fn a_waiter_that_is_dropped_takes_nothing_and_leaves_the_line() {
    let clock: Arc<dyn Clock> = Arc::new(crate::limit::SystemClock);
    let limits = Arc::new(Limits::new(Arc::clone(&clock)));
    let slow = account("a", 1, SECOND);
    admit(&limits, &slow).await.unwrap();
    let began = clock.now();
    for _ in 0..5 {
        let dropped = tokio::time::timeout(Duration::from_millis(10), admit(&limits, &slow)).await;
        assert!(dropped.is_err());
    }
    admit(&limits, &slow).await.unwrap();
    let took = clock.now().since(began);
    assert!(took < 5 * SECOND, "one period, and not six: {took:?}");
}

#[tokio::test]
async fn a_gate_that_shuts_while_another_bucket_is_waited_for_counts_as_well() {
    let clock: Arc<dyn Clock> = Arc::new(crate::limit::SystemClock);
    let limits = Arc::new(Limits::new(Arc::clone(&clock)));
    limits.hold("a", clock.now().plus(SECOND / 2));
    let waiter = tokio::spawn({
        let limits = Arc::clone(&limits);
        async move {
            let (stream, account) = (account("a/s", 1, SECOND), account("a", 1, SECOND));
            limits.admit(Precedence::Live, &[Ask::from(&stream), Ask::from(&account)]).await
        }
    });
    tokio::time::sleep(Duration::from_millis(20)).await;
    limits.hold("a/s", clock.now().plus(86_400 * SECOND));
    assert_eq!(waiter.await.unwrap().unwrap_err().bucket, "a/s");
}

#[test]
fn a_period_is_rounded_up_so_that_its_cells_fit() {
    let limit = account("a", 3, SECOND).rate_limit.unwrap();
    assert!(3 * Rate { requests: limit.requests, per: limit.per }.period() >= SECOND);
}

#[tokio::test]
async fn a_bucket_is_shared_by_name_and_the_slower_limit_holds() {
    let clock = Jumping::start();
    let limits = limits(&clock);
    admit(&limits, &account("a", 10, SECOND)).await.unwrap();
    admit(&limits, &account("b", 10, SECOND)).await.unwrap();
    assert!(clock.waits().is_empty());
    admit(&limits, &account("a", 10, SECOND)).await.unwrap();
    assert_eq!(clock.waits(), [SECOND / 10]);
    admit(&limits, &account("a", 1, SECOND)).await.unwrap();
    admit(&limits, &account("a", 10, SECOND)).await.unwrap();
    assert_eq!(clock.waits(), [SECOND / 10, SECOND]);
}

#[tokio::test]
async fn a_shut_gate_holds_all_jobs_of_the_account_and_no_other() {
    let clock = Jumping::start();
    let limits = limits(&clock);
    limits.hold("a", clock.now().plus(120 * SECOND));
    limits.hold("a", clock.now().plus(20 * SECOND));
    admit(&limits, &account("b", 0, SECOND)).await.unwrap();
    assert!(clock.waits().is_empty());
    admit(&limits, &account("a", 0, SECOND)).await.unwrap();
    assert_eq!(clock.waits(), [120 * SECOND]);
}

#[tokio::test]
async fn jitter_only_makes_waits_longer() {
    let clock = Jumping::start();
    let limits = limits(&clock).with_random(|| 0.999);
    limits.hold("a", clock.now().plus(100 * SECOND));
    admit(&limits, &account("a", 0, SECOND)).await.unwrap();
    let waits = clock.waits();
    assert!(waits.len() == 1 && waits[0] > 120 * SECOND && waits[0] < 125 * SECOND, "{waits:?}");
}

#[tokio::test]
async fn nobody_waits_for_longer_than_the_cap() {
    let clock = Jumping::start();
    let limits = limits(&clock);
    let until = clock.now().plus(86_400 * SECOND);
    limits.hold("a", until);
    assert_eq!(admit(&limits, &account("a", 0, SECOND)).await, Err(Held { bucket: "a".into(), until }));
    let daily = account("b", 1, 86_400 * SECOND);
    admit(&limits, &daily).await.unwrap();
    assert_eq!(admit(&limits, &daily).await, Err(Held { bucket: "b".into(), until }));
    assert!(clock.waits().is_empty());
}

#[tokio::test]
async fn a_clock_that_is_set_back_does_not_shut_the_gate_for_longer() {
    let clock = Jumping::start();
    let limits = limits(&clock);
    let account = account("a", 1, 10 * SECOND);
    admit(&limits, &account).await.unwrap();
    limits.hold("a", clock.now().plus(30 * SECOND));
    clock.set(Instant::from_seconds(10));
    admit(&limits, &account).await.unwrap();
    assert_eq!(clock.waits(), [30 * SECOND]);
}

async fn admit_replay(limits: &Limits, account: &Account) -> Result<(), Held> {
    limits.admit(Precedence::Replay, &[Ask::from(account)]).await
}

/// Requests of a bucket of 20 cells a second that stand ready at once, the replays first: who went, in order.
#[tokio::test]
async fn a_live_request_waits_for_no_replay_but_the_one_that_has_just_gone() {
    let limits = Arc::new(Limits::new(Arc::new(crate::limit::SystemClock)));
    let went = Arc::new(Mutex::new(Vec::new()));
    let mut waiters = tokio::task::JoinSet::new();
    for precedence in [[Precedence::Replay; 4], [Precedence::Live; 4]].concat() {
        let (limits, went) = (Arc::clone(&limits), Arc::clone(&went));
        waiters.spawn(async move {
            limits.admit(precedence, &[Ask::from(&account("a", 20, SECOND))]).await.unwrap();
            went.lock().unwrap().push(precedence);
        });
        tokio::task::yield_now().await;
    }
    waiters.join_all().await;
    let expected =
        [[Precedence::Replay; 1].as_slice(), &[Precedence::Live; 4], &[Precedence::Replay; 3]].concat();
    assert_eq!(*went.lock().unwrap(), expected);
}

#[tokio::test]
async fn a_replay_takes_every_cell_that_nobody_live_waits_for() {
    let limits = Arc::new(Limits::new(Arc::new(crate::limit::SystemClock)));
    let live = Arc::new(account("a", 50, SECOND));
    let stop = Arc::new(tokio::sync::Notify::new());
    // A live job that asks again as soon as it was answered, and leaves one cell of two free.
    let asking = tokio::spawn({
        let (limits, live, stop) = (Arc::clone(&limits), Arc::clone(&live), Arc::clone(&stop));
        async move {
            loop {
                admit(&limits, &live).await.unwrap();
                tokio::select! {
                    () = tokio::time::sleep(SECOND / 25) => {}
                    () = stop.notified() => return,
                }
            }
        }
    });
    for _ in 0..10 {
        admit_replay(&limits, &live).await.unwrap();
    }
    stop.notify_one();
    asking.await.unwrap();
}

#[tokio::test]
async fn a_live_request_that_waits_for_its_stream_keeps_no_replay_of_another_one() {
    let limits = Arc::new(Limits::new(Arc::new(crate::limit::SystemClock)));
    let (stream, whole) = (Arc::new(account("a/s", 1, 60 * SECOND)), Arc::new(account("a", 0, SECOND)));
    limits.admit(Precedence::Live, &[Ask::from(&*stream), Ask::from(&*whole)]).await.unwrap();
    let slow = tokio::spawn({
        let (limits, stream, whole) = (Arc::clone(&limits), Arc::clone(&stream), Arc::clone(&whole));
        async move { limits.admit(Precedence::Live, &[Ask::from(&*stream), Ask::from(&*whole)]).await }
    });
    tokio::task::yield_now().await;
    assert!(limits.bucket("a/s").has_live());
    admit_replay(&limits, &whole).await.unwrap();
    // And a replay of the slow stream, which waits for the live one, holds up none of another stream.
    let behind = tokio::spawn({
        let (limits, whole) = (Arc::clone(&limits), Arc::clone(&whole));
        async move { limits.admit(Precedence::Replay, &[Ask::from(&*stream), Ask::from(&*whole)]).await }
    });
    tokio::task::yield_now().await;
    admit_replay(&limits, &whole).await.unwrap();
    slow.abort();
    behind.abort();
}

#[tokio::test]
async fn whoever_is_dropped_counts_no_more_and_has_taken_nothing() {
    let limits = Arc::new(Limits::new(Arc::new(crate::limit::SystemClock)));
    let slow = account("a", 10, SECOND);
    admit(&limits, &slow).await.unwrap();
    for precedence in [Precedence::Live, Precedence::Replay, Precedence::Live] {
        let asks = [Ask::from(&slow)];
        let dropped = tokio::time::timeout(Duration::from_millis(2), limits.admit(precedence, &asks)).await;
        assert!(dropped.is_err());
        assert!(!limits.bucket("a").has_live());
    }
    admit_replay(&limits, &slow).await.unwrap();
    admit(&limits, &slow).await.unwrap();
}

#[tokio::test]
async fn a_gate_that_shuts_holds_a_replay_as_well() {
    let clock = Jumping::start();
    let limits = limits(&clock);
    limits.hold("a", clock.now().plus(20 * SECOND));
    admit_replay(&limits, &account("a", 0, SECOND)).await.unwrap();
    assert_eq!(clock.waits(), [20 * SECOND]);
    let until = clock.now().plus(86_400 * SECOND);
    limits.hold("a", until);
    let held = admit_replay(&limits, &account("a", 0, SECOND)).await;
    assert_eq!(held, Err(Held { bucket: "a".into(), until }));
}
