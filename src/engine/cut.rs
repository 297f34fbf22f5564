//! Why a walk did not reach the end of its window, in the words of a report.

use crate::{
    config::job::Job,
    connector::ReadError,
    domain::{
        instant::Instant,
        sync_token::SyncToken,
        window::{Length, Step},
    },
    store::StoreError,
};

/// So many failures in a row are no accident.
const KEEPS_FAILING: u32 = 3;

/// How often a walk begins anew in one step, where the source says that the place of a page is not good any more.
pub(super) const MOST_RESTARTS: u32 = 3;

/// Why a walk did not reach the end of its window.
pub(super) enum Cut {
    /// The source failed, or answered what is not data.
    Source(String),
    /// The place of a page is not good any more.
    Restart(String),
    /// The source does not give so much at once.
    TooMuch(String),
    /// The source does not know what it gave to go on from any more.
    Reset(String),
    /// Between the last complete run and this token lies what nobody can read any more.
    Gap { reason: String, token: SyncToken },
    /// The process has to stop.
    Stopped,
    /// The source asks the jobs of a bucket to leave it alone until then.
    RateLimited { bucket: String, until: Instant, reason: String },
    /// The store failed.
    Store(StoreError),
}

impl Cut {
    /// The same with advice where runs keep failing and less cannot be asked for.
    pub(super) fn advised(self, job: &Job, failures: u32, length: Length, step: Step) -> Self {
        match self {
            Self::Restart(reason) => {
                Self::Source(format!("{reason}; the walk has begun anew {MOST_RESTARTS} times already"))
            }
            Self::TooMuch(reason) => Self::Source(format!("{reason}; {}", why_whole(job, step))),
            Self::Reset(reason) => Self::Source(format!(
                "{reason}; it was asked without a token, so that there is none to begin without"
            )),
            Self::Source(reason) if length.is_shortest && failures >= KEEPS_FAILING => {
                let why = why_whole(job, step);
                Self::Source(format!("{reason}; {} runs have failed here in a row, and {why}", failures + 1))
            }
            cut => cut,
        }
    }
}

/// Why no less can be asked for.
fn why_whole(job: &Job, step: Step) -> &'static str {
    if job.stream.sync.is_some() {
        "this source is asked by a token and not for a part of a window"
    } else if !job.stream.bounded {
        "this source cannot be asked for a part of the window: its requests never use `window.end`"
    } else if step.from.is_none() {
        "the window has no beginning that it could be cut from: set `window.start`"
    } else {
        "the window cannot be made any shorter"
    }
}

impl From<StoreError> for Cut {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ReadError> for Cut {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::RateLimited { bucket, until, reason } => Self::RateLimited { bucket, until, reason },
            ReadError::Restart { reason } => Self::Restart(reason),
            ReadError::TooMuch { reason } => Self::TooMuch(reason),
            ReadError::Reset { reason } => Self::Reset(reason),
            ReadError::Failed { reason } => Self::Source(reason),
        }
    }
}
