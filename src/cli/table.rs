//! Tables as people read them, without lines that get in the way of grep.

use comfy_table::{Cell, Table, presets};

use crate::domain::instant::Instant;

/// A table with a header row.
pub(super) fn table<const N: usize>(
    header: [&str; N],
    rows: impl IntoIterator<Item = [String; N]>,
) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(header.map(|name| Cell::new(name.to_uppercase())));
    for row in rows {
        table.add_row(row);
    }
    table.trim_fmt()
}

/// Names and values, one pair a line.
pub(super) fn pairs(rows: impl IntoIterator<Item = (&'static str, String)>) -> String {
    let rows: Vec<_> = rows.into_iter().collect();
    let width = rows.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let indent = format!("\n{:width$}  ", "");
    let lines: Vec<String> =
        rows.iter().map(|(name, value)| format!("{name:width$}  {}", value.replace('\n', &indent))).collect();
    lines.join("\n")
}

/// A value that may be missing.
pub(super) fn or_dash<T: ToString>(value: Option<T>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}

/// An instant without its fractions.
pub(super) fn to_the_second(instant: Instant) -> String {
    Instant::from_seconds(instant.seconds()).to_string()
}
