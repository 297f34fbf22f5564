//! The access tokens of all accounts: kept in the store, renewed before they run out, by one request for all
//! jobs of an account and for all processes that share the store (field case C32).
//!
//! A token is stored before it is used: with a provider that rotates refresh tokens, one that was used and
//! then forgotten would lock everybody out.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use secrecy::SecretString;
use tokio::sync::OwnedMutexGuard;

use super::{
    http::Http,
    login::{self, LoginError},
};
use crate::{
    config::account::{Account, Auth, OAuth2},
    domain::{
        clock::Clock,
        instant::Instant,
        token::{Refusal, after_refusal, is_due, pause},
    },
    store::{NewToken, Store, StoreError},
};

/// How long a process has the right to ask for a token alone: longer than a request may take, so that only
/// a process that died loses it.
const CLAIM: Duration = Duration::from_secs(90);

/// How often a process that waits for another one's token looks for it.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// The access tokens of all accounts; one such value a process.
#[derive(Debug, Default)]
pub struct Tokens {
    /// Where they are kept; without it in memory alone, for whoever has no store.
    store: Option<Arc<dyn Store>>,
    accounts: Mutex<HashMap<String, Arc<tokio::sync::Mutex<Slot>>>>,
}

/// Who needs a token, and by what it is got.
#[derive(Clone, Debug)]
pub struct Seeker {
    /// The account.
    pub account: Arc<Account>,
    /// The job's name.
    pub job: String,
    /// How the provider is asked.
    pub http: Http,
    /// Whose time counts.
    pub clock: Arc<dyn Clock>,
}

/// An access token in use.
#[derive(Debug)]
pub struct Credential {
    /// How requests are signed by it.
    pub auth: Auth,
    /// The token itself.
    pub token: SecretString,
    number: i64,
    obtained_at: Instant,
    expires_at: Option<Instant>,
}

impl Credential {
    /// Whether it has to be renewed before it is used.
    pub fn is_due(&self, now: Instant) -> bool {
        is_due(self.obtained_at, self.expires_at, now)
    }
}

/// What is known of an account's tokens. Whoever holds its lock is the one who asks.
#[derive(Debug, Default)]
struct Slot {
    held: Option<(i64, NewToken)>,
    /// A token that was got and could not be stored yet, with the number of the one before it.
    unsaved: Option<(i64, NewToken)>,
    failures: u32,
    /// Until when the provider is left alone, and why.
    failed: Option<(Instant, LoginError)>,
    /// When a job was last refused with a token that was fresh.
    futile: HashMap<String, Instant>,
}

impl Tokens {
    /// Tokens that are kept in a store.
    pub fn kept_in(store: Arc<dyn Store>) -> Self {
        Self { store: Some(store), accounts: Mutex::default() }
    }

    /// The account's token, got or renewed where that is due; `None` where the account signs without one.
    pub async fn credential(self: &Arc<Self>, seeker: &Seeker) -> Result<Option<Credential>, LoginError> {
        if !matches!(seeker.account.auth, Auth::OAuth2(_)) {
            return Ok(None);
        }
        let slot = self.slot(&seeker.account.bucket).lock_owned().await;
        let now = seeker.clock.now();
        if let Some((number, token)) = &slot.held
            && slot.unsaved.is_none()
            && !is_due(token.obtained_at, token.expires_at, now)
        {
            return Ok(Some(signing(*number, token)));
        }
        self.in_a_task(seeker, slot, None).await.map(Some)
    }

    /// The token after one that was refused: renewed where nobody has done so yet. `repeated` says that the
    /// request was repeated after a refusal already.
    pub async fn after_refusal(
        self: &Arc<Self>,
        seeker: &Seeker,
        refused: &Credential,
        repeated: bool,
    ) -> Result<Credential, LoginError> {
        let mut slot = self.slot(&seeker.account.bucket).lock_owned().await;
        let now = seeker.clock.now();
        let current = slot.held.as_ref().map_or(refused.number, |(number, _)| *number);
        let futile = slot.futile.get(&seeker.job).copied();
        match after_refusal(refused.number, current, repeated, futile, now) {
            Refusal::UseNewer | Refusal::Renew => {}
            Refusal::GiveUp => {
                if repeated {
                    slot.futile.insert(seeker.job.clone(), now);
                }
                let reason =
                    "a fresh access token is refused as well: check what the client may do, and `scope`";
                return Err(LoginError::Refused(reason.to_owned()));
            }
        }
        self.in_a_task(seeker, slot, Some(refused.number)).await
    }

    fn slot(&self, bucket: &str) -> Arc<tokio::sync::Mutex<Slot>> {
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        match accounts.get(bucket) {
            Some(slot) => Arc::clone(slot),
            None => Arc::clone(accounts.entry(bucket.to_owned()).or_default()),
        }
    }

    /// Renews in a task of its own, which nobody aborts: a run that is stopped in the middle must not lose
    /// a token that the provider has given already.
    async fn in_a_task(
        self: &Arc<Self>,
        seeker: &Seeker,
        mut slot: OwnedMutexGuard<Slot>,
        refused: Option<i64>,
    ) -> Result<Credential, LoginError> {
        let (tokens, seeker) = (Arc::clone(self), seeker.clone());
        let task = tokio::spawn(async move {
            match &seeker.account.auth {
                Auth::OAuth2(oauth2) => tokens.renewed(&seeker, oauth2, &mut slot, refused).await,
                _ => Err(LoginError::Refused("the account's `auth` has no tokens".to_owned())),
            }
        });
        match task.await {
            Ok(done) => done,
            Err(ended) if ended.is_panic() => std::panic::resume_unwind(ended.into_panic()),
            Err(_) => Err(LoginError::MayPass("the process is being stopped".to_owned())),
        }
    }

    /// A token that is not due and has another number than `refused`.
    async fn renewed(
        &self,
        seeker: &Seeker,
        oauth2: &OAuth2,
        slot: &mut Slot,
        refused: Option<i64>,
    ) -> Result<Credential, LoginError> {
        let bucket = &seeker.account.bucket;
        let login = oauth2.login();
        loop {
            if let Some((number, token)) = slot.unsaved.clone() {
                self.save(bucket, slot, number, token).await?;
            }
            let (number, stored) = self.stored(bucket, slot).await?;
            // A token of another login is of no use, and neither is its refresh token.
            let stored = stored.filter(|token| token.login == login);
            let now = seeker.clock.now();
            if let Some(token) = &stored
                && refused != Some(number)
                && !is_due(token.obtained_at, token.expires_at, now)
            {
                slot.held = Some((number, token.clone()));
                return Ok(signing(number, token));
            }
            if let Some((until, error)) = &slot.failed
                && now < *until
            {
                return Err(match error {
                    LoginError::Limited { reason, .. } => {
                        LoginError::Limited { wait: Some(until.since(now)), reason: reason.clone() }
                    }
                    other => other.clone(),
                });
            }
            if !self.claim(bucket, number).await? {
                // Another process is asking; what it gets is for everybody.
                seeker.clock.sleep(LOOK_EVERY).await;
                continue;
            }
            let rotated = stored.and_then(|token| token.refresh_token);
            let asked = login::ask(
                &seeker.account.auth,
                oauth2,
                rotated.as_ref(),
                &seeker.http,
                seeker.clock.as_ref(),
            );
            match asked.await {
                Ok(granted) => {
                    tracing::info!(account = %bucket, job = %seeker.job, "a new access token");
                    (slot.failures, slot.failed) = (0, None);
                    let token = NewToken {
                        login: login.clone(),
                        access_token: granted.access_token,
                        refresh_token: granted.refresh_token.or(rotated),
                        obtained_at: granted.asked_at,
                        expires_at: granted.expires_in.map(|life| granted.asked_at.plus(life)),
                    };
                    // Kept here until it is stored, and used by nobody before.
                    slot.unsaved = Some((number, token.clone()));
                    if self.save(bucket, slot, number, token).await?
                        && let Some((number, token)) = &slot.held
                    {
                        return Ok(signing(*number, token));
                    }
                }
                Err(error) => {
                    self.release(bucket, number).await;
                    slot.failures = slot.failures.saturating_add(1);
                    let wait = match &error {
                        LoginError::Limited { wait: Some(wait), .. } => *wait,
                        other => pause(slot.failures, other.may_pass()),
                    };
                    slot.failed = Some((seeker.clock.now().plus(wait), error.clone()));
                    return Err(error);
                }
            }
        }
    }

    /// The number and the token that are stored.
    async fn stored(&self, bucket: &str, slot: &Slot) -> Result<(i64, Option<NewToken>), LoginError> {
        let Some(store) = &self.store else {
            return Ok(slot.held.clone().map_or((0, None), |(number, token)| (number, Some(token))));
        };
        let stored = store.account_token(bucket).await.map_err(|error| unreadable(&error))?;
        Ok(stored.map_or((0, None), |stored| (stored.number, stored.token)))
    }

    async fn claim(&self, bucket: &str, number: i64) -> Result<bool, LoginError> {
        let Some(store) = &self.store else { return Ok(true) };
        store.claim_token(bucket, number, CLAIM).await.map_err(|error| unreadable(&error))
    }

    async fn release(&self, bucket: &str, number: i64) {
        let Some(store) = &self.store else { return };
        if let Err(error) = store.release_token(bucket, number).await {
            tracing::warn!(account = %bucket, %error, "the right to ask for a token could not be given back; it runs out by itself");
        }
    }

    /// Stores a token that was got; `false` where another process was quicker. Where the store fails, the
    /// token stays unsaved and is stored before anything else is done.
    async fn save(
        &self,
        bucket: &str,
        slot: &mut Slot,
        number: i64,
        token: NewToken,
    ) -> Result<bool, LoginError> {
        let stored = match &self.store {
            Some(store) => store.store_token(bucket, number, &token).await.map_err(|error| {
                LoginError::MayPass(format!("it was given, but could not be stored: {error}"))
            })?,
            None => true,
        };
        slot.unsaved = None;
        if stored {
            slot.held = Some((number.saturating_add(1), token));
        }
        Ok(stored)
    }
}

fn signing(number: i64, token: &NewToken) -> Credential {
    Credential {
        auth: Auth::Bearer { token: token.access_token.clone() },
        token: token.access_token.clone(),
        number,
        obtained_at: token.obtained_at,
        expires_at: token.expires_at,
    }
}

fn unreadable(error: &StoreError) -> LoginError {
    LoginError::MayPass(format!("the stored one cannot be read: {error}"))
}
