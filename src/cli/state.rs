//! `onlynew state show JOB`, `state rename OLD NEW`: what is kept of a job, and under which name. `state purge`: what is kept
//! no longer goes now.

use clap::Subcommand;
use serde_json::{Value, json};

use super::{Exit, Session, bad_input, find_job, lateness, run::stop_on_signal, table};
use crate::{engine::edited, store::Renamed};

/// Subcommands of `state`.
#[derive(Debug, Subcommand)]
pub(super) enum State {
    /// Show the watermark, the counts and the lease of a job.
    Show {
        /// The job's name in the jobs file.
        job: String,
    },
    /// Take away now what is kept no longer by the `retention:` of the jobs file; `run` does so every ten minutes.
    Purge {
        /// Count what would go, and do nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Show how late changes of a job were found: what its lookback has to cover.
    Lateness {
        /// The job's name in the jobs file.
        job: String,
    },
    /// Give what is kept of a job another name, as `renamed_from` does.
    Rename {
        /// The name that it has.
        old: String,
        /// The name that it gets, which no job may have.
        new: String,
    },
}

impl State {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        match self {
            Self::Show { job } => show(session, job).await,
            Self::Lateness { job } => lateness::run(session, job).await,
            Self::Purge { dry_run } => purge(session, *dry_run).await,
            Self::Rename { old, new } => rename(session, old, new).await,
        }
    }
}

async fn rename(session: &Session, old: &str, new: &str) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let is_known = |name| app.config.jobs.contains_key(name);
    if !is_known(new) && !is_known(old) {
        return Err(bad_input(format!("neither `{old}` nor `{new}` is a job of the jobs file")));
    }
    let renamed = app.store.rename_job(old, new, false).await?;
    app.store.close().await;
    let message = match renamed {
        Renamed::Done if is_known(new) => format!("what was kept of `{old}` is kept of `{new}` now"),
        Renamed::Done => {
            format!("what was kept of `{old}` is kept of `{new}` now; call the job so in the jobs file, too")
        }
        Renamed::Held => format!("a run of `{old}` is under way: try again when it is over"),
        Renamed::Unknown => return Err(bad_input(format!("nothing is kept of a job `{old}`"))),
        Renamed::Taken => {
            return Err(bad_input(format!(
                "something is kept of a job `{new}` already; no two can be made one"
            )));
        }
    };
    let has_renamed = renamed == Renamed::Done;
    session
        .answer(&json!({"ok": has_renamed, "from": old, "to": new, "message": message}), || message.clone());
    Ok(if has_renamed { Exit::Good } else { Exit::Failed })
}

async fn show(session: &Session, job: &str) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let job = find_job(&app.config, job)?;
    let view = app.view_of(job).await?;
    app.store.close().await;
    let Some(view) = view else {
        return Err(bad_input(format!(
            "the job `{0}` has never run; `onlynew sync {0}` runs it once",
            job.name
        )));
    };
    let progress = view.progress.unwrap_or_default();
    let watermark = progress.watermark.map(|version| job.version_format().show(version));
    let floor = progress.floor.map(|version| job.version_format().show(version));
    let baseline = match (progress.baseline_open, progress.baseline_at) {
        (true, _) => "open",
        (false, Some(_)) => "complete",
        (false, None) => "none",
    };
    let token_of = progress.sync_token.as_ref().map(|token| token.given_at);
    let goes_on_at = progress.bookmark.as_ref().map(|mark| match (&mark.page, mark.risen_to) {
        (_, Some(version)) => json!({"version": job.version_format().show(version)}),
        (Some(page), None) => json!({"page": page.number}),
        (None, None) => json!({}),
    });
    let lease = view.lease.as_ref().map(|(owner, until)| json!({"owner": owner, "until": until}));
    let answer = json!({
        "job": job.name, "uid": view.row.uid, "watermark": watermark,
        "complete_through": progress.complete_through,
        "baseline": {"state": baseline, "at": progress.baseline_at},
        "token_given_at": token_of, "goes_on_at": goes_on_at, "floor": floor,
        "records": view.records, "quarantined": view.quarantined,
        "events": {"pending": view.pending, "delivered": view.delivered, "dead": view.dead},
        "last_delivery_error": view.last_error, "last_fire": view.row.last_fire, "lease": lease, "last_run": view.last_run,
        "edited": edited(job, &view.row).map(|question| question.edited),
    });
    session.answer(&answer, || {
        let run = view.last_run.as_ref().map(|run| {
            let reason = run.reason.as_deref().map(|reason| format!(": {reason}")).unwrap_or_default();
            format!("{} {}{reason}", run.started_at, run.status.name())
        });
        let shown = |version: Option<&Value>| version.map(|version| version.to_string().replace('"', ""));
        table::pairs([
            ("job", job.name.clone()),
            ("watermark", table::or_dash(shown(watermark.as_ref()))),
            ("complete through", table::or_dash(progress.complete_through)),
            ("baseline", baseline.to_owned()),
            ("token given at", table::or_dash(token_of)),
            ("goes on at", table::or_dash(goes_on_at)),
            ("floor", table::or_dash(shown(floor.as_ref()))),
            ("records", view.records.to_string()),
            ("quarantined", view.quarantined.to_string()),
            ("events", format!("{} pending, {} delivered, {} dead", view.pending, view.delivered, view.dead)),
            ("last delivery error", table::or_dash(view.last_error.as_ref())),
            ("last fire", table::or_dash(view.row.last_fire)),
            (
                "lease",
                table::or_dash(view.lease.as_ref().map(|(owner, until)| format!("{owner} until {until}"))),
            ),
            ("last run", table::or_dash(run)),
        ])
    });
    Ok(Exit::Good)
}

async fn purge(session: &Session, dry_run: bool) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let stop = stop_on_signal()?;
    let mut janitor = app.janitor();
    let swept = if dry_run { janitor.preview().await } else { janitor.sweep(&stop).await };
    app.store.close().await;
    let swept = swept?;
    let mut answer = serde_json::to_value(swept)?;
    if let Some(answer) = answer.as_object_mut() {
        answer.insert("dry_run".to_owned(), dry_run.into());
    }
    session.answer(&answer, || {
        let counts = table::pairs([
            ("bodies of events", swept.payloads.to_string()),
            ("events and attempts", swept.attempts.to_string()),
            ("runs", swept.pages.to_string()),
            ("keys of records", swept.keys.to_string()),
            ("keys of the gate", swept.gate_keys.to_string()),
            ("keys of hooks", swept.hook_keys.to_string()),
            ("locks", swept.locks.to_string()),
        ]);
        if dry_run { format!("this would go:\n{counts}") } else { format!("this went:\n{counts}") }
    });
    Ok(if stop.is_cancelled() { Exit::Partly } else { Exit::Good })
}
