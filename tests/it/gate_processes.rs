//! Sixteen processes that ask for the same keys, die while they have them, and come back: on both databases no two of them
//! are let through at once, no fence is given twice, and who was taken over is refused.
//!
//! Each process is this test binary again, running [`one_process`] alone. What it is told it writes to a file, a line at a
//! time, before it goes on; by these the judgement is made.

use std::{
    collections::{BTreeMap, HashMap},
    fs::OpenOptions,
    io::Write,
    process::Stdio,
    sync::Arc,
    time::{Duration, Instant},
};

use onlynew::{
    domain::gate::{Act, AfterDone, AfterFailure, Allowed, Answer, ScopeRules},
    store::{Store, open},
};
use tokio::process::{Child, Command};

use crate::{
    both,
    support::{
        database::Database,
        gate::{SCOPE, acquire, act, ask},
    },
};

both!(sixteen_processes_that_die_share_keys_and_no_two_have_one_at_once);

const PROCESSES: usize = 16;
const KEYS: usize = 4;
/// How often processes die.
const DEATHS: usize = 40;

const RULES: ScopeRules = ScopeRules {
    lease: Duration::from_millis(300),
    retention: Some(Duration::from_hours(1)),
    after_done: AfterDone::Rerun,
    after_failure: AfterFailure::Retry,
    max_result: 1_000,
};

/// The process, where this binary was started as one; else nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_process() {
    let Ok(url) = std::env::var("ONLYNEW_GATE_PROCESS") else { return };
    let path = std::env::var("ONLYNEW_GATE_LOG").unwrap();
    let mut log = OpenOptions::new().append(true).create(true).open(path).unwrap();
    // One write a line, so that a line is there whole or not at all.
    let mut write = |line: String| log.write_all(format!("{line}\n").as_bytes()).unwrap();
    let store = open(&url).await.unwrap();
    let end = Instant::now() + Duration::from_mins(5);
    while Instant::now() < end {
        let name = fastrand::usize(..KEYS).to_string();
        let got = acquire(&store, &RULES, &ask(&name)).await;
        let Answer::Started { takeover } = got.answer else {
            assert_eq!(got.answer, Answer::InProgress);
            continue;
        };
        let fence = got.view.fence;
        write(format!(
            "started {name} {fence} {takeover} {} {}",
            got.now.micros(),
            got.view.lease_until.micros()
        ));
        match fastrand::u8(..8) {
            // It forgets what it has, as a workflow does that is stopped.
            0 => continue,
            1 => tokio::time::sleep(RULES.lease * 2).await,
            2 => {
                if let Some(renewed) = act(&store, &RULES, &name, fence, Act::Renew)
                    .await
                    .filter(|one| one.allowed == Allowed::Yes)
                {
                    write(format!("renewed {name} {fence} {}", renewed.view.lease_until.micros()));
                }
            }
            _ => {}
        }
        let what = if fastrand::u8(..4) == 0 { Act::Fail } else { Act::Complete };
        let ended = act(&store, &RULES, &name, fence, what).await.unwrap();
        write(format!("{:?} {name} {fence} {}", ended.allowed, ended.view.fence).to_lowercase());
    }
}

fn start(url: &str, log: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["gate_processes::one_process", "--exact", "--nocapture"])
        .env("ONLYNEW_GATE_PROCESS", url)
        .env("ONLYNEW_GATE_LOG", log)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

async fn sixteen_processes_that_die_share_keys_and_no_two_have_one_at_once(database: Database) {
    let store = database.open().await;
    let folder = tempfile::tempdir().unwrap();
    let log = |number: usize| folder.path().join(number.to_string()).display().to_string();
    let mut processes: Vec<Child> =
        (0..PROCESSES).map(|number| start(database.url(), &log(number))).collect();
    let mut started = PROCESSES;
    for _ in 0..DEATHS {
        // Each comes to do something before the next one dies.
        let before = totals(&store).await;
        while totals(&store).await < before + 8 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let chosen = fastrand::usize(..PROCESSES);
        processes[chosen].kill().await.unwrap();
        processes[chosen] = start(database.url(), &log(started));
        started += 1;
    }
    for process in &mut processes {
        assert!(process.try_wait().unwrap().is_none(), "a process ended by itself");
        process.kill().await.unwrap();
    }
    let lines = (0..started).filter_map(|number| std::fs::read_to_string(log(number)).ok());
    let lines: Vec<String> =
        lines.flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>()).collect();
    judge(&lines);
    let counted = store.gate_scopes().await.unwrap().remove(0).totals;
    let told = lines.iter().filter(|line| line.starts_with("started")).count() as u64;
    // Whoever died between the commit and its line was let through all the same.
    assert!(counted.started >= told && counted.started <= told + DEATHS as u64 + PROCESSES as u64);
}

async fn totals(store: &Arc<dyn Store>) -> u64 {
    store
        .gate_scopes()
        .await
        .unwrap()
        .iter()
        .filter(|view| view.scope == SCOPE)
        .map(|view| view.totals.started)
        .sum()
}

/// What is known of one acquisition.
#[derive(Debug)]
struct Hold {
    takeover: bool,
    at: i64,
    until: i64,
    is_ended: bool,
}

fn judge(lines: &[String]) {
    let mut holds: HashMap<&str, BTreeMap<i64, Hold>> = HashMap::new();
    let number = |text: &str| text.parse::<i64>().unwrap();
    for line in lines.iter().filter(|line| line.starts_with("started")) {
        let [_, key, fence, takeover, at, until] = parts(line);
        let hold =
            Hold { takeover: takeover == "true", at: number(at), until: number(until), is_ended: false };
        let before = holds.entry(key).or_default().insert(number(fence), hold);
        assert!(before.is_none(), "the fence {fence} of {key} was given twice");
    }
    let all: Vec<i64> = holds.values().flat_map(|holds| holds.keys().copied()).collect();
    let mut distinct = all.clone();
    distinct.sort_unstable();
    distinct.dedup();
    assert_eq!(distinct.len(), all.len(), "a fence was given to two keys");
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        let hold = |key: &str, fence: &str| holds[key].contains_key(&number(fence));
        match words[..] {
            ["renewed", key, fence, _] => assert!(hold(key, fence)),
            ["yes", key, fence, now] => assert!(hold(key, fence) && fence == now, "{line}"),
            ["lost", _, fence, now] => assert!(number(fence) < number(now), "{line}"),
            ["started", ..] => {}
            _ => panic!("{line}"),
        }
    }
    for line in lines {
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["renewed", key, fence, until] => {
                let hold = holds.get_mut(key).unwrap().get_mut(&number(fence)).unwrap();
                hold.until = hold.until.max(number(until));
            }
            ["yes", key, fence, _] => {
                holds.get_mut(key).unwrap().get_mut(&number(fence)).unwrap().is_ended = true;
            }
            _ => {}
        }
    }
    let mut takeovers = 0;
    for (key, holds) in &holds {
        let mut holds = holds.values().peekable();
        while let (Some(one), Some(next)) = (holds.next(), holds.peek()) {
            assert!(one.at <= next.at, "{key}: later fences are given later");
            if next.takeover && one.is_ended {
                // One that was let through and died before it said so stands between the two.
                continue;
            }
            if next.takeover {
                takeovers += 1;
                assert!(next.at >= one.until, "{key}: {next:?} was let in beside {one:?}");
            }
        }
    }
    assert!(takeovers > 5, "{takeovers} takeovers prove little");
    assert!(lines.iter().any(|line| line.starts_with("lost")), "nobody was refused");
}

fn parts<const N: usize>(line: &str) -> [&str; N] {
    line.split(' ').collect::<Vec<_>>().try_into().unwrap()
}
