//! What a page needs before it may be asked for, and for every attempt anew: a place in the buckets and a
//! credential that is good at that moment.

use std::sync::Arc;

use url::Url;

use super::{PageReader, ReadError, Spent};
use crate::{
    connector::{
        login::LoginError,
        quota::pause_after,
        tokens::{Credential, Seeker},
        verdict::Reply,
    },
    domain::backoff::Plea,
    limit::{Ask, Held},
};

impl PageReader {
    /// Waits until the page may be asked for, with a credential that is good at that moment: one that runs
    /// out while its request waits is renewed before it is used.
    pub(super) async fn may_ask(
        &mut self,
        spent: &mut Spent,
        url: &Url,
    ) -> Result<Option<Credential>, ReadError> {
        let credential = self.credential(spent, url).await?;
        self.admitted(url).await?;
        if !credential.as_ref().is_some_and(|credential| credential.is_due(self.clock.now())) {
            return Ok(credential);
        }
        let credential = self.credential(spent, url).await?;
        self.admitted(url).await?;
        Ok(credential)
    }

    async fn admitted(&self, url: &Url) -> Result<(), ReadError> {
        let job = &self.job;
        let stream = job.stream_bucket();
        let own = stream.as_ref().map(|bucket| Ask { bucket, limit: job.stream.rate_limit.as_ref() });
        let paced = self.pace.as_ref().map(|(bucket, rate)| Ask { bucket, limit: Some(rate) });
        let asks: Vec<Ask<'_>> =
            paced.into_iter().chain(own).chain([Ask::from(job.account.as_ref())]).collect();
        let reason = "the source asked to be left alone";
        let parked = |held: Held| self.parked(url, &held.bucket, held.until, reason);
        self.limits.admit(self.precedence, &asks).await.map_err(parked)
    }

    /// What the answer says about the quotas it counted in, heeded by whoever asks next.
    pub(super) fn heed_quotas(&self, url: &Url, reply: &Reply) -> Result<(), ReadError> {
        let (job, now) = (&self.job, self.clock.now());
        let stream = job.stream_bucket();
        let quotas = [
            (Some(job.account.bucket.as_str()), &job.account.rate_limit),
            (stream.as_deref(), &job.stream.rate_limit),
        ];
        for (bucket, limit) in quotas {
            let (Some(bucket), Some(limit)) = (bucket, limit) else { continue };
            let pause = pause_after(limit, &self.inputs, reply);
            if let Some(pause) = pause.map_err(|reason| self.failed(Some(url), &reason))? {
                tracing::debug!(job = job.name, account = bucket, ?pause, "the quota is used up for now");
                self.limits.hold(bucket, now.plus(pause));
            }
        }
        Ok(())
    }

    /// The account's access token; `None` where it signs without one.
    async fn credential(&mut self, spent: &mut Spent, url: &Url) -> Result<Option<Credential>, ReadError> {
        loop {
            match self.tokens.credential(&self.seeker()).await {
                Ok(credential) => {
                    if let Some(credential) = &credential {
                        self.secrets.learn(&credential.token);
                    }
                    return Ok(credential);
                }
                Err(error) => self.without_token(spent, url, error).await?,
            }
        }
    }

    /// Renews the access token that an answer refused, once for a request.
    pub(super) async fn renew(
        &mut self,
        spent: &mut Spent,
        url: &Url,
        refused: Option<&Credential>,
        reason: &str,
    ) -> Result<(), ReadError> {
        // Nothing to renew: what the answer says is all there is to say.
        let Some(refused) = refused else { return Err(self.failed(Some(url), reason)) };
        match self.tokens.after_refusal(&self.seeker(), refused, spent.renewed).await {
            Ok(_) => {
                spent.renewed = true;
                tracing::info!(
                    job = self.job.name,
                    reason,
                    "the request is repeated with a fresh access token"
                );
                Ok(())
            }
            Err(LoginError::Refused(why)) => Err(self.failed(Some(url), &format!("{reason}; {why}"))),
            // Repeated with the same token after a wait; its next refusal asks for a new one again.
            Err(error) => self.without_token(spent, url, error).await,
        }
    }

    async fn without_token(&self, spent: &mut Spent, url: &Url, error: LoginError) -> Result<(), ReadError> {
        let reason = error.to_string();
        match error {
            LoginError::MayPass(_) => self.wait_out(spent, url, None, &reason).await,
            LoginError::Limited { wait, .. } => {
                self.be_patient(spent, url, wait.map_or(Plea::Untold, Plea::Told), &reason)?;
                self.admitted(url).await
            }
            LoginError::Refused(_) => Err(self.failed(None, &reason)),
        }
    }

    fn seeker(&self) -> Seeker {
        Seeker {
            account: Arc::clone(&self.job.account),
            job: self.job.name.clone(),
            http: self.http.clone(),
            clock: Arc::clone(&self.clock),
        }
    }
}
