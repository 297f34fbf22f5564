//! What a run goes on from that the source gave, and what it does where the source has forgotten it. Rows that
//! come again after a new beginning are the store's to absorb.

use serde_json::Value;

use super::{cut::Cut, walk::Walk};
use crate::{
    config::stream::TokenStart,
    connector::PageReader,
    domain::{instant::Instant, sync_token::SyncToken},
    store::Progress,
};

/// The token of a run; nothing where its stream is asked by versions.
#[derive(Default)]
pub(super) struct SyncWalk {
    made_for: String,
    /// The run goes on from a token, which the source may have forgotten.
    is_held: bool,
    /// What a person has to know of a run that begins anew.
    pub(super) told: Option<String>,
}

impl SyncWalk {
    /// Has `reader` go on from the token that is stored, or from a first one that is asked for and stored, or
    /// from nothing.
    pub(super) async fn begin(
        walk: &Walk<'_>,
        progress: &Progress,
        reader: &mut PageReader,
    ) -> Result<Self, Cut> {
        let Some(state) = &walk.job.stream.sync else { return Ok(Self::default()) };
        let mut sync = Self { made_for: reader.listing()?, ..Self::default() };
        let now = walk.engine.clock.now();
        let known = progress.sync_token.as_ref();
        match (known.filter(|token| token.is_good(&sync.made_for, state.retention, now)), &state.start) {
            (Some(token), _) => {
                sync.is_held = true;
                reader.go_on_from(Some(token.value.clone()));
            }
            (None, _) if known.is_some() => {
                let reason = "the token is older than its `retention`, or was made for another listing";
                sync.begin_anew(walk, reader, reason.to_owned()).await?;
            }
            // A first token is stored before it is used: between a second one and the first lie changes that
            // neither would tell of.
            (None, Some(start)) => {
                let token = sync.first_token(walk, reader, start).await?;
                if let Some(lease) = walk.books.lease() {
                    walk.engine.store.keep_sync_token(lease, &token).await?;
                }
                reader.go_on_from(Some(token.value));
            }
            (None, None) => reader.go_on_from(None),
        }
        Ok(sync)
    }

    /// Whether there is a token to begin anew without.
    pub(super) const fn may_begin_anew(&self) -> bool {
        self.is_held
    }

    /// Begins anew. A source that lists everything without a token leaves no record out by that, but tells of
    /// none that is gone. One that only tells what changes from now on leaves a gap: the run fails, so that
    /// somebody learns of it, and its end is stored with the token that the next one goes on from.
    pub(super) async fn begin_anew(
        &mut self,
        walk: &Walk<'_>,
        reader: &mut PageReader,
        reason: String,
    ) -> Result<(), Cut> {
        self.is_held = false;
        let stream = &walk.job.stream;
        if let Some(start) = stream.sync.as_ref().and_then(|state| state.start.as_ref()) {
            let token = self.first_token(walk, reader, start).await?;
            let reason = format!(
                "{reason}; the next run goes on from a new token, and what changed between the last complete run \
                 and now may be missing"
            );
            return Err(Cut::Gap { reason, token });
        }
        tracing::warn!(job = %walk.job.name, reason, "the walk begins anew, without a token");
        if stream.deleted_when.is_some() {
            self.told = Some(format!(
                "{reason}; the listing was read anew, and what was deleted since the last complete run is not told of"
            ));
        }
        reader.go_on_from(None);
        Ok(())
    }

    /// A token of this run's listing.
    pub(super) fn token(&self, value: Value, given_at: Instant) -> SyncToken {
        SyncToken { made_for: self.made_for.clone(), value, given_at }
    }

    async fn first_token(
        &self,
        walk: &Walk<'_>,
        reader: &mut PageReader,
        start: &TokenStart,
    ) -> Result<SyncToken, Cut> {
        let value = walk.unless_stopped(reader.first_token(start)).await?;
        Ok(self.token(value, walk.engine.clock.now()))
    }
}
