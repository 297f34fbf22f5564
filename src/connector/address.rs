//! Where a request goes: URLs put together so that no value can leave its place. A value in a path stays
//! one segment, the host is the connector's alone, and a next URL or a redirect stays on its origin.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use url::Url;

/// Everything but RFC 3986's unreserved characters.
const VALUE: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// What may stand in a path's text as it is: RFC 3986's `pchar`, the slash, and escapes.
const PATH: &AsciiSet = &VALUE
    .remove(b'/')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@')
    .remove(b'%');

/// Why an address cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    /// The root is no address of a server.
    #[error("the base URL {0}")]
    Root(&'static str),
    /// The path is not what it seems.
    #[error("the path `{path}` {reason}")]
    Path {
        /// The path.
        path: String,
        /// What is wrong.
        reason: &'static str,
    },
    /// A query parameter cannot be written.
    #[error("the query parameter `{name}` is neither a scalar nor a list of scalars")]
    Query {
        /// Its name.
        name: String,
    },
    /// A next URL or a redirect leads away.
    #[error("{0}")]
    Away(String),
}

/// A value as one segment of a path, or as one value of a query.
pub fn encoded(value: &str) -> Cow<'_, str> {
    utf8_percent_encode(value, VALUE).into()
}

/// The address of `path` below `root`. The path may bring a query of its own.
pub fn below(root: &str, path: &str) -> Result<Url, AddressError> {
    let mut url = Url::parse(root.trim()).map_err(|_| AddressError::Root("is not a URL"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(AddressError::Root("is neither http:// nor https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(AddressError::Root("holds a user name or password, which belong under `auth`"));
    }
    if url.query().is_some() || url.fragment().is_some() {
        return Err(AddressError::Root("holds a `?` or `#`"));
    }
    let refuse = |reason| AddressError::Path { path: path.chars().take(120).collect(), reason };
    if path.contains(['#', '\\']) || path.contains(char::is_control) {
        return Err(refuse("holds a `#`, a `\\` or a control character"));
    }
    let (path, query) = path.split_once('?').map_or((path, None), |(path, query)| (path, Some(query)));
    let behind = path.strip_prefix('/').unwrap_or(path);
    let mut segments = behind.split('/').peekable();
    while let Some(segment) = segments.next() {
        if segment.is_empty() && segments.peek().is_some() {
            return Err(refuse("has an empty segment: one of its values is missing"));
        }
        if matches!(segment.to_ascii_lowercase().replace("%2e", ".").as_str(), "." | "..") {
            return Err(refuse("has a segment of dots, which would lead to another path"));
        }
    }
    if !behind.is_empty() {
        let joined = format!("{}/{}", url.path().trim_end_matches('/'), path_text(behind));
        url.set_path(&joined);
        if url.path() != joined {
            return Err(refuse("does not stay as it is written"));
        }
    }
    url.set_query(query.filter(|query| !query.is_empty()));
    Ok(url)
}

/// A path with what may not stand in it escaped; a `%` that starts no escape is one of those.
fn path_text(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut parts = path.split('%');
    text.extend(utf8_percent_encode(parts.next().unwrap_or_default(), PATH));
    for part in parts {
        let is_escape = part.len() >= 2 && part.bytes().take(2).all(|byte| byte.is_ascii_hexdigit());
        text.push_str(if is_escape { "%" } else { "%25" });
        text.extend(utf8_percent_encode(part, PATH));
    }
    text
}

/// Adds a query parameter: null is left out, a list repeats the name, numbers keep their digits.
pub fn add_query(url: &mut Url, name: &str, value: &Value) -> Result<(), AddressError> {
    let texts = texts_of(value).ok_or_else(|| AddressError::Query { name: name.to_owned() })?;
    for text in texts {
        // Not form encoding: `%20` is understood everywhere, `+` is not.
        let pair = format!("{}={}", encoded(name), encoded(&text));
        let query = match url.query() {
            Some(before) if !before.is_empty() => format!("{before}&{pair}"),
            _ => pair,
        };
        url.set_query(Some(&query));
    }
    Ok(())
}

/// The texts of a scalar or of a list of scalars; `None` for anything else.
pub fn texts_of(value: &Value) -> Option<Vec<String>> {
    match value {
        Value::Null => Some(Vec::new()),
        Value::Bool(flag) => Some(vec![flag.to_string()]),
        Value::Number(number) => Some(vec![number.to_string()]),
        Value::String(text) => Some(vec![text.clone()]),
        Value::Array(elements) => {
            let lists = elements.iter().map(|element| match element {
                Value::Array(_) => None,
                scalar => texts_of(scalar),
            });
            Some(lists.collect::<Option<Vec<_>>>()?.concat())
        }
        Value::Object(_) => None,
    }
}

/// The address that `reference` names, seen from `from`: on the same origin, or on the same host from http
/// to https. Everything else would take the credential elsewhere (field case C34).
pub fn onward(from: &Url, reference: &str) -> Result<Url, AddressError> {
    let shown = |url: &Url| url.origin().ascii_serialization();
    let mut to = from
        .join(reference.trim())
        .map_err(|error| AddressError::Away(format!("leads to something that is no URL ({error})")))?;
    if !to.username().is_empty() || to.password().is_some() {
        return Err(AddressError::Away("leads to a URL with a user name or password in it".to_owned()));
    }
    to.set_fragment(None);
    if to.origin() == from.origin() && matches!(to.scheme(), "http" | "https") {
        return Ok(to);
    }
    let same_host = to.host() == from.host();
    match (from.scheme(), to.scheme()) {
        ("http", "https") if same_host && (to.port().is_none() || to.port() == from.port()) => Ok(to),
        ("https", "http") if same_host => Err(AddressError::Away(format!(
            "leads from https to http ({}), where the credential would be readable",
            shown(&to)
        ))),
        _ => Err(AddressError::Away(format!(
            "leads from {} to {}, where the credential must not go",
            shown(from),
            shown(&to)
        ))),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_path_stays_below_its_root() {
        let root = "https://api.test/v1/";
        let cases = [
            ("", "https://api.test/v1/"),
            ("/items", "https://api.test/v1/items"),
            ("items/", "https://api.test/v1/items/"),
            ("/a b/ž", "https://api.test/v1/a%20b/%C5%BE"),
            ("/a%2Fb/100%/%zz", "https://api.test/v1/a%2Fb/100%25/%25zz"),
            ("/items?kind=a b&x=1", "https://api.test/v1/items?kind=a%20b&x=1"),
            ("/users/me@x;v=1:go", "https://api.test/v1/users/me@x;v=1:go"),
            ("/a...b/..c", "https://api.test/v1/a...b/..c"),
        ];
        for (path, expected) in cases {
            assert_eq!(below(root, path).unwrap().as_str(), expected, "{path}");
        }
        assert_eq!(below("http://api.test", "x").unwrap().as_str(), "http://api.test/x");
        let refused = [
            "//evil.test/x",
            "https://evil.test/x",
            "/a//b",
            "/a/../b",
            "/..",
            "/%2e%2E/b",
            "/./a",
            "/a\\b",
            "/a#b",
            "/a\nb",
        ];
        for path in refused {
            assert!(matches!(below(root, path), Err(AddressError::Path { .. })), "{path}");
        }
        let roots =
            ["", "api.test", "ftp://api.test", "https://u:p@api.test", "https://a.test/?x=1", "file:///etc"];
        for root in roots {
            assert!(matches!(below(root, "/x"), Err(AddressError::Root(_))), "{root}");
        }
    }

    #[test]
    fn a_query_keeps_its_values_and_repeats_its_lists() {
        let cases = [
            (json!(null), ""),
            (json!([]), ""),
            (json!("a b&c=d+e"), "x%5By%5D=a%20b%26c%3Dd%2Be"),
            (json!(["a", null, 1, true]), "x%5By%5D=a&x%5By%5D=1&x%5By%5D=true"),
            (json!(false), "x%5By%5D=false"),
            (json!("ž"), "x%5By%5D=%C5%BE"),
            (serde_json::from_str("9007199254740993").unwrap(), "x%5By%5D=9007199254740993"),
            (serde_json::from_str("1.10").unwrap(), "x%5By%5D=1.10"),
        ];
        for (value, expected) in cases {
            let mut url = Url::parse("https://api.test/?a=1").unwrap();
            add_query(&mut url, "x[y]", &value).unwrap();
            let expected = if expected.is_empty() { "a=1".to_owned() } else { format!("a=1&{expected}") };
            assert_eq!(url.query(), Some(expected.as_str()), "{value}");
        }
        let mut url = Url::parse("https://api.test/").unwrap();
        for value in [json!({"a": 1}), json!([[1]]), json!([{}])] {
            assert!(add_query(&mut url, "x", &value).is_err(), "{value}");
        }
    }

    #[test]
    fn c34_nothing_leads_to_another_origin() {
        let cases = [
            ("http://api.test/a", "/b?c=d", Some("http://api.test/b?c=d")),
            ("http://api.test/a/b", "c#d", Some("http://api.test/a/c")),
            ("http://api.test/a", "?page=2", Some("http://api.test/a?page=2")),
            ("http://api.test/a", "http://api.test:80/b", Some("http://api.test/b")),
            ("http://api.test/a", "https://API.test/a", Some("https://api.test/a")),
            ("http://api.test:8080/a", "https://api.test:8080/a", Some("https://api.test:8080/a")),
            ("http://api.test:8080/a", "https://api.test/a", Some("https://api.test/a")),
            ("http://api.test/a", "https://api.test:8443/a", None),
            ("http://api.test/a", "http://api.test:81/a", None),
            ("http://api.test/a", "//evil.test/a", None),
            ("http://api.test/a", "http://api.test.evil.test/a", None),
            ("http://api.test/a", "http://api.test@evil.test/a", None),
            ("http://api.test/a", "http://u:p@api.test/a", None),
            ("https://api.test/a", "http://api.test/a", None),
            ("https://api.test/a", "https://evil.test/a", None),
            ("http://api.test/a", "file:///etc/passwd", None),
            ("http://api.test/a", "http://[", None),
            ("http://api.test/a", "javascript:alert(1)", None),
        ];
        for (from, to, expected) in cases {
            let found = onward(&Url::parse(from).unwrap(), to).ok();
            assert_eq!(found.as_ref().map(Url::as_str), expected, "{from} → {to}");
        }
    }

    proptest! {
        #[test]
        fn no_value_leaves_its_segment(value in "\\PC*|[./\\\\%2eE:@?#]{0,8}") {
            if let Ok(url) = below("https://api.test/v1", &format!("/a/{}/b", encoded(&value))) {
                prop_assert_eq!(url.origin().ascii_serialization(), "https://api.test");
                let segments: Vec<_> = url.path().split('/').collect();
                prop_assert_eq!(segments.len(), 5, "{}", url);
                prop_assert_eq!((segments[1], segments[2], segments[4]), ("v1", "a", "b"));
            }
        }

        #[test]
        fn no_path_leaves_its_host(path in any::<String>()) {
            if let Ok(url) = below("https://api.test/v1", &path) {
                prop_assert_eq!(url.origin().ascii_serialization(), "https://api.test");
                prop_assert!(url.path().starts_with("/v1"));
            }
        }

        #[test]
        fn no_reference_leaves_its_origin(reference in any::<String>()) {
            if let Ok(url) = onward(&Url::parse("https://api.test/v1").unwrap(), &reference) {
                prop_assert_eq!(url.origin().ascii_serialization(), "https://api.test");
            }
        }
    }
}
