//! `onlynew hooks`: what came in by webhooks, how often it came again, and what waits.

use serde_json::{Value, json};

use super::{Exit, Session, table};
use crate::{
    config::hook::Hook,
    store::{HookTotals, JobView},
};

pub(super) async fn run(session: &Session) -> anyhow::Result<Exit> {
    let app = session.open("warn").await?;
    let totals = app.store.hook_totals().await?;
    let mut rows = Vec::new();
    for hook in app.config.hooks.values() {
        let view = app.store.job_view(&hook.name).await?;
        let counted = view.as_ref().and_then(|view| totals.get(&view.row.id)).copied().unwrap_or_default();
        rows.push(Row { hook, view, counted });
    }
    app.store.close().await;
    session.answer(&json!({"hooks": rows.iter().map(Row::json).collect::<Vec<_>>()}), || {
        if rows.is_empty() {
            return "there are no hooks: `hooks` in the jobs file declares them".to_owned();
        }
        let header = ["hook", "path", "accepted", "duplicates", "without a key", "pending", "dead", "last"];
        table::table(header, rows.iter().map(Row::cells))
    });
    Ok(Exit::Good)
}

struct Row<'a> {
    hook: &'a Hook,
    view: Option<JobView>,
    counted: HookTotals,
}

impl Row<'_> {
    fn waiting(&self) -> [u64; 3] {
        self.view.as_ref().map_or([0; 3], |view| [view.quarantined, view.pending, view.dead])
    }

    fn json(&self) -> Value {
        let [unsettled, pending, dead] = self.waiting();
        let HookTotals { accepted, duplicates, quarantined, last_at } = self.counted;
        json!({
            "hook": self.hook.name, "path": self.hook.path, "accepted": accepted, "duplicates": duplicates,
            "quarantined": quarantined, "unsettled": unsettled, "pending": pending, "dead": dead, "last_at": last_at,
        })
    }

    fn cells(&self) -> [String; 8] {
        let [unsettled, pending, dead] = self.waiting();
        let HookTotals { accepted, duplicates, last_at, .. } = self.counted;
        [
            self.hook.name.clone(),
            self.hook.path.clone(),
            accepted.to_string(),
            duplicates.to_string(),
            unsettled.to_string(),
            pending.to_string(),
            dead.to_string(),
            table::or_dash(last_at.map(table::to_the_second)),
        ]
    }
}
