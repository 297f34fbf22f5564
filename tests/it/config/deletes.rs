//! How a job is told that a record is gone, as it is written.

use std::time::Duration;

use onlynew::{
    config::job::SweepRule,
    domain::{fires::Schedule, reconcile::Share},
};

use super::config;

/// The rule of the sweeps of a job, and whether its stream's marks count.
fn told(deletes: &str) -> (Option<SweepRule>, bool) {
    let yaml = format!(
        r"
jobs:
  orders:
    source:
      base_url: https://api.example.com
      request: {{path: /orders}}
      primary_key: [id]
      deleted_when: record.deleted
    every: 1m
    {deletes}
    destination: https://n8n.example.com/webhook/orders
"
    );
    let config = config(&yaml);
    let job = &config.jobs["orders"];
    (job.sweep.clone(), job.stream.deleted_when.is_some())
}

#[test]
fn marks_count_unless_the_job_says_otherwise_and_nothing_is_swept_unless_it_says_so() {
    assert_eq!(told(""), (None, true));
    assert_eq!(told("deletes: {mode: flag}"), (None, true));
    assert_eq!(told("deletes: {mode: none}"), (None, false));
    let daily = SweepRule { schedule: Schedule::Every(Duration::from_hours(24)), max_ratio: Share::TENTH };
    assert_eq!(told("deletes: {mode: reconcile}"), (Some(daily), true));
}

#[test]
fn a_sweep_has_a_schedule_of_its_own() {
    let (sweep, _) = told("deletes: {mode: reconcile, every: 6h, max_ratio: 0.25}");
    let sweep = sweep.expect("it is swept");
    assert_eq!(sweep.schedule, Schedule::Every(Duration::from_hours(6)));
    assert_eq!(sweep.max_ratio.to_string(), "25%");
    let (sweep, _) =
        told(r#"deletes: {mode: reconcile, schedule: {cron: "0 3 * * *", timezone: Europe/Zagreb}}"#);
    let Schedule::Cron { pattern, zone } = sweep.expect("it is swept").schedule else {
        panic!("it is a pattern")
    };
    assert_eq!((pattern.to_string().as_str(), zone.iana_name()), ("0 3 * * *", Some("Europe/Zagreb")));
}
