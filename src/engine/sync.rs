//! What a run goes on from that the source gave, and what it does where the source has forgotten it. Rows that
//! come again after a new beginning are the store's to absorb.

use serde_json::Value;

use super::{cut::Cut, walk::Walk};
use crate::{
    connector::{PageReader, ReadError},
    domain::{instant::Instant, sync_token::SyncToken},
    store::Progress,
};

/// The token of a run; nothing where its stream is asked by versions.
pub(super) struct SyncWalk {
    made_for: String,
    /// The run goes on from a token, which the source may have forgotten.
    is_held: bool,
}

impl SyncWalk {
    /// Has `reader` go on from the token that is stored, or from a first one that is asked for and stored, or
    /// from nothing.
    pub(super) async fn begin(
        walk: &Walk<'_>,
        progress: &Progress,
        reader: &mut PageReader,
    ) -> Result<Self, Cut> {
        let Some(state) = &walk.job.stream.sync else {
            return Ok(Self { made_for: String::new(), is_held: false });
        };
        let mut sync = Self { made_for: reader.listing()?, is_held: false };
        let now = walk.engine.clock.now();
        let known = progress.sync_token.as_ref();
        match known.filter(|token| token.is_good(&sync.made_for, state.retention, now)) {
            Some(token) => {
                sync.is_held = true;
                reader.go_on_from(Some(token.value.clone()));
            }
            None if known.is_some() => {
                let reason = "the token is older than its `retention`, or was made for another listing";
                sync.begin_anew(walk, reader, reason.to_owned()).await?;
            }
            None => sync.take_first(walk, reader).await?,
        }
        Ok(sync)
    }

    /// Whether there is a token to begin anew without.
    pub(super) const fn may_begin_anew(&self) -> bool {
        self.is_held
    }

    /// Begins anew. A source that lists everything without a token leaves no gap by that. One that only tells
    /// what changes from now on does: the run fails, so that somebody learns of it, and the next one goes on.
    pub(super) async fn begin_anew(
        &mut self,
        walk: &Walk<'_>,
        reader: &mut PageReader,
        reason: String,
    ) -> Result<(), Cut> {
        self.is_held = false;
        self.take_first(walk, reader).await?;
        if walk.job.stream.sync.as_ref().is_some_and(|state| state.start.is_some()) {
            return Err(Cut::Source(format!(
                "{reason}; the next run goes on from a new token, and what changed between the last complete run \
                 and now may be missing"
            )));
        }
        tracing::warn!(job = %walk.job.name, reason, "the walk begins anew, without a token");
        Ok(())
    }

    /// A token of this run's listing.
    pub(super) fn token(&self, value: Value, given_at: Instant) -> SyncToken {
        SyncToken { made_for: self.made_for.clone(), value, given_at }
    }

    /// A first token is stored before it is used: between a second one and the first lie changes that neither
    /// would tell of.
    async fn take_first(&self, walk: &Walk<'_>, reader: &mut PageReader) -> Result<(), Cut> {
        let Some(start) = walk.job.stream.sync.as_ref().and_then(|state| state.start.as_ref()) else {
            reader.go_on_from(None);
            return Ok(());
        };
        let value = reader.first_token(start).await.map_err(|error: ReadError| Cut::from(error))?;
        let token = self.token(value.clone(), walk.engine.clock.now());
        walk.engine.store.keep_sync_token(walk.lease, &token).await?;
        reader.go_on_from(Some(value));
        Ok(())
    }
}
