//! `allow_private`: what beside public addresses may be connected to.

use super::{
    de::Spanned,
    error::{Problem, Problems},
    text::Literal,
    values::unusable,
};
use crate::domain::allow_private::AllowPrivate;

const EXPECTED: &str = "`auto`, `true`, `false`, or a list such as `[10.0.0.0/8, n8n.example.com]`";

/// What is given, else `otherwise`.
pub(super) fn allow_private(
    given: Option<&Spanned<Literal>>,
    otherwise: &AllowPrivate,
    problems: &Problems,
) -> AllowPrivate {
    let Some(given) = given else { return otherwise.clone() };
    match &given.value {
        Literal::Text(text) => match text.to_ascii_lowercase().as_str() {
            "auto" => return AllowPrivate::Auto,
            "true" => return AllowPrivate::Always,
            "false" => return AllowPrivate::Never,
            _ => {
                let shown = given.source.as_deref().unwrap_or(text);
                let problem = Problem::new(given.span, format!("`allow_private` cannot be `{shown}`"));
                problems.add(problem.expected(EXPECTED));
            }
        },
        Literal::List(texts) => {
            let places = texts.iter().filter_map(|text| match text.parse() {
                Ok(place) => Some(place),
                Err(error) => {
                    let problem = unusable(text, format!("{} {error}", text.quoted()));
                    problems.add(
                        problem.expected("something like `10.0.0.0/8`, `10.0.0.5` or `n8n.example.com`"),
                    );
                    None
                }
            });
            return AllowPrivate::Also(places.collect());
        }
        Literal::Null => {}
    }
    otherwise.clone()
}
