//! The records of an answer, and what the walk learns from it.

use serde_json::{Value, value::RawValue};

use super::{Good, Page, PageReader, ReadError};
use crate::{
    config::stream::{PageKind, Place, Stream},
    connector::{
        body::{
            list::{List, list},
            records::{Reading, RecordsError, too_many_bad},
        },
        marks,
        next::{PageFacts, PagerError},
        place::find,
        verdict::stops,
    },
};

impl PageReader {
    /// The records of an answer. The walk moves on only where all of it could be read.
    pub(super) fn extract(&mut self, good: &Good) -> Result<Page, ReadError> {
        let url = Some(&good.url);
        let stream = &self.job.stream;
        let body = good.reply.json().unwrap_or(RawValue::NULL);
        let failed = |error: RecordsError| {
            let beginning = self.secrets.excerpt(body.get(), 200);
            self.failed(url, &format!("{error}; it begins with `{beginning}`"))
        };
        let list = match &good.reply.body {
            _ if good.is_empty => List::empty(),
            Ok(document) => list(document, stream).map_err(failed)?,
            // The verdict called it data all the same: an empty body that stands for an empty list.
            Err(_) => List::empty(),
        };
        let rows = list.rows().map_err(failed)?;
        let marks = marks::of(&rows, stream, &self.job.ignored);
        // Where pages overlap, what a page brings again is no record of its own.
        let fresh: Vec<(usize, &RawValue)> = rows
            .iter()
            .copied()
            .enumerate()
            .zip(self.pager.fresh(&marks))
            .filter_map(|(row, is_fresh)| is_fresh.then_some(row))
            .collect();
        let reading = Reading {
            job: &self.job,
            inputs: &self.inputs,
            damaged: good.reply.damaged,
            unread_since: good.source_time,
        };
        let read = reading.page(&fresh, &list).map_err(failed)?;
        let (all, bad) =
            (self.rows.saturating_add(fresh.len()), self.bad.saturating_add(read.quarantined.len()));
        if let Some(first) = read.quarantined.first().filter(|_| too_many_bad(bad, all)) {
            return Err(failed(RecordsError::TooManyBad { bad, rows: all, reason: first.reason.clone() }));
        }
        let stops = stops(stream, &self.inputs, &good.reply)
            .map_err(|error| self.failed(url, &format!("`stop_condition` fails: {error}")))?;
        let (headers, rows, marks) = (&good.reply.headers, &rows, &marks);
        let facts = PageFacts { url: &good.url, body, headers, rows, marks, stops };
        match self.pager.advance(&facts) {
            Ok(()) => {}
            Err(error @ PagerError::MaxRows(_)) => {
                return Err(ReadError::TooMuch { reason: self.reason(url, &error.to_string()) });
            }
            Err(error) => return Err(self.failed(url, &error.to_string())),
        }
        if self.pager.take_disorder() {
            tracing::warn!(
                job = self.job.name,
                page = self.number.saturating_add(1),
                "a row is older than one before it although the connector says `row_order: asc`: a run that is \
                 cut off reads its window again, until the request sorts by the version's field"
            );
        }
        if let Some(clamp) = self.pager.take_clamp() {
            tracing::info!(
                job = self.job.name,
                asked = clamp.asked,
                received = clamp.received,
                "the source gives smaller pages than it is asked for"
            );
        }
        let sync_token = self.sync_token(good, body)?;
        (self.rows, self.bad) = (all, bad);
        Ok(Page {
            number: self.number.saturating_add(1),
            records: read.records,
            quarantined: read.quarantined,
            skipped: read.skipped,
            rows: rows.len(),
            max_version: read.max_version,
            asked_at: good.asked_at,
            answered_at: good.answered_at,
            source_time: good.source_time,
            is_dated: good.is_dated,
            is_unmodified: good.is_unmodified,
            next: self
                .pager
                .mark(&self.window.token, good.answered_at)
                .filter(|_| stream.pagination.token_ttl.is_some()),
            // Rows without a version stand outside every bound, and may still be to come.
            risen_to: self.pager.risen_to().filter(|_| !self.is_from_start || is_keyset(stream)),
            is_sorted: self.pager.is_sorted(),
            sync_token,
            tag: None,
        })
    }

    /// What the next run goes on from, which the last page holds. A last page without it would have the next
    /// run begin anew, every time.
    fn sync_token(&self, good: &Good, body: &RawValue) -> Result<Option<Value>, ReadError> {
        let Some(sync) = self.job.stream.sync.as_ref().filter(|_| self.pager.is_over() && !good.is_empty)
        else {
            return Ok(None);
        };
        let token = self.token_at(&sync.place, body, good)?;
        token.map(Some).ok_or_else(|| {
            self.failed(
                Some(&good.url),
                "the last page holds nothing at `token_path`, from which the next run should go on",
            )
        })
    }

    /// A token or URL in an answer.
    pub(super) fn token_at(
        &self,
        place: &Place,
        body: &RawValue,
        good: &Good,
    ) -> Result<Option<Value>, ReadError> {
        let found = find(place, body, &good.reply.headers)
            .map_err(|error| self.failed(Some(&good.url), &error.to_string()))?;
        match found {
            Some(Value::String(text)) if text.is_empty() => Ok(None),
            Some(Value::Object(_) | Value::Array(_)) => {
                Err(self.failed(Some(&good.url), &PagerError::NotScalar.to_string()))
            }
            found => Ok(found),
        }
    }
}

fn is_keyset(stream: &Stream) -> bool {
    matches!(stream.pagination.kind, PageKind::Keyset)
}
