//! What the fuzz targets run: bytes as a source could send them, and what must hold whatever they are.

use std::sync::LazyLock;

use jiff::tz::TimeZone;
use serde_json::{Value, value::RawValue};
use url::Url;

use super::{address::onward, link::next_of};
use crate::{
    config::template::{Expression, Scope, Template, template_value},
    domain::{
        backoff::{Backoff, Plea},
        content::content_hash,
        instant::Instant,
        json::parse,
        json_path::JsonPath,
        key::{KeyType, RecordKey},
        numbers::{Numbers, canonical},
        retry_after,
        version::{Version, VersionFormat},
    },
};

pub use super::reader::fuzzing::page;

/// The longest step of a local time that a zone's clock makes backwards, in microseconds.
const LONGEST_FOLD: i64 = 24 * 3_600_000_000;

/// A `Link` header names a part of itself, which leads to the same origin or nowhere.
pub fn link(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let Some(target) = next_of(text.split('\n')) else { return };
    assert!(text.contains(&target) && !target.contains('>'));
    let from: Url = "https://a.test/v1/rows?page=1".parse().unwrap();
    if let Ok(url) = onward(&from, &target) {
        assert_eq!(url.origin(), from.origin());
    }
}

/// A `Retry-After` is a wait that an instant and a backoff can bear, and gets shorter as time goes by.
pub fn retry_after(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let now = Instant::from_seconds(1_790_000_000);
    let later = Instant::from_seconds(1_790_000_060);
    let Some(wait) = retry_after::parse(&text, now) else { return };
    assert!(!wait.is_zero());
    assert!(now.plus(wait) > now);
    assert_eq!(Plea::Told(wait).wait(u32::MAX, Backoff::default(), 0.9), wait);
    assert!(retry_after::parse(&text, later).is_none_or(|left| left <= wait));
}

/// A version that is read can be written and read again: as itself, less what its format cannot spell.
pub fn version(data: &[u8]) {
    let [format, zone, text @ ..] = data else { return };
    let patterns = [
        "%d.%m.%Y %H:%M",
        "%m/%d/%Y %I:%M:%S %p",
        "%Y-%m-%dT%H:%M:%S%.6f%z",
        "%s",
        "%a %b %e %Y",
        "%Y%m%d%H",
    ];
    let formats: Vec<&str> = VersionFormat::NAMES.into_iter().chain(patterns).collect();
    let zones = [None, Some("UTC"), Some("Europe/Zagreb"), Some("America/St_Johns"), Some("Pacific/Apia")];
    let place = |byte: u8, of: usize| usize::from(byte.wrapping_sub(b'0')) % of;
    let format: VersionFormat = formats[place(*format, formats.len())].parse().unwrap();
    let zone = zones[place(*zone, zones.len())].map(|name| TimeZone::get(name).unwrap());
    let text = String::from_utf8_lossy(text);
    if let Ok(instant) = text.parse::<Instant>() {
        assert_eq!(instant.to_string().parse::<Instant>().unwrap(), instant);
    }
    let value = match parse(&text) {
        Ok(Value::Number(number)) => Value::Number(number),
        _ => Value::from(text),
    };
    let Ok(Some(version)) = format.read(&value, zone.as_ref()) else { return };
    drop(format.show(version));
    let written = format.write(version, zone.as_ref());
    if format.is_time() && !can_be_spelled(version) {
        return;
    }
    let again = format.read(&written, zone.as_ref().or(Some(&TimeZone::UTC)));
    let again = again.unwrap_or_else(|error| panic!("{format:?} {value} {written}: {error}")).unwrap();
    let slack = match format {
        VersionFormat::Date | VersionFormat::Pattern(_) => LONGEST_FOLD,
        _ => 0,
    };
    let lost = version.0 - again.0;
    assert!((0..format.precision() + slack).contains(&lost), "{format:?} {value} {written}: {lost}");
}

/// The years of four digits, less a day for zones.
fn can_be_spelled(version: Version) -> bool {
    let bound = |text: &str| text.parse::<Instant>().unwrap().micros();
    (bound("0001-01-02T00:00:00Z")..bound("9999-12-30T00:00:00Z")).contains(&version.0)
}

/// What connectors ask of values that may be anything.
const EXPRESSIONS: &[&str] = &[
    "record.a",
    "record.a.b[0].c",
    "record.a[record.b]",
    "record.a[1:record.b]",
    "-record.a",
    "not record.a",
    "record.a + record.b",
    "record.a - record.b",
    "record.a * record.b",
    "record.a / record.b",
    "record.a // record.b",
    "record.a % record.b",
    "record.a ** record.b",
    "record.a ~ record.b",
    "record.a < record.b",
    "record.a == record.b",
    "record.a in record.b",
    "record.a | sort",
    "record.a | unique",
    "record.a | min",
    "record.a | max",
    "record.a | sum",
    "record.a | length",
    "record.a | first",
    "record.a | last",
    "record.a | reverse",
    "record.a | list",
    "record.a | items",
    "record.a | dictsort",
    "record.a | dictsort(by='value')",
    "record.a | groupby('b')",
    "record.a | sort(attribute='b')",
    "record.a | map(attribute='b') | list",
    "record.a | join(record.b)",
    "record.a | selectattr('b') | list",
    "record.a | select('odd') | list",
    "record.a | int",
    "record.a | float",
    "record.a | abs",
    "record.a | round(record.b)",
    "record.a | string",
    "record.a | lower",
    "record.a | title",
    "record.a | trim(record.b)",
    "record.a | replace(record.b, record.a)",
    "record.a | split(record.b)",
    "record.a | lines",
    "record.a | default(record.b)",
    "record.a | attr(record.b)",
    "record.a | batch(record.b) | list",
    "record.a | slice(record.b) | list",
    "record.a | indent(record.b)",
    "record.a | format(record.b)",
    "record.a | tojson",
    "record.a | urlencode",
    "record.a | pprint",
    "record.a is divisibleby(record.b)",
    "record.a is startingwith(record.b)",
];

static RULES: LazyLock<Vec<Expression>> = LazyLock::new(|| {
    let rules = EXPRESSIONS.iter().map(|source| Expression::parse(source, Scope::Record { inputs: &[] }));
    rules.map(Result::unwrap).collect()
});

/// Templates that are no templates are refused; those that are can be filled in with any value.
pub fn template(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (source, json) = text.split_once('\n').unwrap_or((&text, "null"));
    let inputs = ["repo".to_owned()];
    let record = template_value(&parse(json).unwrap_or(Value::Null));
    let names = minijinja::Value::from_pairs([("record", record)]);
    for scope in [
        Scope::Request { inputs: &inputs },
        Scope::Record { inputs: &inputs },
        Scope::Answer { inputs: &inputs },
    ] {
        drop(Expression::parse(source, scope).map(|rule| (rule.holds(&names), rule.value(&names))));
        // A template with statements may loop for as long as its author likes.
        if let Ok(template) = Template::parse(source, scope)
            && !source.contains("{%")
        {
            drop(template.render(&names));
        }
    }
    for rule in RULES.iter() {
        drop((rule.holds(&names), rule.value(&names)));
    }
}

/// Paths find the same in a text as in its value, and equal values have equal hashes and keys.
pub fn json(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (path, text) = text.split_once('\n').unwrap_or(("$", &text));
    let path: Option<JsonPath> = path.parse().ok();
    if let Some(path) = &path {
        assert_eq!(path.to_string().parse::<JsonPath>().unwrap(), *path);
    }
    let Ok(raw) = serde_json::from_str::<&RawValue>(text) else { return };
    if let Some(path) = &path {
        assert!(path.find_parent(raw).is_ok() || path.find(raw).is_err());
    }
    assert!(serde_json::from_str::<&RawValue>(&Numbers::Safe.spelled(raw)).is_ok());
    let Ok(value) = parse(text) else { return };
    if let Some(path) = &path
        && !text.contains("$serde_json")
    {
        let found = path.find(raw).unwrap().map(|raw| parse(raw.get()).unwrap());
        assert_eq!(found.as_ref(), path.find_in(&value));
    }
    for ignored in [&[][..], path.as_slice()] {
        let hash = content_hash(&value, ignored);
        assert_eq!(hash, content_hash(&parse(&turned(&value)).unwrap(), ignored));
    }
    for key_type in [KeyType::Loose, KeyType::Strict] {
        let key = |value| RecordKey::from_parts([("a", Some(value))], key_type);
        let Ok(found) = key(&value) else { continue };
        assert!((1..=1_024).contains(&found.as_str().len()) && !found.as_str().contains('\0'));
        assert_eq!(key(&parse(&turned(&value)).unwrap()), Ok(found));
    }
}

/// The same value with its members in the opposite order and its numbers in another spelling.
fn turned(value: &Value) -> String {
    match value {
        Value::Number(number) => {
            let text = canonical(&number.to_string());
            assert_eq!(canonical(&text), text);
            text
        }
        Value::Array(elements) => {
            let elements: Vec<String> = elements.iter().map(turned).collect();
            format!("[ {} ]", elements.join(" , "))
        }
        Value::Object(members) => {
            let members = members.iter().rev();
            let members: Vec<String> = members
                .map(|(name, member)| format!("{}: {}", Value::from(name.as_str()), turned(member)))
                .collect();
            format!("{{ {} }}", members.join(" , "))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Target = fn(&[u8]);

    #[test]
    fn the_corpus_of_the_fuzz_targets_holds() {
        let targets: [(&str, Target); 6] = [
            ("json", json),
            ("link", link),
            ("page", page),
            ("retry_after", retry_after),
            ("template", template),
            ("version", version),
        ];
        for (name, target) in targets {
            let folder = std::path::Path::new("fuzz/corpus").join(name);
            let files: Vec<_> =
                std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
            assert!(!files.is_empty(), "{name}");
            for file in files {
                target(&std::fs::read(file).unwrap());
            }
        }
    }
}
