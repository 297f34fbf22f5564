//! Credentials for sources: what a person gives, matched against the ways of signing that the connector
//! knows.

use secrecy::SecretString;
use url::{Host, Url};

use super::{
    account::{Auth, Grant, KeyPlace, OAuth2},
    connector_file::AuthFile,
    de::Spanned,
    error::{Problem, Problems, Span, listed},
    file::{AuthType, CredentialsFile},
    values::{is_token, secret, unusable, web_url},
};

impl AuthType {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Bearer => "bearer",
            Self::Basic => "basic",
            Self::ApiKey => "api_key",
            Self::OAuth2ClientCredentials => "oauth2_client_credentials",
            Self::OAuth2RefreshToken => "oauth2_refresh_token",
        }
    }

    /// Whether it signs by tokens that are renewed.
    pub(super) const fn has_tokens(self) -> bool {
        matches!(self, Self::OAuth2ClientCredentials | Self::OAuth2RefreshToken)
    }

    /// The keys that give its credentials, the ones that must be there first.
    const fn keys(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::None => (&[], &[]),
            Self::Bearer => (&["token"], &[]),
            Self::Basic => (&["username"], &["password"]),
            Self::ApiKey => (&["key"], &[]),
            Self::OAuth2ClientCredentials => (&["client_id", "client_secret"], &["token_url", "scope"]),
            Self::OAuth2RefreshToken => {
                (&["client_id", "refresh_token"], &["client_secret", "token_url", "scope"])
            }
        }
    }

    /// How its credentials are written.
    fn example(self) -> String {
        let (required, optional) = self.keys();
        // Where tokens come from, and what for, is mostly the connector's to say.
        let optional = optional.iter().filter(|key| !matches!(**key, "token_url" | "scope"));
        let keys: Vec<String> = required.iter().chain(optional).map(|key| format!("{key}: …")).collect();
        format!("`auth: {{{}}}`", keys.join(", "))
    }
}

/// Checks the ways of signing of a connector.
pub(super) fn check_alternatives(alternatives: &[AuthFile], problems: &Problems) {
    for auth in alternatives {
        let kind = auth.r#type.value;
        let (is_key, has_tokens) = (kind == AuthType::ApiKey, kind.has_tokens());
        let keys = [
            (is_key, "name", auth.name.as_ref().map(|name| name.span)),
            (is_key, "in", auth.r#in.as_ref().map(|place| place.span)),
            (is_key, "prefix", auth.prefix.as_ref().map(|prefix| prefix.span)),
            (has_tokens, "token_url", auth.token_url.as_ref().map(|url| url.span)),
            (has_tokens, "scope", auth.scope.as_ref().map(|scope| scope.span)),
            (has_tokens, "client_auth", auth.client_auth.as_ref().map(|place| place.span)),
            (has_tokens, "extra", auth.extra.as_ref().map(|extra| extra.span)),
        ];
        for (_, key, span) in keys.into_iter().filter(|(useful, ..)| !useful) {
            let Some(span) = span else { continue };
            let message = format!("`{key}` does nothing with the type `{}`", kind.name());
            problems.add(Problem::new(span, message));
        }
        if let Some(url) = auth.token_url.as_ref().filter(|_| has_tokens) {
            token_url(url, problems);
        }
        for (name, _) in auth.extra.iter().flat_map(|extra| extra.iter()) {
            if RESERVED.contains(&name.as_str()) {
                let message =
                    format!("`extra` cannot set `{}`, which every request for a token has", name.shown());
                problems.add(Problem::new(name.span, message));
            }
        }
        match &auth.name {
            _ if !is_key => {}
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

/// The parameters that a request for a token has by itself (RFC 6749).
const RESERVED: [&str; 5] = ["grant_type", "client_id", "client_secret", "refresh_token", "scope"];

/// Where tokens come from. A client's secret goes there, so it is `https`, or this very machine.
fn token_url(text: &Spanned<String>, problems: &Problems) -> Option<Url> {
    let url = web_url(text, problems)?;
    let is_here = match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    };
    let fault = if url.scheme() != "https" && !is_here {
        "is not `https`, so the client's secret could be read on the way"
    } else if !url.username().is_empty() || url.password().is_some() {
        "holds a user name or password, which belong under `client_id` and `client_secret`"
    } else if url.fragment().is_some() {
        "holds a `#`"
    } else {
        return Some(url);
    };
    // The text is not repeated: it may hold a password.
    problems.add(unusable(text, format!("`token_url` {fault}")));
    None
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
    let none = CredentialsFile::default();
    let whole = given.is_none_or(|given| given.whole);
    let (given, span) = given.map_or((&none, owner), |given| (&given.value, given.span));
    let keys = [
        ("token", &given.token),
        ("username", &given.username),
        ("password", &given.password),
        ("key", &given.key),
        ("client_id", &given.client_id),
        ("client_secret", &given.client_secret),
        ("refresh_token", &given.refresh_token),
        ("token_url", &given.token_url),
        ("scope", &given.scope),
    ];
    let present: Vec<(&str, &Spanned<String>)> =
        keys.into_iter().filter_map(|(key, value)| Some((key, value.as_ref()?))).collect();
    let wanted: Vec<AuthType> = match alternatives {
        Some([]) => vec![AuthType::None],
        Some(listed) => listed.iter().map(|auth| auth.r#type.value).collect(),
        None => vec![
            AuthType::None,
            AuthType::Bearer,
            AuthType::Basic,
            AuthType::OAuth2ClientCredentials,
            AuthType::OAuth2RefreshToken,
        ],
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
    let places: Vec<(&str, Span)> = present.iter().map(|(key, value)| (*key, value.span)).collect();
    check_keys(kind.name(), span, &places, required, optional, problems)?;
    let take = |name: &str, value: &Option<Spanned<String>>| match value {
        Some(text) => secret(text, name, problems),
        None => Some(SecretString::default()),
    };
    match kind {
        AuthType::None => Some(Auth::None),
        AuthType::Bearer => Some(Auth::Bearer { token: take("token", &given.token)? }),
        AuthType::Basic => {
            let (username, password) = basic(given.username.as_ref()?, given.password.as_ref(), problems)?;
            Some(Auth::Basic { username, password })
        }
        AuthType::ApiKey => {
            let auth = alternatives?.iter().find(|auth| auth.r#type.value == kind)?;
            Some(Auth::ApiKey {
                place: auth.r#in.as_ref().map_or(KeyPlace::Header, |place| place.value),
                name: auth.name.as_ref()?.value.clone(),
                prefix: auth.prefix.as_ref().map(|prefix| prefix.value.clone()).unwrap_or_default(),
                key: take("key", &given.key)?,
            })
        }
        AuthType::OAuth2ClientCredentials | AuthType::OAuth2RefreshToken => {
            let way = alternatives.into_iter().flatten().find(|auth| auth.r#type.value == kind);
            oauth2(given, way, kind, span, problems).map(|oauth2| Auth::OAuth2(Box::new(oauth2)))
        }
    }
}

/// A login that gets access tokens: the person's keys, and below them what the connector knows.
fn oauth2(
    given: &CredentialsFile,
    way: Option<&AuthFile>,
    kind: AuthType,
    span: Span,
    problems: &Problems,
) -> Option<OAuth2> {
    let before = problems.count();
    let text = |own: &Option<Spanned<String>>, name: &str| {
        own.as_ref().map_or(Some(SecretString::default()), |text| secret(text, name, problems))
    };
    let (client_secret, refresh_token) =
        (text(&given.client_secret, "client_secret"), text(&given.refresh_token, "refresh_token"));
    text(&given.client_id, "client_id");
    let url = given.token_url.as_ref().or_else(|| way?.token_url.as_ref());
    let Some(url) = url else {
        let problem = Problem::new(span, format!("the type `{}` lacks the key `token_url`", kind.name()));
        problems.add(
            problem.help("`token_url`: where the provider gives access tokens, as its documentation says"),
        );
        return None;
    };
    let token_url = token_url(url, problems);
    let scope = given.scope.as_ref().or_else(|| way?.scope.as_ref()).map(|scope| scope.value.clone());
    let extra = way.and_then(|way| way.extra.as_ref());
    let extra = extra.into_iter().flat_map(|extra| extra.iter());
    if problems.count() > before {
        return None;
    }
    Some(OAuth2 {
        grant: match kind {
            AuthType::OAuth2RefreshToken => Grant::RefreshToken { refresh_token: refresh_token? },
            _ => Grant::ClientCredentials,
        },
        token_url: token_url?,
        client_id: given.client_id.as_ref()?.value.clone(),
        client_secret: client_secret?,
        client_auth: way
            .and_then(|way| way.client_auth.as_ref())
            .map(|place| place.value)
            .unwrap_or_default(),
        scope,
        extra: extra.map(|(name, value)| (name.value.clone(), value.value.clone())).collect(),
    })
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

/// A user's name and password as basic authentication can send them.
pub(super) fn basic(
    username: &Spanned<String>,
    password: Option<&Spanned<String>>,
    problems: &Problems,
) -> Option<(String, SecretString)> {
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
    Some((username.value.clone(), password))
}

/// Tells of keys that a way of signing needs and does not know; `None` where there are any.
pub(super) fn check_keys(
    kind: &str,
    span: Span,
    present: &[(&str, Span)],
    required: &[&str],
    optional: &[&str],
    problems: &Problems,
) -> Option<()> {
    let before = problems.count();
    for (key, place) in present {
        if !required.contains(key) && !optional.contains(key) {
            let problem = Problem::new(*place, format!("`{key}` does nothing with the type `{kind}`"));
            problems.add(match (required, optional) {
                ([], []) => problem,
                _ => problem.expected(listed(required.iter().chain(optional).copied())),
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
