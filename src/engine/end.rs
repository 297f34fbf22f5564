//! The end of a run, in the store and in its report.

use std::time::Duration;

use super::{cut::Cut, report::RunReport, walk::Walk};
use crate::{
    domain::{
        coverage::Covered,
        instant::Instant,
        run::RunStatus,
        sync_token::{PageTag, SyncToken},
        version::Version,
    },
    store::{RunEnd, RunId, StoreError},
};

/// Whoever asks to be left alone for longer has its units wrong.
const LONGEST_HOLD: Duration = Duration::from_hours(24);

/// How far a complete run has got.
pub(super) struct Reached {
    pub(super) watermark: Option<Version>,
    pub(super) complete_through: Instant,
    pub(super) covered: Option<Covered>,
    pub(super) sync_token: Option<SyncToken>,
    pub(super) page_tag: Option<PageTag>,
    /// What a person has to know of it all the same.
    pub(super) told: Option<String>,
}

impl Walk<'_> {
    /// Closes the run in the store and fills in the report. A store that fails here leaves the run open;
    /// the next run closes it.
    pub(super) async fn close(
        &self,
        run: RunId,
        watermark: Option<Version>,
        reached: Result<Reached, Cut>,
        report: &mut RunReport,
    ) {
        let store = &self.engine.store;
        let mut end = RunEnd {
            status: RunStatus::Ok,
            reason: None,
            at_source: false,
            requests: report.requests,
            watermark: None,
            complete_through: None,
            covered: None,
            sync_token: None,
            page_tag: None,
        };
        match reached {
            Ok(reached) => {
                end.watermark = reached.watermark;
                end.complete_through = Some(reached.complete_through);
                end.covered = reached.covered;
                (end.sync_token, end.page_tag) = (reached.sync_token, reached.page_tag);
                end.reason = reached.told;
            }
            Err(Cut::Source(reason) | Cut::Restart(reason) | Cut::TooMuch(reason) | Cut::Reset(reason)) => {
                (end.status, end.reason, end.at_source) = (RunStatus::Failed, Some(reason), true);
            }
            Err(Cut::Gap { reason, token }) => {
                (end.status, end.reason, end.at_source) = (RunStatus::Failed, Some(reason), true);
                end.sync_token = Some(token);
            }
            Err(Cut::Stopped) => {
                let reason = "the process was stopped; the next run goes on";
                (end.status, end.reason) = (RunStatus::Interrupted, Some(reason.to_owned()));
            }
            Err(Cut::Store(StoreError::Ended)) => {
                (report.status, report.reason) =
                    (RunStatus::Interrupted, Some(StoreError::Ended.to_string()));
                return;
            }
            Err(Cut::Store(error)) => (end.status, end.reason) = (RunStatus::Failed, Some(error.to_string())),
            Err(Cut::RateLimited { bucket, until, reason }) => {
                let until = until.min(self.engine.clock.now().plus(LONGEST_HOLD));
                if let Err(error) = store.hold_account(&bucket, until, &reason).await {
                    tracing::warn!(job = %self.job.name, %error, "the account's wait could not be stored");
                }
                (end.status, end.reason) = (RunStatus::RateLimited, Some(reason));
            }
        }
        let told = [end.reason.take(), report.conflict_told()];
        end.reason = told.into_iter().flatten().reduce(|reason, conflict| format!("{reason}; {conflict}"));
        if let Err(error) = store.finish_run(self.lease, run, &end).await {
            end.watermark = None;
            if end.status == RunStatus::Ok {
                (end.status, end.reason) = (RunStatus::Failed, Some(error.to_string()));
            } else {
                tracing::warn!(job = %self.job.name, %error, "the end of the run could not be stored");
            }
        }
        report.status = end.status;
        report.reason = end.reason;
        let watermark = end.watermark.or(watermark);
        report.watermark = watermark.map(|version| self.job.version_format().show(version));
    }
}
