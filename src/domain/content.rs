//! What a record says, as hashes: a fingerprint of its bytes, to pass over what is known without reading
//! it, and a content hash of its canonical JSON, to tell a change from a new spelling (field case C04).

use std::fmt;

use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{json_path::JsonPath, numbers};

/// The first 16 bytes of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash(pub [u8; 16]);

impl Hash {
    /// The hash of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self::finish(Sha256::new_with_prefix(bytes))
    }

    /// A hash as the store holds it; `None` where it is not 16 bytes long.
    pub fn from_stored(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }

    /// The hash in lower-case hexadecimal, 32 characters.
    pub fn hex(self) -> String {
        format!("{:032x}", u128::from_be_bytes(self.0))
    }

    fn finish(digest: Sha256) -> Self {
        let mut first = [0; 16];
        for (to, from) in first.iter_mut().zip(digest.finalize()) {
            *to = from;
        }
        Self(first)
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.hex())
    }
}

/// The hash of a record's canonical JSON less the `ignored` places: members sorted by name, equal numbers
/// equal (10.0 is 10), the order of arrays kept.
pub fn content_hash(record: &Value, ignored: &[JsonPath]) -> Hash {
    let mut digest = Sha256::new();
    if ignored.is_empty() {
        feed(record, &mut digest);
    } else {
        let mut rest = record.clone();
        for path in ignored {
            path.remove_from(&mut rest);
        }
        feed(&rest, &mut digest);
    }
    Hash::finish(digest)
}

fn feed(value: &Value, digest: &mut Sha256) {
    match value {
        Value::Null => digest.update(b"n"),
        Value::Bool(true) => digest.update(b"t"),
        Value::Bool(false) => digest.update(b"f"),
        Value::Number(number) => feed_text(b'#', &numbers::canonical(&number.to_string()), digest),
        Value::String(text) => feed_text(b'"', text, digest),
        Value::Array(elements) => {
            digest.update(b"[");
            for element in elements {
                feed(element, digest);
            }
            digest.update(b"]");
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            digest.update(b"{");
            for (name, member) in sorted {
                feed_text(b'"', name, digest);
                feed(member, digest);
            }
            digest.update(b"}");
        }
    }
}

/// A text with its length in front, so that no two sequences of texts feed the same bytes.
fn feed_text(kind: u8, text: &str, digest: &mut Sha256) {
    digest.update([kind]);
    digest.update((text.len() as u64).to_be_bytes());
    digest.update(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hash(json: &str, ignored: &[&str]) -> Hash {
        let ignored: Vec<JsonPath> = ignored.iter().map(|path| path.parse().unwrap()).collect();
        content_hash(&serde_json::from_str(json).unwrap(), &ignored)
    }

    #[test]
    fn c04_spelling_is_not_content() {
        let first = r#"{"id":7,"price":10.0,"tags":["a","b"],"img":"x?sig=1","views":5}"#;
        let again = r#"{"views":6,"img":"x?sig=2","tags":["a","b"],"price":10,"id":7}"#;
        assert_eq!(hash(first, &["img", "views"]), hash(again, &["img", "views"]));
        assert_ne!(hash(first, &[]), hash(again, &[]));
        assert_ne!(hash(r#"["a","b"]"#, &[]), hash(r#"["b","a"]"#, &[]));
    }

    #[test]
    fn different_values_have_different_hashes() {
        let values = [
            "1",
            "\"1\"",
            "null",
            "[]",
            "{}",
            "[1]",
            "[[1]]",
            "\"\"",
            "true",
            r#"{"a":1}"#,
            r#"["ab"]"#,
            r#"["a","b"]"#,
        ];
        let hashes: std::collections::HashSet<_> = values.iter().map(|json| hash(json, &[])).collect();
        assert_eq!(hashes.len(), values.len());
    }
}
