//! `onlynew replays …`: the replays that were asked for, how far they are, and what a person does about them.

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    Exit, Session, bad_input, find_job,
    replay::{
        answer::{Window, summary, told, told_plan},
        say, see_through,
    },
    table,
};
use crate::{
    app::App,
    config::job::Job,
    domain::task::{Resend, TaskId, TaskKind, TaskState},
    store::{Opened, TaskView},
};

/// Arguments of `replays`.
#[derive(Debug, Args)]
pub(super) struct Replays {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// List replays, newest last.
    List {
        /// How many to show at most: the newest.
        #[arg(long, value_name = "N", default_value_t = 20)]
        limit: u32,
    },
    /// Show a replay: what it reads and sends, and what came of it.
    Show {
        /// Its number.
        replay: i64,
    },
    /// Give a replay up. What it has sent stays sent.
    Cancel {
        /// Its number.
        replay: i64,
    },
    /// Go on with a replay that failed or was stopped.
    Resume {
        /// Its number.
        replay: i64,
    },
}

impl Replays {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let exit = match &self.command {
            None => list(session, &app, 20).await,
            Some(Command::List { limit }) => list(session, &app, *limit).await,
            Some(Command::Show { replay }) => show(session, &app, *replay).await,
            Some(Command::Cancel { replay }) => cancel(session, &app, *replay).await,
            Some(Command::Resume { replay }) => resume(session, &app, *replay).await,
        };
        app.store.close().await;
        exit
    }
}

async fn list(session: &Session, app: &App, limit: u32) -> anyhow::Result<Exit> {
    let tasks = app.store.tasks(Some(TaskKind::Replay), false, limit).await?;
    let lines: Vec<Value> = tasks.iter().map(|task| told(task, job_of(app, task))).collect();
    session.answer(&json!({"replays": lines}), || {
        if tasks.is_empty() {
            return "no replay was asked for; `onlynew replay JOB` asks for one".to_owned();
        }
        table::table(
            [
                "replay",
                "job",
                "state",
                "window",
                "emit",
                "pages",
                "records",
                "events",
                "waiting",
                "asked for",
            ],
            tasks.iter().map(|task| {
                [
                    task.id.0.to_string(),
                    task.job.clone(),
                    state_of(task).to_owned(),
                    Window::of(&task.plan, job_of(app, task)).text(),
                    emit_name(task.plan.resend).to_owned(),
                    task.pages.to_string(),
                    task.counts.records.to_string(),
                    task.counts.events.to_string(),
                    task.pending.to_string(),
                    table::to_the_second(task.created_at),
                ]
            }),
        )
    });
    Ok(Exit::Good)
}

async fn show(session: &Session, app: &App, id: i64) -> anyhow::Result<Exit> {
    let task = find(app, id).await?;
    let mut line = told(&task, job_of(app, &task));
    if let Some(line) = line.as_object_mut() {
        line.insert("keys".to_owned(), task.plan.keys.clone().into());
    }
    session.answer(&line, || {
        let plan = &task.plan;
        let keys = if plan.keys.is_empty() { "all".to_owned() } else { plan.keys.join("\n") };
        let read_to = line.get("read_to").filter(|read_to| !read_to.is_null());
        let facts = table::pairs([
            ("replay", task.id.0.to_string()),
            ("marked in events", task.uid.clone()),
            ("job", task.job.clone()),
            ("state", state_of(&task).to_owned()),
            ("window", Window::of(plan, job_of(app, &task)).text()),
            ("keys", keys),
            ("emit", emit_name(plan.resend).to_owned()),
            ("rate", table::or_dash(plan.rate)),
            ("read to", table::or_dash(read_to.map(|read_to| read_to.to_string().replace('"', "")))),
            ("asked for", task.created_at.to_string()),
            ("ended", table::or_dash(task.ended_at)),
            ("worker", table::or_dash(task.worker.as_ref())),
            ("failures", task.failures.to_string()),
            ("last trouble", table::or_dash(task.reason.as_ref())),
        ]);
        format!("{facts}\n\n{}", summary(&task).join("\n"))
    });
    Ok(Exit::Good)
}

async fn cancel(session: &Session, app: &App, id: i64) -> anyhow::Result<Exit> {
    let task = find(app, id).await?;
    let cancelled = app.store.cancel_task(task.id, None).await?;
    session.answer(&json!({"replay": id, "job": task.job, "cancelled": cancelled}), || {
        if !cancelled {
            return format!("replay {id} is left as it is: it has ended ({})", task.state.name());
        }
        let worker = task.worker.as_ref().map_or("", |_| "; whoever works on it stops at its next page");
        format!("replay {id} is cancelled: what it has sent stays sent{worker}")
    });
    Ok(if cancelled { Exit::Good } else { Exit::Failed })
}

async fn resume(session: &Session, app: &App, id: i64) -> anyhow::Result<Exit> {
    let task = find(app, id).await?;
    let job = find_job(&app.config, &task.job)?;
    if !matches!(task.state, TaskState::Open | TaskState::Failed) {
        return Err(bad_input(format!(
            "replay {id} has ended ({}): `onlynew replay {}` asks for another one",
            task.state.name(),
            task.job
        )));
    }
    say(&format!("replay of {}: {}", job.name, told_plan(app, job, &task.plan)));
    match app.ask_for_replay(job, &task.plan).await? {
        Opened::New(id) | Opened::GoesOn(id) => see_through(session, app, job, &task.plan, id).await,
        Opened::Another(other) => anyhow::bail!(
            "replay {0} of `{1}` is under way: wait for its end, or give it up with `onlynew replays cancel {0}`",
            other.0,
            task.job
        ),
    }
}

async fn find(app: &App, id: i64) -> anyhow::Result<TaskView> {
    let task = app.store.task(TaskId(id)).await?.filter(|task| task.kind == TaskKind::Replay);
    task.ok_or_else(|| bad_input(format!("there is no replay {id}; `onlynew replays` lists them")))
}

fn job_of<'a>(app: &'a App, task: &TaskView) -> Option<&'a Job> {
    app.config.jobs.get(&task.job).map(AsRef::as_ref)
}

const fn state_of(task: &TaskView) -> &'static str {
    match (task.state, &task.worker) {
        (TaskState::Open, Some(_)) => "under way",
        (TaskState::Open, None) => "open",
        (state, _) => state.name(),
    }
}

const fn emit_name(resend: Resend) -> &'static str {
    match resend {
        Resend::Changed => "changed",
        Resend::All => "all",
        Resend::None => "none",
    }
}

/// The replays that a person should know of: those that are not over, in a line each.
pub(super) async fn open_ones(app: &App) -> anyhow::Result<Vec<TaskView>> {
    let tasks = app.store.tasks(Some(TaskKind::Replay), false, 1_000).await?;
    Ok(tasks.into_iter().filter(|task| matches!(task.state, TaskState::Open | TaskState::Failed)).collect())
}

/// Such a replay in a line.
pub(super) fn in_a_line(app: &App, task: &TaskView) -> String {
    let id = task.id.0;
    let reason = task.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    let window = Window::of(&task.plan, job_of(app, task)).text();
    let then = match (task.state, &task.worker) {
        (TaskState::Open, Some(_)) => String::new(),
        _ => format!(
            "; `onlynew replays resume {id}` goes on with it, `onlynew replays cancel {id}` gives it up"
        ),
    };
    format!("{}: replay {id} ({window}) is {}{reason}{then}", task.job, state_of(task))
}
