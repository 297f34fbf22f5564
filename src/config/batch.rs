//! `batch`: several events in one request.

use std::{num::NonZeroU32, ops::RangeInclusive, time::Duration};

use super::{
    destination_file::BatchFile,
    error::{Problem, Problems},
    values::{duration_up_to, size},
};
use crate::domain::batch::BatchRules;

const MAX_EVENTS: NonZeroU32 = NonZeroU32::MIN.saturating_add(99);
const MAX_BYTES: u64 = 1_000_000;
const LINGER: Duration = Duration::from_secs(1);

/// n8n refuses a body of more than 16 MiB unless `N8N_PAYLOAD_SIZE_MAX` says otherwise.
const BYTES: RangeInclusive<u64> = 1_000..=16_000_000;
const LONGEST_LINGER: Duration = Duration::from_mins(5);

/// How many events go in one request, where several do.
pub(super) fn batch_rules(file: &BatchFile, problems: &Problems) -> Option<BatchRules> {
    let max_bytes = match &file.max_bytes {
        Some(text) => size(text, problems).filter(|bytes| {
            let fits = BYTES.contains(bytes);
            if !fits {
                let problem = Problem::new(text.span, format!("`max_bytes` cannot be {}", text.quoted()));
                let problem = problem.expected("a size from `1kB` to `16MB`");
                problems.add(if bytes > BYTES.end() {
                    problem.help("n8n refuses larger bodies (`N8N_PAYLOAD_SIZE_MAX`)")
                } else {
                    problem
                });
            }
            fits
        }),
        None => Some(MAX_BYTES),
    };
    let linger = match &file.linger {
        Some(text) => duration_up_to(text, "linger", LONGEST_LINGER, problems),
        None => Some(LINGER),
    };
    Some(BatchRules {
        max_events: file.max_events.unwrap_or(MAX_EVENTS),
        max_bytes: max_bytes?,
        linger: linger?,
    })
}
