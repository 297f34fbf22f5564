//! Rows into domain types. What no release writes is an [`StoreError::Inconsistent`], never a guess.

use std::time::Duration;

use serde::de::DeserializeOwned;

use super::{
    JobId, JobRow, Progress, RunId, RunView, StoreError,
    dialect::{Dialect, Reads},
};
use crate::domain::{
    content::Hash,
    decide::{Deletion, Stored},
    identity::Identity,
    instant::Instant,
    key::RecordKey,
    page::{Kept, StoredRecord},
    run::{Counts, RunKind, RunStatus},
    version::Version,
};

/// A column's value.
pub(super) fn get<DB: Dialect + Reads<T>, T>(row: &DB::Row, column: &str) -> Result<T, StoreError> {
    Ok(<DB as Reads<T>>::read(row, column)?)
}

/// A column that counts something.
pub(super) fn count<DB: Dialect>(row: &DB::Row, column: &str) -> Result<u64, StoreError> {
    let value: i64 = get::<DB, _>(row, column)?;
    u64::try_from(value).map_err(|_| unreadable(column, value))
}

/// A small number.
pub(super) fn number<DB: Dialect>(row: &DB::Row, column: &str) -> Result<u32, StoreError> {
    let value: i64 = get::<DB, _>(row, column)?;
    u32::try_from(value).map_err(|_| unreadable(column, value))
}

/// An instant.
pub(super) fn instant<DB: Dialect>(row: &DB::Row, column: &str) -> Result<Instant, StoreError> {
    Ok(Instant::from_micros(get::<DB, i64>(row, column)?))
}

/// An instant that may be missing.
pub(super) fn maybe_instant<DB: Dialect>(row: &DB::Row, column: &str) -> Result<Option<Instant>, StoreError> {
    Ok(get::<DB, Option<i64>>(row, column)?.map(Instant::from_micros))
}

/// A length of time, in microseconds.
pub(super) fn duration<DB: Dialect>(row: &DB::Row, column: &str) -> Result<Duration, StoreError> {
    Ok(Duration::from_micros(count::<DB>(row, column)?))
}

/// The columns `id`, `uid`, `last_fire`, `identity` and `is_blank` of a job and `status` of its last run.
pub(super) fn job<DB: Dialect>(row: &DB::Row) -> Result<JobRow, StoreError> {
    let last_run = get::<DB, Option<String>>(row, "status")?.and_then(|name| RunStatus::from_name(&name));
    let has_no_end = [RunStatus::Running, RunStatus::Interrupted, RunStatus::RateLimited];
    Ok(JobRow {
        is_cut_off: last_run.is_some_and(|status| has_no_end.contains(&status)),
        id: JobId(get::<DB, _>(row, "id")?),
        uid: get::<DB, _>(row, "uid")?,
        last_fire: maybe_instant::<DB>(row, "last_fire")?,
        identity: get::<DB, Option<String>>(row, "identity")?.and_then(|text| Identity::from_stored(&text)),
        is_blank: get::<DB, _>(row, "is_blank")?,
    })
}

/// JSON that only makes reading cheaper: what another release wrote in another form is as good as nothing.
pub(super) fn json<DB: Dialect, T: DeserializeOwned>(
    row: &DB::Row,
    column: &str,
) -> Result<Option<T>, StoreError> {
    Ok(get::<DB, Option<String>>(row, column)?.and_then(|text| serde_json::from_str(&text).ok()))
}

/// The columns of `progress`.
pub(super) fn progress<DB: Dialect>(row: &DB::Row) -> Result<Progress, StoreError> {
    Ok(Progress {
        watermark: get::<DB, Option<i64>>(row, "watermark")?.map(Version),
        complete_through: maybe_instant::<DB>(row, "complete_through")?,
        baseline_at: maybe_instant::<DB>(row, "baseline_at")?,
        baseline_open: get::<DB, _>(row, "baseline_open")?,
        failures: number::<DB>(row, "failures")?,
        bookmark: json::<DB, _>(row, "bookmark")?,
        sync_token: json::<DB, _>(row, "sync_token")?,
        page_tag: json::<DB, _>(row, "page_tag")?,
        floor: get::<DB, Option<i64>>(row, "floor")?.map(Version),
    })
}

/// A row of `record`; nothing is kept where the row is a placeholder.
pub(super) fn record<DB: Dialect>(row: &DB::Row) -> Result<(RecordKey, Option<StoredRecord>), StoreError> {
    let key = RecordKey::from_stored(get::<DB, _>(row, "key")?);
    let sequence = get::<DB, _>(row, "sequence")?;
    let deleted = get::<DB, Option<String>>(row, "deleted")?.map(|name| deletion(&name)).transpose()?;
    let Some(hash) = get::<DB, Option<Vec<u8>>>(row, "hash")? else {
        let is_forgotten = get::<DB, Option<i64>>(row, "forgotten_at")?.is_some();
        let forgotten = StoredRecord { kept: Kept::Forgotten(deleted), sequence };
        return Ok((key, is_forgotten.then_some(forgotten)));
    };
    let hash = Hash::from_stored(&hash).ok_or_else(|| unreadable("hash", &key))?;
    let answered_at =
        maybe_instant::<DB>(row, "answered_at")?.ok_or_else(|| unreadable("answered_at", &key))?;
    let state = Stored {
        version: get::<DB, Option<i64>>(row, "version")?.map(Version),
        hash,
        deleted,
        provisional: get::<DB, _>(row, "provisional")?,
        versionless: get::<DB, _>(row, "versionless")?,
        answered_at,
        hash_run: get::<DB, Option<i64>>(row, "hash_run")?.map(RunId),
    };
    Ok((key, Some(StoredRecord { kept: Kept::State(state), sequence })))
}

/// The stored name of a deletion.
pub(super) const fn deletion_name(deletion: Deletion) -> &'static str {
    match deletion {
        Deletion::Flagged => "flagged",
        Deletion::Reconciled => "reconciled",
    }
}

/// The deletion of a stored name.
pub(super) fn deletion(name: &str) -> Result<Deletion, StoreError> {
    [Deletion::Flagged, Deletion::Reconciled]
        .into_iter()
        .find(|deletion| deletion_name(*deletion) == name)
        .ok_or_else(|| unreadable("deleted", name))
}

/// The columns of `run`, its id as `run_id`; none where that is null.
pub(super) fn run<DB: Dialect>(row: &DB::Row) -> Result<Option<RunView>, StoreError> {
    let Some(id) = get::<DB, Option<i64>>(row, "run_id")? else { return Ok(None) };
    let kind: String = get::<DB, _>(row, "kind")?;
    let status: String = get::<DB, _>(row, "status")?;
    Ok(Some(RunView {
        id: RunId(id),
        kind: RunKind::from_name(&kind).ok_or_else(|| unreadable("kind", &kind))?,
        status: RunStatus::from_name(&status).ok_or_else(|| unreadable("status", &status))?,
        reason: get::<DB, _>(row, "reason")?,
        resumed: get::<DB, _>(row, "resumed")?,
        started_at: instant::<DB>(row, "started_at")?,
        ended_at: maybe_instant::<DB>(row, "ended_at")?,
        requests: count::<DB>(row, "requests")?,
        pages: count::<DB>(row, "pages")?,
        counts: counts::<DB>(row)?,
    }))
}

/// What a run counted.
pub(super) fn counts<DB: Dialect>(row: &DB::Row) -> Result<Counts, StoreError> {
    Ok(Counts {
        records: count::<DB>(row, "records")?,
        created: count::<DB>(row, "created")?,
        updated: count::<DB>(row, "updated")?,
        deleted: count::<DB>(row, "deleted")?,
        restored: count::<DB>(row, "restored")?,
        unchanged: count::<DB>(row, "unchanged")?,
        stale: count::<DB>(row, "stale")?,
        conflicts: count::<DB>(row, "conflicts")?,
        quarantined: count::<DB>(row, "quarantined")?,
        skipped: count::<DB>(row, "skipped")?,
        below_floor: count::<DB>(row, "below_floor")?,
        events: count::<DB>(row, "events")?,
    })
}

/// A value that no release writes into `column`.
pub(super) fn unreadable(column: &str, value: impl std::fmt::Display) -> StoreError {
    StoreError::Inconsistent(format!("{column} is {value}"))
}
