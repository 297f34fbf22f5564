//! A body's bytes as text: byte order mark first, then the declared charset, else UTF-8.

use encoding_rs::{Encoding, UTF_8};

/// A body as text.
#[derive(Debug)]
pub struct Text {
    /// The text, without a byte order mark.
    pub text: String,
    /// The encoding's name where bytes did not fit it; U+FFFD stands in their place.
    pub damaged: Option<&'static str>,
}

/// Decodes a body. `content_type` is the header's value.
pub fn decode(body: Vec<u8>, content_type: Option<&str>) -> Text {
    let (encoding, skipped) = match Encoding::for_bom(&body) {
        Some(found) => found,
        None => (content_type.and_then(charset).unwrap_or(UTF_8), 0),
    };
    if encoding == UTF_8 && skipped == 0 {
        // The common case, without a copy.
        return match String::from_utf8(body) {
            Ok(text) => Text { text, damaged: None },
            Err(error) => decoded(UTF_8, error.as_bytes()),
        };
    }
    decoded(encoding, body.get(skipped..).unwrap_or_default())
}

fn decoded(encoding: &'static Encoding, bytes: &[u8]) -> Text {
    let (text, had_errors) = encoding.decode_without_bom_handling(bytes);
    Text { text: text.into_owned(), damaged: had_errors.then_some(encoding.name()) }
}

fn charset(content_type: &str) -> Option<&'static Encoding> {
    content_type.split(';').skip(1).find_map(|parameter| {
        let (name, value) = parameter.split_once('=')?;
        let label = value.trim().trim_matches('"');
        name.trim().eq_ignore_ascii_case("charset").then(|| Encoding::for_label(label.as_bytes()))?
    })
}

/// Whether an answer is a web page: a login form, a proxy's error, a maintenance notice.
pub fn is_html(text: &str, content_type: Option<&str>) -> bool {
    let kind = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("text/html")
        || kind.eq_ignore_ascii_case("application/xhtml+xml")
        || text.trim_start().starts_with('<')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_become_text_by_mark_charset_or_default() {
        let json = Some("application/json");
        let cases: &[(&[u8], Option<&str>, &str, bool)] = &[
            (b"\"\xc5\xbe\"", json, "\"ž\"", false),
            (b"\xef\xbb\xbf[1]", json, "[1]", false),
            (b"\xef\xbb\xbf\xc5\xbe", Some("text/json; charset=iso-8859-1"), "ž", false),
            (b"\xff\xfe[\x00]\x00", None, "[]", false),
            (b"\xe9", Some("application/json; Charset=\"ISO-8859-1\""), "é", false),
            (b"\x9e", Some("application/json;charset=windows-1250"), "ž", false),
            (b"\xc5\xbe", Some("application/json; charset=nonsense"), "ž", false),
            (b"a\xffb", json, "a\u{fffd}b", true),
            (b"", json, "", false),
        ];
        for (bytes, content_type, expected, damaged) in cases {
            let text = decode(bytes.to_vec(), *content_type);
            assert_eq!((text.text.as_str(), text.damaged.is_some()), (*expected, *damaged), "{bytes:?}");
        }
    }

    #[test]
    fn web_pages_are_told_by_type_or_beginning() {
        assert!(is_html("hello", Some("text/HTML; charset=utf-8")));
        assert!(is_html(" \n<!doctype html>", Some("application/json")));
        assert!(!is_html("{\"a\":\"<b>\"}", Some("application/json")));
        assert!(!is_html("", None));
    }
}
