//! Rate limits as a connector, a stream, an account or a destination writes them, and the waits that answers tell
//! of.

use std::sync::Arc;

use super::{
    account::RateLimit,
    connector_file::{InputFile, RateLimitFile, WaitFile},
    de::{Entries, Spanned},
    destination_file::RateFile,
    error::{Problem, Problems},
    stream::WaitRule,
    template::Scope,
    values::{expression, pattern, place, positive_duration},
};
use crate::domain::rate::Rate;

/// A quota, checked. What it does not say about answers is taken from `below`.
pub(super) fn build(
    file: &RateLimitFile,
    below: Option<&RateLimit>,
    inputs: &Entries<Spanned<InputFile>>,
    problems: &Problems,
) -> Option<RateLimit> {
    let before = problems.count();
    let per = positive_duration(&file.per, "per", problems);
    let remaining = file.remaining.as_ref().and_then(|text| place(text, problems));
    let reset = file.reset.as_ref().and_then(|reset| wait_from(reset, problems));
    if let Some(reset) = &file.reset
        && file.remaining.is_none()
        && below.is_none_or(|below| below.remaining.is_none())
    {
        let problem = Problem::new(reset.span, "`reset` does nothing without `remaining`");
        problems.add(
            problem.help("say where an answer tells how many requests are left: `remaining: header:Name`"),
        );
    }
    let inputs: Vec<String> = inputs.names().map(str::to_owned).collect();
    let scope = Scope::Answer { inputs: &inputs };
    let pause = file.pause.as_ref().and_then(|text| expression(text, scope, problems));
    if problems.count() > before {
        return None;
    }
    Some(RateLimit {
        requests: file.requests,
        per: per?,
        remaining: remaining.or_else(|| below?.remaining.clone()),
        reset: reset.map(Arc::new).or_else(|| below?.reset.clone()),
        pause: pause.map(Arc::new).or_else(|| below?.pause.clone()),
    })
}

/// How many requests a destination may be sent.
pub(super) fn rate(file: &RateFile, problems: &Problems) -> Option<Rate> {
    Some(Rate { requests: file.requests, per: positive_duration(&file.per, "per", problems)? })
}

/// Where an answer says how long to wait.
pub(super) fn wait_from(file: &WaitFile, problems: &Problems) -> Option<WaitRule> {
    let pattern = match &file.pattern {
        Some(text) => {
            let regex = pattern(text, problems)?;
            if regex.captures_len() < 2 {
                let problem = Problem::new(text.span, "the pattern has no group to take the number from");
                problems.add(problem.help("put parentheses around the number: `after ([0-9]+) seconds`"));
            }
            Some(regex)
        }
        None => None,
    };
    Some(WaitRule::From { place: place(&file.from, problems)?, unit: file.unit.unwrap_or_default(), pattern })
}
