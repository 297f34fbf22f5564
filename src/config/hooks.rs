//! `hooks`: checked, so that what a hook cannot do is said before it listens.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use ipnet::IpNet;
use secrecy::SecretString;

use super::{
    de::{Entries, Spanned},
    destinations::Destinations,
    error::{Problem, Problems},
    hook::{Hook, KeyRule},
    hook_file::{HookFile, SchemeName, TimeFieldFile, VerifyFile},
    rate_limit::rate,
    retention::lifetime,
    signing::signing_keys,
    template::{Scope, Whole},
    text::{Literal, TextOr, spanned},
    values::{
        check_name, is_token, network, path, positive_duration, secret, size, template_problem, unusable,
    },
};
use crate::domain::{
    hook::KeyField,
    webhook::{Algorithm, Encoding, HmacScheme, Scheme},
};

const TOLERANCE: Duration = Duration::from_mins(5);
const MAX_BODY: u64 = 1_000_000;
/// What n8n takes at most.
const LARGEST_BODY: u64 = 16_000_000;
const ROUND: Duration = Duration::from_secs(1);

/// What the server itself answers at.
const OWN_PATHS: [&str; 5] = ["/v1", "/healthz", "/readyz", "/metrics", "/openapi.json"];

/// The hooks by name; `None` where something in them is wrong.
pub(super) fn hooks(
    files: &Entries<Spanned<HookFile>>,
    destinations: &mut Destinations,
    problems: &Problems,
) -> Option<BTreeMap<String, Arc<Hook>>> {
    let before = problems.count();
    let mut hooks: BTreeMap<String, Arc<Hook>> = BTreeMap::new();
    for (name, file) in &files.0 {
        check_name(name, problems);
        let Some(hook) = hook(name, file, destinations, problems) else { continue };
        if let Some(other) = hooks.values().find(|other| other.path == hook.path) {
            let message = format!("the hook `{}` is posted to `{}`, too", other.name, hook.path);
            problems.add(Problem::new(file.path.span, message).help("give each hook a path of its own"));
        }
        hooks.insert(name.value.clone(), Arc::new(hook));
    }
    (problems.count() == before).then_some(hooks)
}

fn hook(
    name: &Spanned<String>,
    file: &Spanned<HookFile>,
    destinations: &mut Destinations,
    problems: &Problems,
) -> Option<Hook> {
    let before = problems.count();
    let path = hook_path(&file.path, problems);
    let scheme = scheme(&file.verify, problems);
    let tolerance = match &file.verify.tolerance {
        Some(text) => positive_duration(text, "tolerance", problems),
        None => Some(TOLERANCE),
    };
    let key = key_rule(name, file, problems);
    let destination = destinations.find(&file.destination, false, problems);
    let duplicate_status = match &file.duplicate_status {
        Some(given) if ![200, 202].contains(&given.value) => {
            let problem = Problem::new(given.span, format!("`duplicate_status` cannot be {}", given.value));
            problems.add(problem.expected("`200` or `202`: any other has the provider send it again"));
            None
        }
        given => Some(given.as_ref().map_or(200, |given| given.value)),
    };
    let max_body = match &file.max_body {
        Some(text) => size(text, problems).filter(|size| {
            let fits = (1..=LARGEST_BODY).contains(size);
            if !fits {
                let problem = Problem::new(text.span, format!("`max_body` cannot be {}", text.quoted()));
                problems
                    .add(problem.expected("a size from `1B` to `16MB`").help("n8n refuses larger bodies"));
            }
            fits
        }),
        None => Some(MAX_BODY),
    };
    let content_types =
        texts(file.content_types.as_ref()).map(|text| text.trim().to_ascii_lowercase()).collect();
    let allow: Vec<Option<IpNet>> = texts(file.allow.as_ref()).map(|text| network(text, problems)).collect();
    let rate_limit = file.rate_limit.as_ref().and_then(|limit| rate(limit, problems));
    let headers: Vec<Option<String>> =
        texts(file.headers.as_ref()).map(|text| header(text, problems)).collect();
    let retention = file.retention.as_ref().map(|text| lifetime(text, problems));
    if problems.count() > before || !file.whole {
        return None;
    }
    let content_types: Vec<String> = content_types;
    Some(Hook {
        name: name.value.clone(),
        path: path?,
        scheme: scheme?,
        tolerance: tolerance?,
        key: key?,
        on_missing_key: file.on_missing_key.unwrap_or_default(),
        destination: destination?,
        duplicate_status: duplicate_status?,
        max_body: usize::try_from(max_body?).ok()?,
        content_types: if content_types.is_empty() {
            vec!["application/json".to_owned()]
        } else {
            content_types
        },
        allow: allow.into_iter().collect::<Option<_>>()?,
        rate_limit,
        headers: headers.into_iter().collect::<Option<_>>()?,
        retention: retention.flatten(),
    })
}

fn texts(given: Option<&Spanned<Vec<Spanned<String>>>>) -> impl Iterator<Item = &Spanned<String>> {
    given.into_iter().flat_map(|given| given.iter())
}

fn hook_path(text: &Spanned<String>, problems: &Problems) -> Option<String> {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.' | '~');
    let parts_fit = text
        .strip_prefix('/')
        .is_some_and(|rest| rest.split('/').all(|part| !part.is_empty() && !part.chars().all(|c| c == '.')));
    if !parts_fit || !text.chars().all(good) {
        let problem = unusable(text, format!("`{}` cannot be posted to", text.value));
        problems
            .add(problem.expected("a path of letters, digits, `-`, `_`, `.` and `~`, such as `/in/orders`"));
        return None;
    }
    let is_own =
        |own: &str| text.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    if let Some(own) = OWN_PATHS.into_iter().find(|own| is_own(own)) {
        let problem = Problem::new(text.span, format!("`{own}` is a path of onlynew's own"));
        problems.add(problem.help(format!("put something before it: `/in{}`", text.value)));
        return None;
    }
    Some(text.value.clone())
}

fn header(text: &Spanned<String>, problems: &Problems) -> Option<String> {
    if !is_token(text.trim()) {
        let problem = unusable(text, format!("`{}` is not the name of a header", text.value));
        problems.add(problem.expected("something like `X-Shopify-Topic`"));
        return None;
    }
    Some(text.trim().to_ascii_lowercase())
}

fn key_rule(name: &Spanned<String>, file: &Spanned<HookFile>, problems: &Problems) -> Option<KeyRule> {
    match (&file.key, &file.key_fields) {
        (Some(text), None) => {
            if !text.contains("{{") {
                let problem = unusable(text, format!("`{}` is the same for all", text.value));
                problems.add(problem.expected("a template such as `\"{{ body.id }}\"`"));
                return None;
            }
            let parsed = Whole::parse(text, Scope::Hook);
            parsed.map(KeyRule::Template).map_err(|error| problems.add(template_problem(text, error))).ok()
        }
        (None, Some(fields)) => {
            if fields.is_empty() && fields.whole {
                let problem = Problem::new(fields.span, "`key_fields` is empty, so that all would be one");
                problems
                    .add(problem.expected("a list such as `[type, object.id, {time: created, round: 1s}]`"));
                return None;
            }
            let read = fields.iter().map(|field| key_field(field, problems));
            read.collect::<Vec<_>>().into_iter().collect::<Option<_>>().map(KeyRule::Fields)
        }
        (Some(_), Some(fields)) => {
            let problem = Problem::new(fields.span, "the hook has both `key` and `key_fields`");
            problems.add(problem.help("keep one of the two"));
            None
        }
        (None, None) => {
            if file.whole {
                let problem = Problem::new(name.span, "nothing tells one webhook of this hook from another");
                problems
                    .add(problem.expected("`key: \"{{ body.id }}\"`, or `key_fields: [type, object.id]`"));
            }
            None
        }
    }
}

fn key_field(field: &Spanned<TextOr<TimeFieldFile>>, problems: &Problems) -> Option<KeyField> {
    match &field.value {
        TextOr::Text(text) => {
            path(&spanned(text, field.span, field.source.clone()), problems).map(KeyField::Plain)
        }
        TextOr::Map(TimeFieldFile { time, round }) => {
            let round = match round {
                Some(text) => positive_duration(text, "round", problems),
                None => Some(ROUND),
            };
            Some(KeyField::Time(path(time, problems)?, round?))
        }
    }
}

fn scheme(file: &Spanned<VerifyFile>, problems: &Problems) -> Option<Scheme> {
    let before = problems.count();
    let name = file.scheme.value;
    let of_hmac = [
        ("header", file.header.as_ref().map(|text| text.span)),
        ("prefix", file.prefix.as_ref().map(|text| text.span)),
        ("encoding", file.encoding.as_ref().map(|given| given.span)),
        ("algorithm", file.algorithm.as_ref().map(|given| given.span)),
        ("timestamp", file.timestamp.as_ref().map(|text| text.span)),
        ("message", file.message.as_ref().map(|text| text.span)),
    ];
    if name != SchemeName::Hmac {
        for (key, span) in of_hmac.into_iter().filter_map(|(key, span)| Some((key, span?))) {
            problems
                .add(Problem::new(span, format!("`{key}` does nothing here: only `scheme: hmac` has it")));
        }
    }
    if name == SchemeName::None {
        if let Some(given) = &file.secrets {
            problems.add(Problem::new(given.span, "`secrets` does nothing without a scheme"));
        } else {
            let message = "whoever reaches this hook is believed: nothing is signed";
            problems.warn(file.scheme.span, message);
        }
        return (problems.count() == before).then_some(Scheme::None);
    }
    let Some(given) = &file.secrets else {
        if file.whole {
            let problem =
                Problem::new(file.span, "`secrets` is missing, so that no signature could be checked");
            problems.add(problem.expected("`secrets: [\"${WHSEC}\"]`"));
        }
        return None;
    };
    if name == SchemeName::StandardWebhooks {
        return signing_keys(Some(given), "secrets", problems).map(Scheme::StandardWebhooks);
    }
    let secrets = secrets(given, problems)?;
    let scheme = match name {
        SchemeName::Stripe => Scheme::Stripe(secrets),
        SchemeName::Github => Scheme::Github(secrets),
        SchemeName::Shopify => Scheme::Shopify(secrets),
        _ => Scheme::Hmac(hmac(file, secrets, problems)?),
    };
    (problems.count() == before).then_some(scheme)
}

fn secrets(given: &Spanned<Literal>, problems: &Problems) -> Option<Vec<SecretString>> {
    let texts = match &given.value {
        Literal::Null => Vec::new(),
        Literal::Text(text) => vec![spanned(text, given.span, given.source.clone())],
        Literal::List(texts) => texts.clone(),
    };
    if texts.is_empty() && given.whole {
        problems.add(Problem::new(given.span, "`secrets` is empty").expected("one secret or more"));
        return None;
    }
    let read: Vec<_> = texts.iter().map(|text| secret(text, "secrets", problems)).collect();
    read.into_iter().collect()
}

fn hmac(file: &Spanned<VerifyFile>, secrets: Vec<SecretString>, problems: &Problems) -> Option<HmacScheme> {
    let Some(name) = &file.header else {
        let problem = Problem::new(file.span, "nothing says which header the signature stands in");
        problems.add(problem.expected("`header: X-Signature`"));
        return None;
    };
    let header_name = header(name, problems)?;
    let timestamp = match &file.timestamp {
        Some(text) => Some(header(text, problems)?),
        None => None,
    };
    let otherwise = if timestamp.is_some() { "{timestamp}.{body}" } else { "{body}" };
    let message = file.message.as_ref().map_or(otherwise, |text| text.as_str());
    if let Some(given) = &file.message {
        if message.matches("{body}").count() != 1 {
            let problem = unusable(given, "`message` has to name `{body}` once");
            problems.add(problem.expected("something like `v0:{timestamp}:{body}`"));
        }
        if message.contains("{timestamp}") != timestamp.is_some() {
            let problem = unusable(
                given,
                "`message` names `{timestamp}` where `timestamp` names a header, and there alone",
            );
            problems.add(problem.help("a moment that is not signed proves nothing"));
        }
    }
    Some(HmacScheme {
        header: header_name,
        prefix: file.prefix.as_ref().map_or_else(String::new, |text| text.value.clone()),
        encoding: file.encoding.as_ref().map_or(Encoding::Hex, |given| given.value),
        algorithm: file.algorithm.as_ref().map_or(Algorithm::Sha256, |given| given.value),
        timestamp,
        message: message.to_owned(),
        secrets,
    })
}
