//! NDJSON: one JSON value a line. A line that is cut or garbled is set aside by itself.

use serde_json::value::RawValue;

use super::document::{Document, DocumentError, ListText};

/// Reads a body. Empty lines are nothing; the record separator of RFC 7464 may stand in front of a line.
pub(super) fn read(text: &str) -> Result<Document, DocumentError> {
    let mut list = ListText::new(text.len().saturating_add(2));
    for line in text.lines() {
        let line = line.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\u{1e}');
        if line.is_empty() {
            continue;
        }
        match serde_json::from_str::<&RawValue>(line) {
            Ok(_) => list.row(|text| text.push_str(line))?,
            Err(error) => list.broken_row(line, format!("it is not JSON that can be read: {error}"))?,
        }
    }
    // An empty body included: whether that is an empty list is for the stream to say.
    if list.broken() == list.rows() {
        return Err(DocumentError::Ndjson);
    }
    list.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_record_and_a_bad_one_spoils_only_itself() {
        let cases = [
            ("{\"a\":1}\n{\"a\":9007199254740993}\r\n\n", r#"[{"a":1},{"a":9007199254740993}]"#, None),
            ("\u{1e}{\"a\":1}\n", r#"[{"a":1}]"#, None),
            ("{\"a\":1}\n{\"a\":\n2", r#"[{"a":1},"{\"a\":",2]"#, Some(1)),
            ("{\"a\":1}\n{\"a\":2", r#"[{"a":1},"{\"a\":2"]"#, Some(1)),
        ];
        for (text, expected, broken) in cases {
            let document = read(text).unwrap();
            assert_eq!(document.json.get(), expected);
            assert_eq!(document.broken.len(), usize::from(broken.is_some()), "{text}");
            assert!(broken.is_none_or(|position| document.broken.reason(position).is_some()), "{text}");
        }
    }

    #[test]
    fn what_has_no_line_of_json_is_no_list() {
        for text in ["", "\n\n", "<html>\n</html>", "oops", &"x\n".repeat(200_000)] {
            assert!(read(text).is_err());
        }
    }
}
