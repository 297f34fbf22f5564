//! `signing_secret`: one secret, or several while receivers change from one to the next.

use super::{
    de::Spanned,
    error::{Problem, Problems},
    text::{Literal, spanned},
    values::secret,
};
use crate::domain::signature::{KeyError, SigningKey};

/// The keys that deliveries are signed with; none where nothing is given.
pub(super) fn signing_keys(
    given: Option<&Spanned<Literal>>,
    what: &str,
    problems: &Problems,
) -> Option<Vec<SigningKey>> {
    let Some(given) = given else { return Some(Vec::new()) };
    let texts = match &given.value {
        Literal::Null => Vec::new(),
        Literal::Text(text) => vec![spanned(text, given.span, given.source.clone())],
        Literal::List(texts) => texts.clone(),
    };
    if texts.is_empty() && given.whole {
        let problem = Problem::new(given.span, format!("`{what}` is an empty list"));
        problems.add(problem.expected(format!("one secret or more, or no `{what}`")));
        return None;
    }
    let keys: Vec<Option<SigningKey>> = texts.iter().map(|text| signing_key(text, what, problems)).collect();
    keys.into_iter().collect()
}

fn signing_key(text: &Spanned<String>, what: &str, problems: &Problems) -> Option<SigningKey> {
    secret(text, what, problems)?;
    let error: KeyError = match text.parse() {
        Ok(key) => return Some(key),
        Err(error) => error,
    };
    let problem = Problem::new(text.span, format!("`{what}` {error}"))
        .expected("24 to 64 random bytes in base64, with or without `whsec_` in front");
    problems.add(problem.help("`openssl rand -base64 32` makes one"));
    None
}
