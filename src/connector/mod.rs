//! Reading a source: building a request, signing it, sending it within the account's limits, telling data
//! from everything else that comes back, finding the next page, and taking the records out of it.
//!
//! [`PageReader`] is the whole of it for a run; the other parts are its pure pieces.

mod address;
mod auth;
mod body;
mod clamp;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzzing;
pub mod guard;
mod http;
mod link;
mod login;
mod marks;
mod next;
mod pager;
mod place;
mod quota;
mod reader;
mod request;
mod tokens;
mod verdict;
mod wait;

pub use body::records::read_one;
pub use http::{Http, HttpError, HttpOptions};
pub use reader::{Page, PageReader, ReadError};
pub use tokens::Tokens;
