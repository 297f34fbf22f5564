//! Texts of the YAML read as what they stand for: durations, paths, templates, zones, URLs, credentials.
//! What cannot be read is told of and is `None`.

use std::{fmt::Display, net::IpAddr, str::FromStr, time::Duration};

use ipnet::IpNet;
use jiff::tz::TimeZone;
use secrecy::SecretString;
use url::Url;

use super::{
    de::Spanned,
    error::{Problem, Problems, listed},
    stream::Place,
    template::{Expression, Scope, Template, TemplateError},
    text::{Literal, spanned},
};
use crate::domain::{
    json_path::JsonPath,
    units::{format_duration, parse_duration, parse_size},
    version::VersionFormat,
    version_format::FormatError,
};

/// A problem with a text. The message is `reason`, unless that would show what a variable holds.
pub(super) fn unusable(text: &Spanned<String>, reason: impl Display) -> Problem {
    match &text.source {
        Some(source) => Problem::new(text.span, format!("what `{source}` stands for cannot be used here")),
        None => Problem::new(text.span, reason.to_string()),
    }
}

pub(super) fn duration(text: &Spanned<String>, problems: &Problems) -> Option<Duration> {
    let duration = parse_duration(text);
    if duration.is_none() {
        let problem = Problem::new(text.span, format!("{} is not a duration", text.quoted()));
        let problem = problem.expected("whole numbers with a unit, such as `30s`, `15m`, `1h30m` or `7d`");
        let bare = text.source.is_none() && text.parse::<u64>().is_ok();
        problems.add(if bare {
            problem.help(format!("did you mean `{0}s` or `{0}m`?", text.value))
        } else {
            problem
        });
    }
    duration
}

/// A duration that must not be zero.
pub(super) fn positive_duration(text: &Spanned<String>, what: &str, problems: &Problems) -> Option<Duration> {
    let duration = duration(text, problems)?;
    if duration.is_zero() {
        problems.add(Problem::new(text.span, format!("`{what}` must be longer than nothing")));
        return None;
    }
    Some(duration)
}

/// A duration of at most `most`.
pub(super) fn duration_up_to(
    text: &Spanned<String>,
    what: &str,
    most: Duration,
    problems: &Problems,
) -> Option<Duration> {
    let duration = duration(text, problems)?;
    if duration > most {
        let problem = Problem::new(text.span, format!("`{what}` cannot be {}", text.quoted()));
        problems.add(problem.expected(format!("a duration of at most `{}`", format_duration(most))));
        return None;
    }
    Some(duration)
}

/// A size in bytes.
pub(super) fn size(text: &Spanned<String>, problems: &Problems) -> Option<u64> {
    let size = parse_size(text);
    if size.is_none() {
        let problem = Problem::new(text.span, format!("{} is not a size", text.quoted()));
        let problem = problem.expected("a whole number with a unit, such as `512kB`, `1MB` or `1MiB`");
        let bare = text.source.is_none() && text.parse::<u64>().is_ok();
        problems.add(if bare {
            problem.help(format!("did you mean `{0}kB` or `{0}MB`?", text.value))
        } else {
            problem
        });
    }
    size
}

pub(super) fn path(text: &Spanned<String>, problems: &Problems) -> Option<JsonPath> {
    parsed(text, problems)
}

/// One path or a list of them; an empty list names no place.
pub(super) fn paths(given: &Spanned<Literal>, problems: &Problems) -> Option<Vec<JsonPath>> {
    let texts = match &given.value {
        Literal::Text(text) => vec![spanned(text, given.span, given.source.clone())],
        Literal::List(texts) => texts.clone(),
        Literal::Null => Vec::new(),
    };
    if texts.is_empty() && given.whole {
        let problem = Problem::new(given.span, "the list of paths is empty");
        problems.add(problem.expected("at least one path, such as `[updated_at, created_at]`"));
    }
    let read: Vec<Option<JsonPath>> = texts.iter().map(|text| path(text, problems)).collect();
    let paths: Option<Vec<JsonPath>> = read.into_iter().collect();
    paths.filter(|paths| !paths.is_empty())
}

/// How versions are spelled: a name, or a pattern of strftime. Left out, it is `auto`.
pub(super) fn version_format(text: Option<&Spanned<String>>, problems: &Problems) -> Option<VersionFormat> {
    let Some(text) = text else { return Some(VersionFormat::default()) };
    match text.parse() {
        Ok(format) => Some(format),
        Err(error @ FormatError::Unknown(_)) => {
            let problem = unusable(text, error).expected(format!(
                "one of {}, or a pattern such as `%d.%m.%Y %H:%M`",
                listed(VersionFormat::NAMES)
            ));
            problems.add(problem.meant(text, VersionFormat::NAMES));
            None
        }
        Err(error) => {
            problems.add(unusable(text, error));
            None
        }
    }
}

/// Reads a text by its type's own rules and words.
pub(super) fn parsed<T: FromStr<Err: Display>>(text: &Spanned<String>, problems: &Problems) -> Option<T> {
    text.parse().map_err(|error| problems.add(unusable(text, error))).ok()
}

/// A place in an answer: a path, or `header:Name`.
pub(super) fn place(text: &Spanned<String>, problems: &Problems) -> Option<Place> {
    let Some(name) = text.strip_prefix("header:") else {
        return path(text, problems).map(Place::Body);
    };
    let name = name.trim();
    if !is_token(name) {
        let problem = unusable(text, format!("`{name}` is not the name of a header"));
        problems.add(problem.expected("something like `header:X-Next-Page`"));
        return None;
    }
    Some(Place::Header(name.to_lowercase()))
}

pub(super) fn zone(text: &Spanned<String>, problems: &Problems) -> Option<TimeZone> {
    let zone = TimeZone::get(text.trim()).ok();
    if zone.is_none() {
        let problem = Problem::new(text.span, format!("{} is not a time zone", text.quoted()))
            .expected("an IANA name such as `Europe/Zagreb`, `America/New_York` or `UTC`");
        let known: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        problems.add(problem.meant(text, known.iter().map(String::as_str)));
    }
    zone
}

pub(super) fn web_url(text: &Spanned<String>, problems: &Problems) -> Option<Url> {
    let reason = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => return Some(url),
        Ok(url) => format!("a URL of the scheme `{}` cannot be called", url.scheme()),
        Err(url::ParseError::RelativeUrlWithoutBase) => format!("{} is not a URL", text.quoted()),
        Err(error) => format!("{} is not a URL: {error}", text.quoted()),
    };
    problems.add(unusable(text, reason).expected("a URL that starts with `https://` or `http://`"));
    None
}

pub(super) fn pattern(text: &Spanned<String>, problems: &Problems) -> Option<regex_lite::Regex> {
    match regex_lite::Regex::new(text) {
        Ok(regex) => Some(regex),
        Err(error) => {
            let reason = format!("{} is not a regular expression: {error}", text.quoted());
            problems.add(unusable(text, reason));
            None
        }
    }
}

pub(super) fn template(text: &Spanned<String>, scope: Scope<'_>, problems: &Problems) -> Option<Template> {
    Template::parse(text, scope).map_err(|error| problems.add(template_problem(text, error))).ok()
}

pub(super) fn expression(
    text: &Spanned<String>,
    scope: Scope<'_>,
    problems: &Problems,
) -> Option<Expression> {
    if text.contains("{{") {
        let problem = Problem::new(text.span, format!("{} is an expression already", text.quoted()));
        problems.add(problem.help("leave out the braces `{{ }}`"));
        return None;
    }
    Expression::parse(text, scope).map_err(|error| problems.add(template_problem(text, error))).ok()
}

pub(super) fn template_problem(text: &Spanned<String>, error: TemplateError) -> Problem {
    match error {
        TemplateError::UnknownName { ref name, ref known } => unusable(text, &error)
            .expected(format!("one of {}", listed(known.iter().map(String::as_str))))
            .meant(name, known.iter().map(|known| known.trim_end_matches(".*"))),
        other => unusable(text, other),
    }
}

/// A credential: there, and something that a header can carry.
pub(super) fn secret(text: &Spanned<String>, what: &str, problems: &Problems) -> Option<SecretString> {
    let fault = if text.is_empty() {
        "is empty"
    } else if text.contains(|c: char| c.is_control()) {
        "holds a line break or another control character"
    } else {
        return Some(SecretString::from(text.value.clone()));
    };
    let problem = Problem::new(text.span, format!("`{what}` {fault}"));
    problems.add(match &text.source {
        Some(source) if text.is_empty() => problem.help(format!("`{source}` is set, but to nothing")),
        _ => problem,
    });
    None
}

/// An address, or a network.
pub(super) fn network(text: &Spanned<String>, problems: &Problems) -> Option<IpNet> {
    let address = || text.parse::<IpAddr>().map(IpNet::from);
    let network = text.parse::<IpNet>().or_else(|_| address()).ok();
    if network.is_none() {
        let problem = unusable(text, format!("`{}` is neither an address nor a network", text.value));
        problems.add(problem.expected("something like `203.0.113.7` or `203.0.113.0/24`"));
    }
    network
}

/// Whether a text can be the name of a header (RFC 9110, a token).
pub(super) fn is_token(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Checks the name that a person gave to a thing: it goes into URLs, labels and command lines.
pub(super) fn check_name(name: &Spanned<String>, problems: &Problems) -> bool {
    let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let fits =
        name.starts_with(|c: char| c.is_ascii_alphanumeric()) && name.chars().all(good) && name.len() <= 100;
    if !fits {
        let problem = Problem::new(name.span, format!("{} cannot be used as a name", name.quoted()));
        problems
            .add(problem.expected("letters, digits, `_`, `-` and `.`, at most 100, a letter or digit first"));
    }
    fits
}
