//! `onlynew gate list|get|release|expire`: what is known of the keys that side effects were asked for by.

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};

use super::{Exit, Session, bad_input, table};
use crate::{
    app::App,
    config::nearest,
    domain::gate::{GateKey, GateState},
    store::{KeyFilter, KeyView, Released, ScopeView},
};

/// How many keys `list` shows at most.
const SHOWN: u32 = 50;

/// Subcommands of `gate`.
#[derive(Debug, Subcommand)]
pub(super) enum Gate {
    /// Show the scopes and what they counted, or the keys of one, those that changed last first.
    List(List),
    /// Tell why a key is let through or not: everything that is known of it.
    Get(Key),
    /// Forget a key, so that it is let through as if it had never been seen.
    Release {
        #[command(flatten)]
        key: Key,
        /// Also where somebody has it: what that one does may then be done twice.
        #[arg(long)]
        even_held: bool,
    },
    /// End the lease of a key whose holder is known to be gone: the next that asks takes it over.
    Expire(Key),
}

/// Which keys are shown.
#[derive(Debug, Args)]
pub(super) struct List {
    /// The scope, as the jobs file has it.
    scope: Option<String>,
    /// Only keys that stand so.
    #[arg(long, value_enum, value_delimiter = ',')]
    state: Vec<State>,
    /// Only keys that were asked for more than once.
    #[arg(long)]
    repeated: bool,
    /// Only keys whose holders were not heard of again: in progress, and their leases are over.
    #[arg(long)]
    stale: bool,
    /// How many keys at most.
    #[arg(long, default_value_t = SHOWN)]
    limit: u32,
}

/// A key of a scope.
#[derive(Debug, Args)]
pub(super) struct Key {
    /// The scope, as the jobs file has it.
    scope: String,
    /// The key.
    key: String,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum State {
    #[value(name = "in_progress")]
    InProgress,
    Done,
    Failed,
}

impl From<State> for GateState {
    fn from(state: State) -> Self {
        match state {
            State::InProgress => Self::InProgress,
            State::Done => Self::Done,
            State::Failed => Self::Failed,
        }
    }
}

impl Gate {
    pub(super) async fn run(&self, session: &Session) -> anyhow::Result<Exit> {
        let app = session.open("warn").await?;
        let exit = match self {
            Self::List(List { scope: None, .. }) => scopes(session, &app).await,
            Self::List(list) => list.run(session, &app).await,
            Self::Get(key) => get(session, &app, key).await,
            Self::Release { key, even_held } => release(session, &app, key, *even_held).await,
            Self::Expire(key) => expire(session, &app, key).await,
        };
        app.store.close().await;
        exit
    }
}

async fn scopes(session: &Session, app: &App) -> anyhow::Result<Exit> {
    let mut views = app.store.gate_scopes().await?;
    let is_new = |name: &&String| !views.iter().any(|view| view.scope == **name);
    let unused: Vec<String> = app.config.scopes.keys().filter(is_new).cloned().collect();
    views.extend(unused.into_iter().map(|scope| ScopeView { scope, ..ScopeView::default() }));
    views.sort_by(|one, other| one.scope.cmp(&other.scope));
    let told: Vec<Value> = views.iter().map(told_scope).collect();
    session.answer(&json!({"scopes": told}), || {
        if views.is_empty() {
            return "there are no scopes: `gate.scopes` in the jobs file declares them".to_owned();
        }
        let header =
            ["scope", "in progress", "done", "failed", "asked", "let through", "duplicates", "taken over"];
        let rows = views.iter().map(|view| {
            let totals = view.totals;
            [
                view.scope.clone(),
                view.in_progress.to_string(),
                view.done.to_string(),
                view.failed.to_string(),
                totals.asked.to_string(),
                totals.started.to_string(),
                totals.duplicates().to_string(),
                totals.taken_over.to_string(),
            ]
        });
        table::table(header, rows)
    });
    Ok(Exit::Good)
}

fn told_scope(view: &ScopeView) -> Value {
    let totals = view.totals;
    json!({
        "scope": view.scope, "in_progress": view.in_progress, "done": view.done, "failed": view.failed,
        "keys": totals.keys, "asked": totals.asked, "let_through": totals.started, "duplicates": totals.duplicates(),
        "taken_over": totals.taken_over,
    })
}

impl List {
    async fn run(&self, session: &Session, app: &App) -> anyhow::Result<Exit> {
        let scope = self.scope.as_deref().map(|scope| known_scope(app, scope)).transpose()?;
        let filter = KeyFilter {
            scope: scope.map(str::to_owned),
            states: self.state.iter().map(|state| (*state).into()).collect(),
            only_repeated: self.repeated,
            only_stale: self.stale,
        };
        let mut views = app.store.gate_keys(&filter, self.limit.saturating_add(1)).await?;
        let has_more = views.len() > self.limit as usize;
        views.truncate(self.limit as usize);
        let told: Vec<Value> = views.iter().map(told_key).collect();
        session.answer(&json!({"keys": told, "more": has_more}), || {
            if views.is_empty() {
                return "no key is known that is like this".to_owned();
            }
            let rows = views.iter().map(|view| {
                [
                    view.key.to_string(),
                    view.state().name().to_owned(),
                    view.fence.to_string(),
                    view.times_seen.to_string(),
                    table::or_dash(view.owner.as_ref()),
                    table::to_the_second(view.first_seen),
                    table::to_the_second(view.last_seen),
                    table::to_the_second(view.lease_until),
                ]
            });
            let header = ["key", "state", "fence", "seen", "owner", "first seen", "last seen", "lease until"];
            let table = table::table(header, rows);
            if has_more { format!("{table}\n\nthere are more: `--limit` shows them") } else { table }
        });
        Ok(Exit::Good)
    }
}

async fn get(session: &Session, app: &App, key: &Key) -> anyhow::Result<Exit> {
    let (scope, gate_key) = key.find(app)?;
    let Some(view) = app.store.gate_key(scope, &gate_key).await? else { return Err(key.unknown()) };
    let now = app.store.now().await?;
    let lets_through = why(app, &view, now);
    let mut told = told_key(&view);
    if let Some(told) = told.as_object_mut() {
        told.insert("why".to_owned(), lets_through.clone().into());
    }
    session.answer(&told, || {
        table::pairs([
            ("key", format!("{} in {}", view.key, view.scope)),
            ("state", view.state().name().to_owned()),
            ("why", lets_through),
            ("fence", format!("{}{}", view.fence, if view.takeover { ", taken over" } else { "" })),
            ("owner", table::or_dash(view.owner.as_ref())),
            ("correlation id", table::or_dash(view.correlation_id.as_ref())),
            ("fingerprint", table::or_dash(view.fingerprint.as_ref())),
            ("metadata", table::or_dash(view.metadata.as_ref())),
            ("first seen", view.first_seen.to_string()),
            ("last seen", view.last_seen.to_string()),
            ("changed", view.changed_at.to_string()),
            ("lease until", view.lease_until.to_string()),
            (
                "asked",
                format!(
                    "{} times, {} let through, {} taken over",
                    view.times_seen, view.times_started, view.times_taken_over
                ),
            ),
            ("result", result_of(&view)),
            ("reason", table::or_dash(view.reason.as_ref())),
        ])
    });
    Ok(Exit::Good)
}

fn result_of(view: &KeyView) -> String {
    if view.result_dropped { "too large to be kept".to_owned() } else { table::or_dash(view.result.as_ref()) }
}

/// What whoever asks now is answered, and why.
fn why(app: &App, view: &KeyView, now: crate::domain::instant::Instant) -> String {
    use crate::domain::gate::{Answer, acquire, is_forgotten};
    let (Some(rules), Some(held)) = (app.config.scopes.get(&view.scope), view.held()) else {
        return "the jobs file has no such scope any more: whoever asks is told so".to_owned();
    };
    if is_forgotten(&held, rules, now) {
        return "its `retention` is over: whoever asks is let through as if it had never been seen"
            .to_owned();
    }
    match acquire(Some(&held), None, rules, now) {
        Answer::InProgress => {
            format!("somebody has it until {}: whoever asks before is told to wait", view.lease_until)
        }
        Answer::Started { takeover: true } => {
            format!(
                "its holder was not heard of before its lease ended at {}: the next that asks takes it over",
                view.lease_until
            )
        }
        Answer::Started { takeover: false } if view.state() == GateState::Failed => {
            "it failed, and `after_failure: retry` lets the next that asks through".to_owned()
        }
        Answer::Started { takeover: false } => {
            "it was done, and `after_done: rerun` lets the next that asks through".to_owned()
        }
        Answer::Done => "it was done: whoever asks is given its result and does nothing".to_owned(),
        Answer::Rejected => "it was done, and `after_done: reject` refuses whoever asks".to_owned(),
        Answer::Failed => "it failed, and `after_failure: keep` refuses whoever asks".to_owned(),
        Answer::Mismatch => "it stands for something else".to_owned(),
    }
}

fn told_key(view: &KeyView) -> Value {
    let json =
        |text: &Option<String>| text.as_ref().and_then(|text| serde_json::from_str::<Value>(text).ok());
    json!({
        "scope": view.scope, "key": view.key, "state": view.state(), "fence": view.fence, "takeover": view.takeover,
        "owner": view.owner, "correlation_id": view.correlation_id, "fingerprint": view.fingerprint,
        "metadata": json(&view.metadata), "result": json(&view.result), "result_dropped": view.result_dropped,
        "reason": view.reason, "first_seen": view.first_seen, "last_seen": view.last_seen,
        "changed_at": view.changed_at, "lease_until": view.lease_until, "times_seen": view.times_seen,
        "times_let_through": view.times_started, "times_taken_over": view.times_taken_over,
    })
}

async fn release(session: &Session, app: &App, key: &Key, even_held: bool) -> anyhow::Result<Exit> {
    let (scope, gate_key) = key.find(app)?;
    let released = app.store.release_key(scope, &gate_key, even_held).await?;
    let message = match released {
        Released::Done => "it is forgotten: the next that asks is let through".to_owned(),
        Released::Held => format!(
            "somebody has it: `onlynew gate get {scope} '{gate_key}'` tells who; where that one is known to be gone, \
             `--even-held` forgets it all the same"
        ),
        Released::Unknown => return Err(key.unknown()),
    };
    let is_done = released == Released::Done;
    session.answer(&json!({"ok": is_done, "scope": scope, "key": gate_key, "message": message}), || {
        message.clone()
    });
    Ok(if is_done { Exit::Good } else { Exit::Failed })
}

async fn expire(session: &Session, app: &App, key: &Key) -> anyhow::Result<Exit> {
    let (scope, gate_key) = key.find(app)?;
    let is_ended = app.store.expire_key(scope, &gate_key).await?;
    if !is_ended && app.store.gate_key(scope, &gate_key).await?.is_none() {
        return Err(key.unknown());
    }
    let message = if is_ended { "the next that asks takes it over" } else { "nobody has it" };
    session.answer(&json!({"ok": is_ended, "scope": scope, "key": gate_key, "message": message}), || {
        message.to_owned()
    });
    Ok(if is_ended { Exit::Good } else { Exit::Failed })
}

impl Key {
    fn find<'k>(&'k self, app: &App) -> anyhow::Result<(&'k str, GateKey)> {
        let key = GateKey::parse(&self.key).map_err(|error| bad_input(error.to_string()))?;
        Ok((known_scope(app, &self.scope)?, key))
    }

    fn unknown(&self) -> anyhow::Error {
        bad_input(format!(
            "nothing is known of the key `{}` in `{1}`: it was never asked for, or it is forgotten; `onlynew gate list {1}` \
             shows the keys",
            self.key, self.scope
        ))
    }
}

/// The scope, which the jobs file need not have any more.
fn known_scope<'k>(app: &App, scope: &'k str) -> anyhow::Result<&'k str> {
    let names = || app.config.scopes.keys().map(String::as_str);
    match nearest(scope, names()) {
        Some(near) if near != scope && !app.config.scopes.contains_key(scope) => {
            Err(bad_input(format!("there is no scope `{scope}`; did you mean `{near}`?")))
        }
        _ => Ok(scope),
    }
}
