//! `type: jwt`: the passphrase or private key that tokens are signed with, and what they say.

use super::{
    de::Spanned,
    destination::WebhookAuth,
    destination_file::WebhookAuthFile,
    error::{Problem, Problems, Span, listed},
    values::secret,
};
use crate::domain::jwt::{Algorithm, Key, KeyError, OWN_CLAIMS};

/// How tokens are made. `span` is where a message about a missing key points.
pub(super) fn jwt(span: Span, given: &WebhookAuthFile, problems: &Problems) -> Option<WebhookAuth> {
    let before = problems.count();
    let key = key(span, given, problems);
    let claims: Vec<_> = given.claims.iter().flat_map(|claims| claims.iter()).collect();
    for (name, _) in claims.iter().filter(|(name, _)| OWN_CLAIMS.contains(&name.as_str())) {
        let message = format!("`claims` cannot set `{}`: each attempt has a new token", name.shown());
        problems
            .add(Problem::new(name.span, message).help("a token is good for 5 minutes from its attempt on"));
    }
    let claims = claims.into_iter().map(|(name, value)| (name.value.clone(), value.value.clone())).collect();
    let key = key.filter(|_| problems.count() == before)?;
    Some(WebhookAuth::Jwt { key, claims })
}

fn key(span: Span, given: &WebhookAuthFile, problems: &Problems) -> Option<Key> {
    let algorithm = match (&given.algorithm, &given.private_key) {
        (Some(algorithm), _) => algorithm.value,
        (None, None) => Algorithm::default(),
        (None, Some(pem)) => {
            let names = Algorithm::OF_PRIVATE_KEYS.map(Algorithm::name);
            let problem = Problem::new(pem.span, "`private_key` does nothing without `algorithm`");
            let names = listed(names.iter().map(String::as_str));
            problems.add(problem.expected(format!("`algorithm`, one of {names}")));
            return None;
        }
    };
    let (passphrase, pem) = (("secret", given.secret.as_ref()), ("private_key", given.private_key.as_ref()));
    let (wanted, other) = if algorithm.takes_private_key() { (pem, passphrase) } else { (passphrase, pem) };
    let name = algorithm.name();
    if let (key, Some(text)) = other {
        let problem = Problem::new(text.span, format!("`{key}` does nothing with the algorithm `{name}`"));
        problems.add(problem.expected(format!("`{}`", wanted.0)));
    }
    let Some(text) = wanted.1 else {
        let what = match given.algorithm {
            Some(_) => format!("the algorithm `{name}`"),
            None => "the type `jwt`".to_owned(),
        };
        problems.add(Problem::new(span, format!("{what} lacks the key `{}`", wanted.0)));
        return None;
    };
    let made = if algorithm.takes_private_key() && !text.is_empty() {
        Key::from_pem(algorithm, text)
    } else {
        secret(text, wanted.0, problems)?;
        Key::from_passphrase(algorithm, text)
    };
    made.map_err(|error| problems.add(unfit(text, wanted.0, algorithm, error))).ok()
}

fn unfit(text: &Spanned<String>, key: &str, algorithm: Algorithm, error: KeyError) -> Problem {
    let problem = Problem::new(text.span, format!("`{key}` {error}"));
    match error {
        KeyError::NotPem => {
            problem.expected("a private key in PEM, best as `\"${file:/run/secrets/key.pem}\"`")
        }
        KeyError::Escaped => problem.expected("line breaks, or spaces in their place"),
        KeyError::Public => problem.expected("the private key that belongs to it"),
        KeyError::Encrypted => {
            problem.help("`openssl pkcs8 -topk8 -nocrypt -in KEY.pem` writes it without its passphrase")
        }
        KeyError::Sec1 => problem.help("`openssl pkcs8 -topk8 -nocrypt -in KEY.pem` writes it as PKCS#8"),
        KeyError::Unfit(_) => problem.expected(algorithm.takes()),
    }
}
