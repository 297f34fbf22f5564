//! `onlynew outbox destinations|pause|resume`: whether destinations take events, and whether they are sent any.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use crate::{
    app::App,
    cli::{Exit, Session, bad_input, table},
    domain::{health::Condition, instant::Instant},
    store::{DestinationView, Resumed},
};

/// A destination of the jobs file or of the store.
pub(in crate::cli) struct Known {
    view: DestinationView,
    /// A job of the jobs file sends to it.
    is_configured: bool,
    now: Instant,
}

impl Known {
    /// All of them, by name.
    pub(in crate::cli) async fn all(app: &App) -> anyhow::Result<Vec<Self>> {
        let now = app.store.now().await?;
        let mut views = app.store.destinations().await?;
        let of_jobs = app.config.jobs.values().map(|job| job.destination.name.as_str());
        let of_hooks = app.config.hooks.values().map(|hook| hook.destination.name.as_str());
        let configured: BTreeSet<&str> = of_jobs.chain(of_hooks).collect();
        for name in &configured {
            if views.iter().all(|view| view.name != *name) {
                views.push(DestinationView { name: (*name).to_owned(), ..DestinationView::default() });
            }
        }
        views.sort_by(|one, other| one.name.cmp(&other.name));
        let known = |view: DestinationView| Self {
            is_configured: configured.contains(view.name.as_str()),
            view,
            now,
        };
        Ok(views.into_iter().map(known).collect())
    }

    pub(in crate::cli) fn name(&self) -> &str {
        &self.view.name
    }

    pub(in crate::cli) fn json(&self) -> Value {
        let view = &self.view;
        json!({
            "destination": view.name, "condition": view.health.condition, "since": self.since(),
            "reason": view.health.reason, "pending": view.pending, "next_attempt_at": self.next_attempt_at(),
            "paused_at": view.paused_at, "configured": self.is_configured,
        })
    }

    /// What keeps it from taking events as they come, where something does.
    pub(in crate::cli) fn trouble(&self) -> Option<String> {
        let view = &self.view;
        let waiting = match view.pending {
            0 => "nothing waits for it".to_owned(),
            1 => "1 event waits for it".to_owned(),
            count => format!("{count} events wait for it"),
        };
        if let Some(paused_at) = view.paused_at {
            return Some(format!(
                "{0} is paused since {1}: {waiting}; `onlynew outbox resume {0}` lets it go on",
                view.name,
                table::to_the_second(paused_at)
            ));
        }
        if !self.is_configured && view.pending > 0 {
            return Some(format!("{} is the destination of no job: {waiting}", view.name));
        }
        if view.health.condition == Condition::Well {
            return self.next_attempt_at().filter(|_| view.pending > 0).map(|until| {
                format!(
                    "{0} asked to be left alone until {1}: {waiting}; asked at once by `onlynew outbox resume {0}`",
                    view.name,
                    table::to_the_second(until)
                )
            });
        }
        let since = self.since().map(|since| format!(" since {}", table::to_the_second(since)));
        let reason = view.health.reason.as_deref().map(|reason| format!(": {reason}"));
        let next = self.next_attempt_at().map(|next| {
            let next = table::to_the_second(next);
            format!("; asked again at {next}, or at once by `onlynew outbox resume {}`", view.name)
        });
        Some(format!(
            "{} is {}{}{}; {waiting}{}",
            view.name,
            view.health.condition.name(),
            since.unwrap_or_default(),
            reason.unwrap_or_default(),
            next.unwrap_or_default()
        ))
    }

    /// Since when it is as it is; `None` where it was never anything else.
    fn since(&self) -> Option<Instant> {
        Some(self.view.health.since).filter(|since| *since != Instant::default())
    }

    /// When it is asked again, where that is not at once.
    fn next_attempt_at(&self) -> Option<Instant> {
        self.view
            .health
            .not_before
            .filter(|not_before| self.view.paused_at.is_none() && *not_before > self.now)
    }

    fn cells(&self) -> [String; 7] {
        let view = &self.view;
        [
            view.name.clone(),
            view.health.condition.name().to_owned(),
            table::or_dash(self.since().map(table::to_the_second)),
            view.pending.to_string(),
            table::or_dash(self.next_attempt_at().map(table::to_the_second)),
            table::or_dash(view.paused_at.map(table::to_the_second)),
            table::or_dash(view.health.reason.as_ref()),
        ]
    }
}

/// The destination of this name, or an error that names those there are.
pub(in crate::cli) async fn find(app: &App, name: &str) -> anyhow::Result<Known> {
    let all = Known::all(app).await?;
    let names: Vec<String> = all.iter().map(|known| known.view.name.clone()).collect();
    all.into_iter().find(|known| known.view.name == name).ok_or_else(|| {
        bad_input(format!("there is no destination `{name}`; the destinations are: {}", names.join(", ")))
    })
}

pub(super) async fn run(session: &Session, app: &App) -> anyhow::Result<Exit> {
    let all = Known::all(app).await?;
    let told: Vec<Value> = all.iter().map(Known::json).collect();
    session.answer(&json!({"destinations": told}), || {
        table::table(
            ["destination", "condition", "since", "pending", "next attempt", "paused", "reason"],
            all.iter().map(Known::cells),
        )
    });
    Ok(Exit::Good)
}

pub(super) async fn pause(session: &Session, app: &App, name: &str) -> anyhow::Result<Exit> {
    find(app, name).await?;
    let changed = app.store.pause_destination(name, true).await?;
    let message =
        if changed { "paused: what is being sent ends, and the rest waits" } else { "it was paused already" };
    answer(session, &find(app, name).await?, changed, message);
    Ok(Exit::Good)
}

pub(super) async fn resume(session: &Session, app: &App, name: &str) -> anyhow::Result<Exit> {
    let before = find(app, name).await?;
    let (was_shut, was_left_alone) =
        (before.view.health.condition.is_shut(), before.next_attempt_at().is_some());
    let Resumed { changed, view } = app.store.resume_destination(name).await?;
    let message = match (changed, was_shut) {
        (true, false) => "it goes on",
        (true, true) => "it goes on: one event is sent to see whether it takes events again",
        (false, true) => "it was not paused; one event is sent to see whether it takes events again",
        (false, false) if was_left_alone => "it was not paused; it is asked at once",
        (false, false) => "it was not paused",
    };
    answer(session, &Known { view, ..before }, changed, message);
    Ok(Exit::Good)
}

fn answer(session: &Session, known: &Known, changed: bool, message: &str) {
    let mut told = known.json();
    if let Some(told) = told.as_object_mut() {
        told.insert("changed".to_owned(), changed.into());
        told.insert("message".to_owned(), message.into());
    }
    session.answer(&told, || message.to_owned());
}
