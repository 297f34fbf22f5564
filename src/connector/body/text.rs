//! A body's bytes as text: byte order mark first, then the declared charset, then what an XML declaration
//! says (RFC 7303), else UTF-8.

use encoding_rs::{Encoding, UTF_8};

use crate::config::stream::RecordFormat;

/// A body as text.
#[derive(Debug)]
pub struct Text {
    /// The text, without a byte order mark.
    pub text: String,
    /// The encoding's name where bytes did not fit it; U+FFFD stands in their place.
    pub damaged: Option<&'static str>,
}

/// Decodes a body. `content_type` is the header's value.
pub fn decode(body: Vec<u8>, content_type: Option<&str>, format: RecordFormat) -> Text {
    let (encoding, skipped) = Encoding::for_bom(&body).unwrap_or_else(|| {
        let told = content_type.and_then(charset);
        let declared = || (format == RecordFormat::Xml).then(|| declared(&body)).flatten();
        (told.or_else(declared).unwrap_or(UTF_8), 0)
    });
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

/// The encoding that an XML declaration names.
fn declared(body: &[u8]) -> Option<&'static Encoding> {
    let head = body.strip_prefix(b"<?xml")?;
    let end = head.iter().take(200).position(|byte| *byte == b'>')?;
    let declaration = str::from_utf8(head.get(..end)?).ok()?;
    let (_, value) = declaration.split_once("encoding")?;
    let value = value.trim_start().strip_prefix('=')?.trim_start();
    let label = value.split(['"', '\'']).nth(1)?;
    // A declaration that can be read byte by byte is not UTF-16, whatever it says.
    Encoding::for_label(label.as_bytes()).map(Encoding::output_encoding)
}

/// Whether an answer is a web page: a login form, a proxy's error, a maintenance notice.
pub fn is_html(text: &str, content_type: Option<&str>, format: RecordFormat) -> bool {
    let kind = content_type.and_then(|value| value.split(';').next()).unwrap_or_default().trim();
    let text = text.trim_start();
    kind.eq_ignore_ascii_case("text/html")
        || kind.eq_ignore_ascii_case("application/xhtml+xml")
        || match format {
            RecordFormat::Xml => {
                let begins =
                    |with: &str| text.get(..with.len()).is_some_and(|head| head.eq_ignore_ascii_case(with));
                begins("<!doctype html") || begins("<html")
            }
            _ => text.starts_with('<'),
        }
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
            let text = decode(bytes.to_vec(), *content_type, RecordFormat::Json);
            assert_eq!((text.text.as_str(), text.damaged.is_some()), (*expected, *damaged), "{bytes:?}");
        }
    }

    #[test]
    fn web_pages_are_told_by_type_or_beginning() {
        let json = RecordFormat::Json;
        assert!(is_html("hello", Some("text/HTML; charset=utf-8"), json));
        assert!(is_html(" \n<!doctype html>", Some("application/json"), json));
        assert!(!is_html("{\"a\":\"<b>\"}", Some("application/json"), json));
        assert!(!is_html("", None, json));
        let xml = RecordFormat::Xml;
        assert!(is_html("<!DOCTYPE html><html>", None, xml) && is_html("\n<HTML>", None, xml));
        assert!(is_html("<a/>", Some("text/html"), xml));
        assert!(!is_html("<?xml version=\"1.0\"?><rss/>", Some("application/rss+xml"), xml));
    }

    #[test]
    fn xml_may_declare_its_own_encoding() {
        let read = |body: &[u8], content_type| decode(body.to_vec(), content_type, RecordFormat::Xml).text;
        let declared = b"<?xml version='1.0' encoding = 'ISO-8859-1' ?><a>\xe9</a>";
        assert!(read(declared, None).contains('\u{e9}'));
        assert!(read(declared, Some("application/xml; charset=windows-1250")).contains('\u{e9}'));
        assert!(
            read(b"<?xml version=\"1.0\" encoding=\"UTF-16\"?><a>\xc5\xbe</a>", None).contains('\u{17e}')
        );
        assert!(read(b"<?xml encoding=", None).ends_with('='));
    }
}
