//! What a person typed, as a plan for this job.

use std::{collections::BTreeSet, io::Read, path::Path};

use serde_json::Value;

use super::Replay;
use crate::{
    cli::bad_input,
    config::job::Job,
    domain::{task::Plan, version::Version},
};

impl Replay {
    /// The plan, or why this job cannot be replayed like that.
    pub(super) fn plan(&self, job: &Job) -> anyhow::Result<Plan> {
        if job.stream.sync.is_some() {
            return Err(bad_input(format!(
                "`{}` cannot be replayed: its source tells of changes by a token (`incremental.state`), which cannot be \
                 asked for what came before",
                job.name
            )));
        }
        let from = version("--from", self.from.as_deref(), job)?;
        let to = version("--to", self.to.as_deref(), job)?;
        if from.zip(to).is_some_and(|(from, to)| from >= to) {
            return Err(bad_input(
                "the window is empty: `--from` must be before `--to`, which does not belong to it",
            ));
        }
        let mut keys = self.keys.clone();
        if let Some(path) = &self.keys_from {
            keys.extend(lines(path)?);
        }
        if self.keys_from.is_some() && keys.is_empty() {
            return Err(bad_input("the file of `--keys-from` names no key"));
        }
        let keys: BTreeSet<String> = keys.iter().map(|key| typed_key(key, job)).collect::<Result<_, _>>()?;
        let (keys, resend) = (keys.into_iter().collect(), self.emit.into());
        Ok(Plan { from, to, keys, resend, rate: self.rate })
    }
}

fn version(option: &str, text: Option<&str>, job: &Job) -> anyhow::Result<Option<Version>> {
    let Some(text) = text else { return Ok(None) };
    let Some(incremental) = &job.stream.incremental else {
        return Err(bad_input(format!(
            "`{option}` means nothing for `{}`: its records have no versions (`incremental`), so that a replay reads all of \
             them; `--key` keeps it to some",
            job.name
        )));
    };
    let version = incremental.format.typed(text, incremental.timezone.as_ref());
    let like = incremental.format.typed_like();
    version.map(Some).ok_or_else(|| {
        bad_input(format!("`{option} {text}` is no version of `{}`, which are written like {like}", job.name))
    })
}

/// The lines of a file that hold something.
fn lines(path: &Path) -> anyhow::Result<Vec<String>> {
    let text = if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map(|_| text)
    } else {
        std::fs::read_to_string(path)
    };
    let text =
        text.map_err(|error| bad_input(format!("cannot read keys from {}: {error}", path.display())))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}

/// A key in its canonical text.
fn typed_key(text: &str, job: &Job) -> anyhow::Result<String> {
    let text = text.trim();
    let parts = &job.stream.primary_key;
    if parts.len() < 2 {
        return if text.is_empty() { Err(bad_input("a key is empty")) } else { Ok(text.to_owned()) };
    }
    let typed = match serde_json::from_str(text) {
        Ok(Value::Array(typed)) if typed.len() == parts.len() => typed,
        _ => {
            let names: Vec<String> = parts.iter().map(ToString::to_string).collect();
            return Err(bad_input(format!(
                "`{text}` is no key of `{}`: its keys have {} parts ({}) and are written like [\"7\",\"en\"]",
                job.name,
                parts.len(),
                names.join(", ")
            )));
        }
    };
    let texts = typed.into_iter().map(|part| match part {
        Value::String(text) => text,
        other => other.to_string(),
    });
    Ok(Value::from(texts.collect::<Vec<_>>()).to_string())
}
