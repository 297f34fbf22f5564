//! Inputs: what a connector lets a job fill in, and the values a job gives by `with`.

use serde_json::{Map, Value as Json};

use super::{
    connector::Connector,
    connector_file::{InputFile, InputType},
    de::{Entries, Spanned},
    error::{Problem, Problems, Span, listed, nearest},
    text::{Literal, spanned},
    values::{pattern, web_url, zone},
};

/// Values for inputs as a person wrote them.
pub(super) type With = Entries<Spanned<Literal>>;

/// Checks the inputs that a connector declares.
pub(super) fn check_declared(inputs: &Entries<Spanned<InputFile>>, problems: &Problems) {
    for (name, input) in inputs.iter() {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
        if !name.chars().all(good) || name.starts_with(|c: char| c.is_ascii_digit()) || name.is_empty() {
            let problem =
                Problem::new(name.span, format!("{} cannot be the name of an input", name.quoted()));
            problems.add(problem.expected("letters, digits and `_`, as templates say `inputs.name`"));
        }
        if let Some(text) = &input.pattern {
            pattern(text, problems);
            if matches!(input.r#type, Some(InputType::Boolean)) {
                problems.add(Problem::new(text.span, "`pattern` does nothing with the type `boolean`"));
            }
        }
        if let Some(default) = &input.default {
            convert(name, input, default, problems);
            if let Some(required) = input.required.as_ref().filter(|required| required.value) {
                let message = format!("the input `{}` is required and has a default", name.shown());
                problems.add(Problem::new(required.span, message).help("keep one of the two"));
            }
        }
    }
}

/// Checks values against a connector's inputs, whether or not all are there.
pub(super) fn check_given(connector: &Connector, with: &With, problems: &Problems) {
    for (name, value) in with.iter() {
        if let Some(input) = connector.inputs.get(name) {
            convert(name, input, value, problems);
            continue;
        }
        let known: Vec<&str> = connector.inputs.names().collect();
        let message = format!("{} has no input `{}`", connector.title(), name.shown());
        let problem = Problem::new(name.span, message);
        problems.add(match known.as_slice() {
            [] => problem.help("it takes none: remove this line"),
            known => problem
                .expected(format!("one of {}", listed(known.iter().copied())))
                .meant(name, known.iter().copied()),
        });
    }
}

/// The values of all inputs: the job's, else the account's, else the defaults, else null. `None` where a
/// required one is missing or one is wrong. `owner` is where a message about a missing one points; without
/// `complete` some were left out as wrong, and what is missing is no news.
pub(super) fn values(
    connector: &Connector,
    given: &[&With],
    complete: bool,
    owner: Span,
    problems: &Problems,
) -> Option<Map<String, Json>> {
    let before = problems.count();
    for with in given {
        check_given(connector, with, problems);
    }
    let mut values = Map::new();
    for (name, input) in connector.inputs.iter() {
        let value = given.iter().find_map(|with| with.get(name)).or(input.default.as_ref());
        let missing = value.is_none_or(|value| matches!(value.value, Literal::Null));
        let value = value.and_then(|value| convert(name, input, value, problems)).unwrap_or_default();
        let misspelt = || {
            let names = given.iter().flat_map(|with| with.names());
            let mut unknown = names.filter(|given| connector.inputs.get(given).is_none());
            unknown.any(|given| nearest(given, [name.as_str()]).is_some())
        };
        if missing
            && complete
            && !misspelt()
            && input.required.as_ref().is_some_and(|required| required.value)
        {
            let message = format!("{} needs the input `{}`", connector.title(), name.as_str());
            let told = match &input.description {
                Some(description) => format!(": {description}"),
                None => String::new(),
            };
            let help = format!("add `{}: …` under `with`{told}", name.as_str());
            problems.add(Problem::new(owner, message).help(help));
        }
        values.insert(name.value.clone(), value);
    }
    (complete && problems.count() == before).then_some(values)
}

fn convert(name: &str, input: &InputFile, value: &Spanned<Literal>, problems: &Problems) -> Option<Json> {
    let kind = input.r#type.unwrap_or_default();
    let mismatch = |expected: &str| {
        let message = format!("the value of `{name}` does not fit");
        problems.add(Problem::new(value.span, message).expected(expected));
        None
    };
    let text = match (&value.value, kind) {
        (Literal::Null, _) => return Some(Json::Null),
        (Literal::List(elements), InputType::List) => {
            let fits = elements.iter().all(|element| matches_pattern(name, input, element, problems));
            let texts = elements.iter().map(|element| Json::from(element.as_str())).collect();
            return fits.then_some(Json::Array(texts));
        }
        (Literal::List(_), _) => return mismatch("a single value"),
        (Literal::Text(_), InputType::List) => return mismatch("a list, such as `[one, two]`"),
        (Literal::Text(text), _) => spanned(text, value.span, value.source.clone()),
    };
    let converted = match kind {
        InputType::String | InputType::List => Json::from(text.as_str()),
        InputType::Boolean => match text.as_str() {
            "true" => Json::Bool(true),
            "false" => Json::Bool(false),
            _ => return mismatch("`true` or `false`"),
        },
        InputType::Integer => match text.parse::<i64>() {
            Ok(number) => Json::from(number),
            Err(_) => return mismatch("a whole number"),
        },
        InputType::Timezone => {
            zone(&text, problems)?;
            Json::from(text.as_str())
        }
        InputType::Url => {
            web_url(&text, problems)?;
            Json::from(text.trim_end_matches('/'))
        }
    };
    matches_pattern(name, input, &text, problems).then_some(converted)
}

fn matches_pattern(name: &str, input: &InputFile, text: &Spanned<String>, problems: &Problems) -> bool {
    let Some(wanted) = &input.pattern else { return true };
    // A wrong pattern is the connector's problem, told of there.
    let Ok(regex) = regex_lite::Regex::new(wanted) else { return false };
    let fits = regex.is_match(text);
    if !fits {
        let message = format!("{} does not fit the input `{name}`", text.quoted());
        problems.add(
            Problem::new(text.span, message).expected(format!("a text that matches {}", wanted.as_str())),
        );
    }
    fits
}
