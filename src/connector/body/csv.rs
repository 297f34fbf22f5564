//! CSV (RFC 4180): the first row names the columns, every value is a text. A row of another width is set
//! aside by itself; a quote that is never closed means that the body is cut.

use std::collections::HashSet;

use csv::{ReaderBuilder, StringRecord};
use serde_json::Value;

use super::document::{Document, DocumentError, ListText, push_text};

/// Reads a body whose values are separated by `delimiter`.
pub(super) fn read(text: &str, delimiter: u8) -> Result<Document, DocumentError> {
    let unreadable = |error: csv::Error| DocumentError::Csv(error.to_string());
    let mut reader = ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .delimiter(delimiter)
        .from_reader(text.as_bytes());
    let mut row = StringRecord::new();
    if !reader.read_record(&mut row).map_err(unreadable)? {
        return Err(DocumentError::Csv("it has no header row".to_owned()));
    }
    let names = names(&row)?;
    let mut list = ListText::new(text.len());
    let mut start = reader.position().byte();
    while reader.read_record(&mut row).map_err(unreadable)? {
        let end = reader.position().byte();
        let raw = slice(text, start, end);
        start = end;
        let is_last = end >= text.len() as u64;
        if is_last && raw.trim_end().contains('\n') && raw.matches('"').count() % 2 == 1 {
            return Err(DocumentError::Csv("a quote is opened and never closed".to_owned()));
        }
        if row.len() == names.len() {
            list.row(|text| push_row(text, &names, &row))?;
        } else {
            let reason = format!("it has {} values, and the header row has {}", row.len(), names.len());
            list.broken_row(raw.trim_matches(['\r', '\n']), reason)?;
        }
    }
    let columns = names
        .iter()
        .filter_map(|name| serde_json::from_str(name).ok())
        .map(|name: String| (name, Value::Null));
    Ok(Document { columns: Some(Value::Object(columns.collect())), ..list.finish()? })
}

/// The columns' names as JSON texts. A column without a name is called by its position.
fn names(header: &StringRecord) -> Result<Vec<String>, DocumentError> {
    let mut seen = HashSet::new();
    header
        .iter()
        .enumerate()
        .map(|(index, name)| {
            let name = match name.trim() {
                "" => format!("column_{}", index.saturating_add(1)),
                name => name.to_owned(),
            };
            if !seen.insert(name.clone()) {
                return Err(DocumentError::Csv(format!("the header row names `{name}` twice")));
            }
            let mut json = String::new();
            push_text(&mut json, &name);
            Ok(json)
        })
        .collect()
}

fn push_row(text: &mut String, names: &[String], row: &StringRecord) {
    let mut mark = '{';
    for (name, value) in names.iter().zip(row) {
        text.push(mark);
        text.push_str(name);
        text.push(':');
        push_text(text, value);
        mark = ',';
    }
    text.push('}');
}

fn slice(text: &str, start: u64, end: u64) -> &str {
    let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
    text.get(place(start)..place(end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_header_row_names_the_values_and_all_are_texts() {
        let cases = [
            (
                "id,name\n1,a\n2,\"b, \"\"c\"\"\nd\"\n",
                ',',
                r#"[{"id":"1","name":"a"},{"id":"2","name":"b, \"c\"\nd"}]"#,
            ),
            (
                "id;\u{17e}\r\n9007199254740993;x\r\n",
                ';',
                "[{\"id\":\"9007199254740993\",\"\u{17e}\":\"x\"}]",
            ),
            ("id\tsize\n1\t5\" pipe", '\t', r#"[{"id":"1","size":"5\" pipe"}]"#),
            ("id,\n1,\n", ',', r#"[{"id":"1","column_2":""}]"#),
            ("id,name\n", ',', "[]"),
        ];
        for (text, delimiter, expected) in cases {
            let document = read(text, u8::try_from(delimiter).unwrap()).unwrap();
            assert_eq!(document.json.get(), expected);
            assert_eq!(document.broken.len(), 0);
        }
    }

    #[test]
    fn a_row_of_another_width_spoils_only_itself() {
        let document = read("id,name\n1,a\n2,b,c\n3\n4,d\n", b',').unwrap();
        assert_eq!(document.json.get(), r#"[{"id":"1","name":"a"},"2,b,c","3",{"id":"4","name":"d"}]"#);
        assert_eq!(document.broken.reason(1), Some("it has 3 values, and the header row has 2"));
        assert!(document.broken.reason(2).is_some() && document.broken.reason(3).is_none());
    }

    #[test]
    fn what_is_no_table_or_too_large_is_refused() {
        for (text, expected) in [
            ("", "no header row"),
            ("id,id\n1,2\n", "`id` twice"),
            ("id,name\n1,a\n2,\"b\n3,c\n4,d\n", "never closed"),
        ] {
            let error = read(text, b',').unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
        // A long header times many rows.
        let bomb = format!("{}\n{}", "n".repeat(1 << 20), "1\n".repeat(1 << 20));
        assert!(matches!(read(&bomb, b','), Err(DocumentError::TooLarge)));
    }
}
