//! The story of a year: live polling, edits, deletes, a replay of the year in steps and two crashes, by the real binary. At
//! its end the store is sound, and whatever is asked about a record is answered by one `why`.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use onlynew::domain::{clock::machine_time, instant::Instant};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::{
    both,
    support::{
        database::Database,
        rig::{Job, Rig},
        server::{Asked, Reply},
    },
};

both!(a_year_of_edits_deletes_crashes_and_a_replay_leaves_no_question_open);

const DAY: Duration = Duration::from_hours(24);

fn days_ago(days: u32) -> Instant {
    machine_time().minus(DAY * days)
}

/// The source: a row a month, and what a test adds.
#[derive(Clone, Default)]
struct Shop {
    rows: Arc<Mutex<BTreeMap<u32, Instant>>>,
    /// So many requests for a part of the past are answered before one is held for ever; 0 holds none.
    answers_before: Arc<AtomicUsize>,
    held: watch::Sender<usize>,
}

impl Shop {
    fn put(&self, id: u32, at: Instant) {
        self.rows.lock().unwrap().insert(id, at);
    }

    fn remove(&self, id: u32) {
        self.rows.lock().unwrap().remove(&id);
    }

    fn answer(&self, asked: &Asked) -> Reply {
        let bound = |name: &str| asked.query.get(name).map(|at| at.parse::<Instant>().unwrap());
        let (since, until) = (bound("since"), bound("until"));
        if until.is_some() && self.answers_before.load(Ordering::SeqCst) > 0 {
            let left = self.answers_before.fetch_sub(1, Ordering::SeqCst);
            if left == 1 {
                self.held.send_modify(|held| *held += 1);
                return Reply::Hold;
            }
        }
        let rows = self.rows.lock().unwrap();
        let mut wanted: Vec<_> = rows
            .iter()
            .filter(|(_, at)| {
                since.is_none_or(|since| **at >= since) && until.is_none_or(|until| **at < until)
            })
            .collect();
        wanted.sort_by_key(|(id, at)| (**at, **id));
        let start: usize = asked.param("cursor").parse().unwrap_or(0);
        let items: Vec<_> = wanted
            .iter()
            .skip(start)
            .take(3)
            .map(|(id, at)| json!({"id": id, "updated_at": at.to_string()}))
            .collect();
        let next = (start + 3 < wanted.len()).then(|| (start + 3).to_string());
        Reply::Json(json!({"items": items, "next": next}).to_string())
    }
}

/// Whether n8n was sent something of a key.
fn has(asked: &[Asked], key: u32) -> bool {
    let key = Value::from(key.to_string());
    asked.iter().any(|asked| asked.json()["key"] == key)
}

struct Year {
    rig: Rig,
    shop: Shop,
    /// From where on its rows stand.
    start: Instant,
}

impl Year {
    async fn new(database: Database) -> Self {
        let (shop, start) = (Shop::default(), days_ago(361));
        for month in 1..=12 {
            shop.put(month, days_ago(361 - 30 * month + 15));
        }
        let rest = format!(
            "window: {{start: \"{start}\", lookback: 1s, step: 30d}}\n    deletes: {{mode: reconcile}}"
        );
        let job = Job {
            query: r#"{since: "{{ window.start }}", until: "{{ window.end }}", cursor: "{{ page.token }}"}"#,
            rest: &rest,
            ..Job::default()
        };
        let serving = shop.clone();
        let rig = Rig::new(database, job, move |asked| serving.answer(asked)).await;
        rig.configure_baseline();
        Self { rig, shop, start }
    }

    /// A command that ends well.
    async fn good(&self, arguments: &[&str]) -> Value {
        let (code, answer, error) = self.rig.command(&[arguments, &["--json"]].concat()).await;
        assert_eq!(code, 0, "{arguments:?}: {answer} {error}");
        answer
    }

    /// What a person reads of a question, and the exit code.
    async fn why(&self, arguments: &[&str]) -> (i32, String) {
        let output =
            self.rig.spawn(&[&["why", "rows"], arguments].concat()).wait_with_output().await.unwrap();
        let text = [output.stdout, output.stderr].concat();
        (output.status.code().unwrap(), String::from_utf8(text).unwrap())
    }

    /// The answer to a question holds all of these, each behind the one before.
    async fn answers(&self, arguments: &[&str], parts: &[&str]) {
        let (_, text) = self.why(arguments).await;
        let mut rest = &*text;
        for part in parts {
            let at =
                rest.find(part).unwrap_or_else(|| panic!("{arguments:?}: `{part}` is missing in\n{text}"));
            rest = &rest[at + part.len()..];
        }
    }

    /// The events that n8n was sent of a key, by type.
    fn sent(&self, key: u32) -> Vec<String> {
        let of_key = self.rig.sent().into_iter().filter(|(sent, _)| *sent == key.to_string());
        of_key.map(|(_, kind)| kind).collect()
    }

    async fn live_polling(&self) {
        self.shop.remove(4);
        self.shop.remove(8);
        self.good(&["sync", "rows"]).await;
        assert!(self.rig.sent().is_empty(), "what stood is recorded only");
        let lost = AtomicUsize::new(1);
        self.rig.receiver.now_answers(move |asked| match asked.json()["key"].as_str() {
            Some("101") if lost.swap(0, Ordering::SeqCst) == 1 => Reply::Hold,
            Some("102") => Reply::status(422),
            _ => Reply::status(200),
        });
        let first = machine_time();
        self.shop.put(100, first);
        self.good(&["sync", "rows"]).await;
        self.shop.put(101, machine_time());
        self.shop.put(102, machine_time());
        while self.sent(101).len() < 2 || self.sent(102).is_empty() {
            self.rig.command(&["sync", "rows"]).await;
        }
        self.rig.receiver.now_answers(|_| Reply::status(200));
        self.good(&["outbox", "retry", "--all", "--state", "dead"]).await;
        self.good(&["sync", "rows"]).await;
        // A replica shows it as it was.
        self.shop.put(100, first.minus(Duration::from_millis(100)));
        self.good(&["sync", "rows"]).await;
        self.shop.put(100, machine_time());
        self.good(&["sync", "rows"]).await;
        assert_eq!(self.sent(100), ["record.created", "record.updated"]);
    }

    async fn edits(&self) {
        self.rig.rewrite("lookback: 1s", "lookback: 2s");
        self.good(&["sync", "rows"]).await;
        self.rig.rewrite("primary_key: [id]", "primary_key: [uuid]");
        let (code, answer, _) = self.rig.command(&["sync", "rows", "--json"]).await;
        assert_eq!((code, &answer["status"]), (1, &json!("asks")), "{answer}");
        self.rig.rewrite("primary_key: [uuid]", "primary_key: [id]");
        let before = self.rig.sent().len();
        self.good(&["sync", "rows"]).await;
        assert_eq!(self.rig.sent().len(), before, "taken back, it is as if nothing had been");
    }

    /// Two months come late; a replay of the year finds them, although who works on it dies twice.
    async fn replay(&self) {
        self.shop.put(4, days_ago(361 - 120 + 15));
        self.shop.put(8, days_ago(361 - 240 + 15));
        self.good(&["sync", "rows"]).await;
        assert!(self.sent(4).is_empty(), "polling has passed it");

        let (from, to) = (self.start.to_string(), days_ago(1).to_string());
        let command = ["replay", "rows", "--from", &from, "--to", &to];
        for (crash, arguments) in [&command[..], &["run"]].into_iter().enumerate() {
            self.shop.answers_before.store(4, Ordering::SeqCst);
            let mut process = self.rig.spawn(arguments);
            self.shop.held.subscribe().wait_for(|held| *held > crash).await.unwrap();
            process.kill().await.unwrap();
            self.rig.leases_run_out().await;
        }
        let mut running = self.rig.spawn(&["run"]);
        self.shop.put(103, machine_time());
        self.rig.receiver.wait_until(|asked| has(asked, 103)).await;
        while self.good(&["replays", "show", "1"]).await["state"] != "done" {}
        self.rig.receiver.wait_until(|asked| has(asked, 4) && has(asked, 8)).await;
        running.kill().await.unwrap();
        running.wait().await.unwrap();
        self.rig.leases_run_out().await;
        let twice = self.good(&command).await;
        assert_eq!(twice["events"], 0, "{twice}");
        assert_eq!(
            (self.sent(4), self.sent(8)),
            (vec!["record.created".to_owned()], vec!["record.created".to_owned()])
        );
        assert!(self.sent(5).is_empty(), "it was known");
    }

    /// A row goes, and comes back.
    async fn deletes(&self) {
        self.shop.remove(2);
        while self.sent(2).is_empty() {
            self.rig.command(&["sweep", "rows"]).await;
            self.good(&["sync", "rows"]).await;
        }
        self.shop.put(2, machine_time());
        self.good(&["sync", "rows"]).await;
        assert_eq!(self.sent(2), ["record.deleted", "record.restored"]);
    }

    /// Whether each event was delivered once, and twice only where its answer was lost.
    fn everything_came_once(&self) {
        let mut ids: BTreeMap<String, usize> = BTreeMap::new();
        for asked in self.rig.receiver.asked() {
            *ids.entry(asked.json()["id"].as_str().unwrap().to_owned()).or_default() += 1;
        }
        let repeated: Vec<_> = ids.values().filter(|times| **times > 1).collect();
        assert_eq!(
            repeated,
            [&2, &2],
            "the lost answer, and the dead letter that a person sent again: {ids:?}"
        );
    }
}

async fn a_year_of_edits_deletes_crashes_and_a_replay_leaves_no_question_open(database: Database) {
    let year = Year::new(database).await;
    year.live_polling().await;
    year.edits().await;
    year.replay().await;
    year.deletes().await;
    year.everything_came_once();
    let verified = year.good(&["verify"]).await;
    assert_eq!(verified["ok"], true, "{verified}");

    // Was it sent, and when?
    year.answers(&["100"], &["is stored with version", "was delivered"]).await;
    // Why was it not sent again?
    year.answers(&["100"], &["it is new", "sent: 200, delivered after", "the bytes are the same as before"])
        .await;
    // Why was an update ignored?
    year.answers(&["100"], &["older than what is stored", "so it was ignored"]).await;
    // Why was it never sent?
    year.answers(&["1"], &["recorded without an event, since it stood when the job took its baseline"]).await;
    // Did the receiver get it twice?
    year.answers(
        &["101"],
        &["the answer was lost", "it is repeated with the same id", "sent: 200, delivered"],
    )
    .await;
    // Who refused it, and who had it sent again?
    year.answers(&["102"], &["422", "it is a dead letter", "a person had event", "sent: 200, delivered"])
        .await;
    // Where did it come from, months late?
    year.answers(
        &["4"],
        &["(a replay), page", "it is new", "was stored by a replay for n8n", "delivered after"],
    )
    .await;
    // Who says that it was deleted, and is it back?
    let gone = "a sweep over everything no longer found it: event evt_";
    year.answers(&["2"], &[gone, "record.deleted", "it is back, it was deleted before", "record.restored"])
        .await;
    // Why did this one never come?
    let (code, text) = year.why(&["999"]).await;
    assert!(code == 1 && text.contains("the key 999 was never seen by rows"), "{text}");
    // Was the year read to its end?
    let (from, to) = (year.start.to_string(), days_ago(1).to_string());
    let (code, text) = year.why(&["--gap", &from, &to]).await;
    assert!(code == 0 && text.contains("rows has read all of it to the end"), "{text}");
    // What became of the run that was killed?
    let killed = "SELECT CAST(min(id) AS TEXT) FROM run WHERE kind = 'replay'";
    let killed = year.rig.database.texts(killed).await.remove(0);
    year.answers(&["--run", &killed], &["replay", "interrupted", "covered"]).await;
    // What happened to this one event?
    let event = year.rig.database.texts("SELECT event_id FROM event WHERE key = '101'").await.remove(0);
    year.answers(&["--event", &event], &["was stored for n8n", "the answer was lost", "delivered"]).await;
}
