//! How a page that did not come is waited for: so often after failures, and as long as a source asks for patience.

use std::time::Duration;

use url::Url;

use super::{PageReader, ReadError, Spent};
use crate::{
    domain::backoff::{Plea, jittered},
    limit::LONGEST_WAIT,
};

/// The longest time that one page may be waited for in all, where the source asks for patience.
const LONGEST_PATIENCE: Duration = Duration::from_mins(30);

impl PageReader {
    /// Waits before a page is tried again, or gives up.
    pub(super) async fn wait_out(
        &self,
        spent: &mut Spent,
        url: &Url,
        wait: Option<Duration>,
        reason: &str,
    ) -> Result<(), ReadError> {
        spent.failures += 1;
        if spent.failures >= self.backoff.tries {
            let reason = format!("{reason}; tried {} times", spent.failures);
            return Err(self.failed(Some(url), &reason));
        }
        // Before jitter is added, which very long waits have no room for.
        if let Some(wait) = wait.filter(|wait| *wait > LONGEST_WAIT) {
            return Err(self.parked(url, &self.job.account.bucket, self.clock.now().plus(wait), reason));
        }
        let random = self.limits.random();
        let wait =
            wait.map_or_else(|| self.backoff.wait(spent.failures, random), |wait| jittered(wait, random));
        self.log_wait(wait, reason);
        self.clock.sleep(wait).await;
        Ok(())
    }

    /// Shuts the account's gate, behind which this page waits like everybody else. Such waits spend no
    /// try, but neither they nor their sum may be endless.
    pub(super) fn be_patient(
        &self,
        spent: &mut Spent,
        url: &Url,
        plea: Plea,
        reason: &str,
    ) -> Result<(), ReadError> {
        spent.pleas = spent.pleas.saturating_add(1);
        let wait = plea.wait(spent.pleas, self.backoff, self.limits.random());
        spent.patience = spent.patience.saturating_add(wait);
        let until = self.clock.now().plus(wait);
        self.limits.hold(&self.job.account.bucket, until);
        if wait > LONGEST_WAIT || spent.patience > LONGEST_PATIENCE {
            return Err(self.parked(url, &self.job.account.bucket, until, reason));
        }
        self.log_wait(wait, reason);
        Ok(())
    }

    pub(super) fn log_wait(&self, wait: Duration, reason: &str) {
        tracing::warn!(
            job = self.job.name,
            account = self.job.account.bucket,
            page = self.number.saturating_add(1),
            wait = ?wait,
            reason,
            "the same page will be asked for again"
        );
    }
}
