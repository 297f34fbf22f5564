//! What a job's stored state rests on: what its keys, versions and hashes mean, and of which records. Under another
//! identity that state says nothing of what is read, and a person has to say what is to become of it.
//!
//! It is a hash for each named part, since values may hold secrets. It holds over releases.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::content::content_hash;

/// Grows where the same configuration comes to have other parts or hashes: what is stored in another form is not
/// compared.
const FORM: u32 = 1;

/// The parts that a job's state rests on, each with the hash of its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    form: u32,
    parts: BTreeMap<String, String>,
}

/// What is to become of what is stored of a job that was edited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It is forgotten; what stands is recorded silently, and what is newer is sent.
    Baseline,
    /// It is forgotten, and everything that is read is sent.
    Emit,
    /// It stays: the edit changes nothing of what it means.
    Keep,
}

impl Answer {
    /// What a person types.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Emit => "emit",
            Self::Keep => "keep",
        }
    }
}

impl Identity {
    /// The identity of these parts. A part that is null is none: what is not set and what nobody can set are the same.
    pub fn of(parts: impl IntoIterator<Item = (String, Value)>) -> Self {
        let parts = parts.into_iter().filter(|(_, value)| !value.is_null());
        Self {
            form: FORM,
            parts: parts.map(|(name, value)| (name, content_hash(&value, &[]).hex())).collect(),
        }
    }

    /// An identity as the store holds it; `None` where another release wrote it in another form.
    pub fn from_stored(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok().filter(|stored: &Self| stored.form == FORM)
    }

    /// The names of the parts that differ from those of `stored`: none where it is the same.
    pub fn edited_since(&self, stored: &Self) -> Vec<String> {
        let names =
            self.parts.keys().chain(stored.parts.keys().filter(|name| !self.parts.contains_key(*name)));
        let mut edited: Vec<String> =
            names.filter(|name| self.parts.get(*name) != stored.parts.get(*name)).cloned().collect();
        edited.sort_unstable();
        edited
    }
}

/// What a job asks that was edited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    job: String,
    /// The parts that were edited, by name.
    pub edited: Vec<String>,
}

impl Question {
    /// The question about these parts; `None` where there are none.
    pub fn about(job: &str, edited: Vec<String>) -> Option<Self> {
        (!edited.is_empty()).then(|| Self { job: job.to_owned(), edited })
    }

    /// The parts as a sentence lists them.
    pub fn parts(&self) -> String {
        self.edited.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ")
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (job, parts) = (&self.job, self.parts());
        write!(
            f,
            "the job was edited ({parts}), so that what is stored of it may mean something else now, and nothing is read \
             until you say what becomes of it: `onlynew accept {job} baseline` forgets it, records what stands silently and \
             sends what is newer; `onlynew accept {job} emit` forgets it and sends everything that is read; `onlynew accept \
             {job} keep` goes on with it, where its keys and versions mean the same as before. Or take the edit back"
        )
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn identity(parts: &Value) -> Identity {
        Identity::of(parts.as_object().unwrap().clone())
    }

    #[test]
    fn an_edit_is_told_by_the_names_of_its_parts() {
        // stored, now, edited
        let cases = [
            (json!({}), json!({}), vec![]),
            (json!({"primary_key": ["id"]}), json!({"primary_key": ["id"]}), vec![]),
            (json!({"primary_key": ["id"]}), json!({"primary_key": ["uuid"]}), vec!["primary_key"]),
            (json!({"a": "1", "b": "2"}), json!({"b": "2", "a": "1"}), vec![]),
            (json!({"a": 10}), json!({"a": 10.0}), vec![]),
            (json!({"a": 10}), json!({"a": "10"}), vec!["a"]),
            (json!({"a": {"x": 1, "y": 2}}), json!({"a": {"y": 2, "x": 1}}), vec![]),
            (json!({"a": ["x", "y"]}), json!({"a": ["y", "x"]}), vec!["a"]),
            (json!({"with.repo": "shop"}), json!({}), vec!["with.repo"]),
            (json!({}), json!({"with.repo": "shop"}), vec!["with.repo"]),
            (json!({}), json!({"with.repo": null}), vec![]),
            (json!({"with.repo": ""}), json!({"with.repo": null}), vec!["with.repo"]),
            (
                json!({"b": 1, "d": 1, "same": 1}),
                json!({"a": 1, "b": 2, "c": 1, "same": 1}),
                vec!["a", "b", "c", "d"],
            ),
        ];
        for (stored, now, edited) in cases {
            assert_eq!(identity(&now).edited_since(&identity(&stored)), edited, "{stored} {now}");
        }
    }

    #[test]
    fn a_stored_identity_shows_no_value_and_means_the_same_in_every_release() {
        let stored =
            serde_json::to_string(&identity(&json!({"with.token": "s3cr3t", "key_type": "loose"}))).unwrap();
        assert_eq!(
            stored,
            r#"{"form":1,"parts":{"key_type":"c390ea3661b88aa468c919b9685a446c","with.token":"c2ee06b65d73d1f0b2c2ff548f7bff26"}}"#
        );
        assert_eq!(
            Identity::from_stored(&stored),
            Some(identity(&json!({"with.token": "s3cr3t", "key_type": "loose"})))
        );
    }

    #[test]
    fn what_is_stored_in_another_form_is_not_compared() {
        for stored in ["", "null", "{}", r#"{"form":2,"parts":{}}"#, r#"{"form":1,"parts":[]}"#] {
            assert_eq!(Identity::from_stored(stored), None, "{stored}");
        }
        assert_eq!(Identity::from_stored(r#"{"form":1,"parts":{}}"#), Some(identity(&json!({}))));
    }
}
