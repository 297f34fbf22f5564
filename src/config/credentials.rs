//! Credentials: what a person gives, matched against the ways of signing that the connector or the webhook
//! knows.

use secrecy::SecretString;

use super::{
    account::{Auth, KeyPlace},
    connector_file::AuthFile,
    de::Spanned,
    error::{Problem, Problems, Span, listed},
    file::{AuthType, CredentialsFile, WebhookAuthFile, WebhookAuthType},
    values::{is_token, secret},
};

impl AuthType {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bearer => "bearer",
            Self::Basic => "basic",
            Self::ApiKey => "api_key",
        }
    }

    /// The keys that give its credentials, the ones that must be there first.
    const fn keys(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::None => (&[], &[]),
            Self::Bearer => (&["token"], &[]),
            Self::Basic => (&["username"], &["password"]),
            Self::ApiKey => (&["key"], &[]),
        }
    }

    /// How its credentials are written.
    fn example(self) -> String {
        let (required, optional) = self.keys();
        let keys: Vec<String> = required.iter().chain(optional).map(|key| format!("{key}: …")).collect();
        format!("`auth: {{{}}}`", keys.join(", "))
    }
}

/// Checks the ways of signing of a connector.
pub(super) fn check_alternatives(alternatives: &[AuthFile], problems: &Problems) {
    for auth in alternatives {
        if auth.r#type.value != AuthType::ApiKey {
            let extra = [
                auth.name.as_ref().map(|name| ("name", name.span)),
                auth.r#in.as_ref().map(|place| ("in", place.span)),
                auth.prefix.as_ref().map(|prefix| ("prefix", prefix.span)),
            ];
            for (key, span) in extra.into_iter().flatten() {
                let kind = auth.r#type.value.name();
                problems.add(Problem::new(span, format!("`{key}` does nothing with the type `{kind}`")));
            }
            continue;
        }
        match &auth.name {
            None => problems.add(
                Problem::new(auth.r#type.span, "the type `api_key` lacks the key `name`")
                    .help("`name`: the header's, parameter's or cookie's name"),
            ),
            Some(name) if !is_token(name) => {
                problems
                    .add(Problem::new(name.span, format!("{} cannot be the name of a key", name.quoted())));
            }
            Some(_) => {}
        }
    }
}

/// The way of signing that a person's credentials choose. `who` is the connector in messages; without
/// `alternatives` the credentials alone decide.
pub(super) fn source_auth(
    who: &str,
    alternatives: Option<&[AuthFile]>,
    given: Option<&Spanned<CredentialsFile>>,
    owner: Span,
    problems: &Problems,
) -> Option<Auth> {
    let none = CredentialsFile { r#type: None, token: None, username: None, password: None, key: None };
    let whole = given.is_none_or(|given| given.whole);
    let (given, span) = given.map_or((&none, owner), |given| (&given.value, given.span));
    let keys = [
        ("token", &given.token),
        ("username", &given.username),
        ("password", &given.password),
        ("key", &given.key),
    ];
    let present: Vec<(&str, &Spanned<String>)> =
        keys.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))).collect();
    let wanted: Vec<AuthType> = match alternatives {
        Some([]) => vec![AuthType::None],
        Some(listed) => listed.iter().map(|auth| auth.r#type.value).collect(),
        None => vec![AuthType::None, AuthType::Bearer, AuthType::Basic],
    };
    let kind = match &given.r#type {
        Some(kind) if wanted.contains(&kind.value) => kind.value,
        Some(kind) => {
            let problem = Problem::new(kind.span, format!("{who} does not sign by `{}`", kind.value.name()));
            let names = wanted.iter().map(|kind| kind.name());
            problems.add(problem.expected(format!("one of {}", listed(names))));
            return None;
        }
        None => match fitting(&present, &wanted) {
            Some(kind) => kind,
            None if !whole => return None,
            None => {
                problems.add(unfit(who, &present, &wanted, span));
                return None;
            }
        },
    };
    let (required, optional) = kind.keys();
    check_keys(kind.name(), span, &present, required, optional, problems)?;
    let take = |name: &str, value: &Option<Spanned<String>>| match value {
        Some(text) => secret(text, name, problems),
        None => Some(SecretString::default()),
    };
    match kind {
        AuthType::None => Some(Auth::None),
        AuthType::Bearer => Some(Auth::Bearer { token: take("token", &given.token)? }),
        AuthType::Basic => basic(given.username.as_ref()?, given.password.as_ref(), problems),
        AuthType::ApiKey => {
            let auth = alternatives?.iter().find(|auth| auth.r#type.value == kind)?;
            Some(Auth::ApiKey {
                place: auth.r#in.as_ref().map_or(KeyPlace::Header, |place| place.value),
                name: auth.name.as_ref()?.value.clone(),
                prefix: auth.prefix.as_ref().map(|prefix| prefix.value.clone()).unwrap_or_default(),
                key: take("key", &given.key)?,
            })
        }
    }
}

/// What to say where no way of signing fits the credentials.
fn unfit(who: &str, present: &[(&str, &Spanned<String>)], wanted: &[AuthType], span: Span) -> Problem {
    let has_use = |key: &str| wanted.iter().any(|kind| kind.keys().0.contains(&key));
    let keys = listed(present.iter().map(|(key, _)| *key));
    let message = match present {
        [] => format!("{who} needs credentials"),
        [_, _, ..] if present.iter().any(|(key, _)| has_use(key)) => {
            format!("{keys} do not go together for {who}")
        }
        _ => format!("{who} has no use for {keys}"),
    };
    let examples: Vec<String> =
        wanted.iter().filter(|kind| **kind != AuthType::None).map(|kind| kind.example()).collect();
    let problem = Problem::new(span, message);
    match examples.as_slice() {
        [] => problem.help("remove `auth`: this source takes no credentials"),
        examples => problem.expected(examples.join(" or ")),
    }
}

/// The one way of signing that exactly these keys fit.
fn fitting(present: &[(&str, &Spanned<String>)], wanted: &[AuthType]) -> Option<AuthType> {
    let fits = |kind: &&AuthType| {
        let (required, optional) = kind.keys();
        required.iter().all(|key| present.iter().any(|(name, _)| name == key))
            && present.iter().all(|(name, _)| required.contains(name) || optional.contains(name))
    };
    wanted.iter().find(fits).copied()
}

/// How deliveries to a webhook are signed.
pub(super) fn webhook_auth(given: Option<&Spanned<WebhookAuthFile>>, problems: &Problems) -> Option<Auth> {
    let Some(given) = given else { return Some(Auth::None) };
    let (whole, span, given) = (given.whole, given.span, &given.value);
    let keys = [
        ("name", &given.name),
        ("value", &given.value),
        ("token", &given.token),
        ("username", &given.username),
        ("password", &given.password),
    ];
    let present: Vec<(&str, &Spanned<String>)> =
        keys.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))).collect();
    let kind = match &given.r#type {
        Some(kind) => kind.value,
        None if given.value.is_some() || given.name.is_some() => WebhookAuthType::Header,
        None if given.token.is_some() => WebhookAuthType::Bearer,
        None if given.username.is_some() || given.password.is_some() => WebhookAuthType::Basic,
        None => {
            if whole {
                problems.add(
                    Problem::new(span, "`auth` gives no credentials").expected(
                        "`{type: header, name: …, value: …}`, `{type: basic, username: …, password: …}` or `{type: bearer, token: …}`",
                    ),
                );
            }
            return None;
        }
    };
    let (name, required): (_, &[&str]) = match kind {
        WebhookAuthType::None => ("none", &[]),
        WebhookAuthType::Header => ("header", &["name", "value"]),
        WebhookAuthType::Bearer => ("bearer", &["token"]),
        WebhookAuthType::Basic => ("basic", &["username", "password"]),
    };
    if !whole {
        return None;
    }
    check_keys(name, span, &present, required, &[], problems)?;
    match kind {
        WebhookAuthType::None => Some(Auth::None),
        WebhookAuthType::Bearer => {
            Some(Auth::Bearer { token: secret(given.token.as_ref()?, "token", problems)? })
        }
        WebhookAuthType::Basic => basic(given.username.as_ref()?, given.password.as_ref(), problems),
        WebhookAuthType::Header => {
            let name = given.name.as_ref()?;
            if !is_token(name) {
                let message = format!("{} is not the name of a header", name.quoted());
                problems.add(Problem::new(name.span, message).expected("something like `X-Token`"));
                return None;
            }
            Some(Auth::ApiKey {
                place: KeyPlace::Header,
                name: name.value.clone(),
                prefix: String::new(),
                key: secret(given.value.as_ref()?, "value", problems)?,
            })
        }
    }
}

fn basic(
    username: &Spanned<String>,
    password: Option<&Spanned<String>>,
    problems: &Problems,
) -> Option<Auth> {
    if username.contains(':') {
        problems.add(Problem::new(
            username.span,
            "`username` holds a `:`, which basic authentication cannot send",
        ));
        return None;
    }
    secret(username, "username", problems)?;
    let password = match password {
        Some(password) if !password.is_empty() => secret(password, "password", problems)?,
        _ => SecretString::default(),
    };
    Some(Auth::Basic { username: username.value.clone(), password })
}

/// Tells of keys that a way of signing needs and does not know; `None` where there are any.
fn check_keys(
    kind: &str,
    span: Span,
    present: &[(&str, &Spanned<String>)],
    required: &[&str],
    optional: &[&str],
    problems: &Problems,
) -> Option<()> {
    let before = problems.count();
    for (key, value) in present {
        if !required.contains(key) && !optional.contains(key) {
            let problem = Problem::new(value.span, format!("`{key}` does nothing with the type `{kind}`"));
            problems.add(match required {
                [] => problem,
                required => problem.expected(listed(required.iter().chain(optional).copied())),
            });
        }
    }
    for key in required {
        if !present.iter().any(|(name, _)| name == key) {
            problems.add(Problem::new(span, format!("the type `{kind}` lacks the key `{key}`")));
        }
    }
    (problems.count() == before).then_some(())
}
