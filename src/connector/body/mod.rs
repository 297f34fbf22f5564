//! What an answer's body holds: its bytes as text, and the records in that text.

pub mod records;
pub mod text;
