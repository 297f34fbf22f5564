//! `gate`: the scopes that side effects are asked for in, and what holds for their keys.

use std::{collections::BTreeMap, ops::RangeInclusive, time::Duration};

use super::{
    de::Spanned,
    error::{Problem, Problems},
    retention::lifetime,
    server_file::{GateFile, ScopeFile},
    values::{check_name, duration, size},
};
use crate::domain::{gate::ScopeRules, units::format_duration};

const LEASES: RangeInclusive<Duration> = Duration::from_secs(1)..=Duration::from_hours(7 * 24);

/// What is kept goes out with every answer.
const MOST_RESULT: u64 = 1_000_000;

/// The rules of scopes by name; `None` where something in them is wrong.
pub(super) fn scopes(file: &Spanned<GateFile>, problems: &Problems) -> Option<BTreeMap<String, ScopeRules>> {
    let before = problems.count();
    if file.scopes.0.is_empty() && file.scopes.whole {
        let problem = Problem::new(file.scopes.span, "there are no scopes, so nothing can be asked for");
        problems.add(problem.expected("a name for each kind of side effect, such as `charge: {lease: 15m}`"));
    }
    let mut scopes = BTreeMap::new();
    for (name, scope) in &file.scopes.0 {
        check_name(name, problems);
        if let Some(rules) = rules(scope, problems) {
            scopes.insert(name.value.clone(), rules);
        }
    }
    (problems.count() == before).then_some(scopes)
}

fn rules(file: &Spanned<ScopeFile>, problems: &Problems) -> Option<ScopeRules> {
    let before = problems.count();
    let default = ScopeRules::default();
    let lease = match &file.lease {
        Some(text) => duration(text, problems).filter(|lease| {
            let fits = LEASES.contains(lease);
            if !fits {
                let problem = Problem::new(text.span, format!("`lease` cannot be {}", text.quoted()));
                problems.add(problem.expected("a duration from `1s` to `7d`"));
            }
            fits
        }),
        None => Some(default.lease),
    };
    let retention = file.retention.as_ref().map_or(default.retention, |text| lifetime(text, problems));
    if let (Some(lease), Some(retention), Some(text)) = (lease, retention, &file.retention)
        && retention < lease
    {
        let problem = Problem::new(text.span, format!("`retention` cannot be {}", text.quoted()));
        problems.add(
            problem.expected(format!(
                "`{}` or longer, which is the `lease`, or `never`",
                format_duration(lease)
            )),
        );
    }
    let max_result = match &file.max_result {
        Some(text) => size(text, problems).filter(|size| {
            let fits = *size <= MOST_RESULT;
            if !fits {
                let problem = Problem::new(text.span, format!("`max_result` cannot be {}", text.quoted()));
                problems.add(problem.expected("a size of at most `1MB`"));
            }
            fits
        }),
        None => Some(default.max_result),
    };
    if problems.count() > before {
        return None;
    }
    Some(ScopeRules {
        lease: lease?,
        retention,
        after_done: file.after_done.unwrap_or(default.after_done),
        after_failure: file.after_failure.unwrap_or(default.after_failure),
        max_result: max_result?,
    })
}
