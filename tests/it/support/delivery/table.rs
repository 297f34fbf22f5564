//! What stands in the store: every event with its head, where it is one.

use std::collections::{BTreeMap, BTreeSet};

use super::{Wrong, plan::POISONS};
use crate::support::database::Beside;

/// A head of a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    pub leased: bool,
    pub held: bool,
    /// It was turned over to another destination while it was being sent.
    pub turned_over: bool,
    pub fence: i64,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    pub id: String,
    pub job: i64,
    pub lane: String,
    pub destination: String,
    pub state: String,
    pub ambiguous: bool,
    pub poison: Option<&'static str>,
    pub head: Option<Head>,
}

impl Row {
    pub fn is_pending(&self) -> bool {
        self.state == "pending"
    }

    pub fn lane(&self) -> (i64, String) {
        (self.job, self.lane.clone())
    }
}

/// All events by their positions.
#[derive(Clone, Debug, Default)]
pub struct Table(pub BTreeMap<i64, Row>);

impl Table {
    /// Reads the events of these jobs.
    pub async fn read(beside: &mut Beside, jobs: &str) -> Self {
        let poison = POISONS.map(|name| format!("WHEN event.body LIKE '%{name}%' THEN '{name}'")).join(" ");
        let flag = |name: &str| format!("CASE WHEN {name} THEN '1' ELSE '0' END");
        let sql = format!(
            "SELECT CAST(event.position AS TEXT) || '|' || event.event_id || '|' || CAST(event.job AS TEXT) || '|' ||
                event.lane || '|' || event.destination || '|' || event.state || '|' || {} || '|' ||
                CASE {poison} ELSE '' END || '|' ||
                CASE WHEN head.position IS NULL THEN ''
                     ELSE {} || '|' || {} || '|' || {} || '|' || CAST(head.fence AS TEXT) END
             FROM event LEFT JOIN outbox_head AS head ON head.position = event.position
             WHERE event.job IN ({jobs}) ORDER BY event.position",
            flag("event.ambiguous"),
            flag("head.leased"),
            flag("head.held"),
            flag("head.leased AND head.tried_at IS NULL"),
        );
        Self(beside.texts(&sql).await.iter().map(|text| row(text)).collect())
    }

    pub fn row(&self, position: i64) -> Result<&Row, Wrong> {
        self.0.get(&position).ok_or_else(|| format!("there is no event at {position}"))
    }

    /// Events of the lane of `position` that wait before it.
    pub fn waiting_before(&self, position: i64) -> Vec<i64> {
        let Some(row) = self.0.get(&position) else { return Vec::new() };
        let before = self.0.range(..position);
        let before = before.filter(|(_, other)| other.is_pending() && other.lane() == row.lane());
        before.map(|(position, _)| *position).collect()
    }

    /// Each lane with events that wait has one head, at the earliest of them, and no other lane has one.
    pub fn check(&self) -> Result<(), Wrong> {
        let mut lanes = BTreeSet::new();
        for (position, row) in &self.0 {
            let is_first = row.is_pending() && lanes.insert((row.lane(), &row.destination));
            match (&row.head, is_first) {
                (None, true) => return Err(format!("{position} is the first of its lane and has no head")),
                (Some(_), false) => return Err(format!("a head stands at {position}: {row:?}")),
                _ => {}
            }
        }
        Ok(())
    }
}

fn row(text: &str) -> (i64, Row) {
    let parts: Vec<_> = text.split('|').collect();
    let head = (parts.len() > 9).then(|| Head {
        leased: parts[8] == "1",
        held: parts[9] == "1",
        turned_over: parts[10] == "1",
        fence: parts[11].parse().unwrap(),
    });
    let row = Row {
        id: parts[1].to_owned(),
        job: parts[2].parse().unwrap(),
        lane: parts[3].to_owned(),
        destination: parts[4].to_owned(),
        state: parts[5].to_owned(),
        ambiguous: parts[6] == "1",
        poison: POISONS.into_iter().find(|poison| *poison == parts[7]),
        head,
    };
    (parts[0].parse().unwrap(), row)
}
