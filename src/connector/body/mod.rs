//! What an answer's body holds: its bytes as text, and the records in that text.

mod csv;
pub mod document;
pub mod list;
mod ndjson;
pub mod records;
pub mod text;
mod xml;
