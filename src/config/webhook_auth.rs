//! Credentials for destinations: what a person gives, as one of the ways that n8n's Webhook trigger knows.

use super::{
    credentials::{basic, check_keys},
    de::Spanned,
    destination::WebhookAuth,
    destination_file::{WebhookAuthFile, WebhookAuthType},
    error::{Problem, Problems, Span},
    values::{is_token, secret},
    webhook_jwt::jwt,
};

impl WebhookAuthType {
    const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Header => "header",
            Self::Bearer => "bearer",
            Self::Basic => "basic",
            Self::Jwt => "jwt",
        }
    }

    /// What a delivery says of itself, or its connection.
    const OURS: [&str; 11] = [
        "Idempotency-Key",
        "webhook-id",
        "webhook-timestamp",
        "webhook-signature",
        "X-Onlynew-Attempt",
        "traceparent",
        "Content-Type",
        "Content-Length",
        "Transfer-Encoding",
        "Connection",
        "Host",
    ];

    /// The keys that give its credentials, the ones that must be there first.
    const fn keys(self) -> (&'static [&'static str], &'static [&'static str]) {
        match self {
            Self::None => (&[], &[]),
            Self::Header => (&["name", "value"], &[]),
            Self::Bearer => (&["token"], &[]),
            Self::Basic => (&["username", "password"], &[]),
            Self::Jwt => (&[], &["secret", "private_key", "algorithm", "claims"]),
        }
    }
}

/// How deliveries to a webhook show who sends them.
pub(super) fn webhook_auth(
    given: Option<&Spanned<WebhookAuthFile>>,
    problems: &Problems,
) -> Option<WebhookAuth> {
    let Some(given) = given else { return Some(WebhookAuth::None) };
    let (whole, span, given) = (given.whole, given.span, &given.value);
    let place = |text: &Option<Spanned<String>>| text.as_ref().map(|text| text.span);
    let keys = [
        ("name", place(&given.name)),
        ("value", place(&given.value)),
        ("token", place(&given.token)),
        ("username", place(&given.username)),
        ("password", place(&given.password)),
        ("secret", place(&given.secret)),
        ("private_key", place(&given.private_key)),
        ("algorithm", given.algorithm.as_ref().map(|algorithm| algorithm.span)),
        ("claims", given.claims.as_ref().map(|claims| claims.span)),
    ];
    let present: Vec<(&str, Span)> =
        keys.into_iter().filter_map(|(key, place)| Some((key, place?))).collect();
    let has = |keys: &[&str]| present.iter().any(|(key, _)| keys.contains(key));
    let kind = match &given.r#type {
        Some(kind) => kind.value,
        None if has(&["value", "name"]) => WebhookAuthType::Header,
        None if has(&["token"]) => WebhookAuthType::Bearer,
        None if has(&["username", "password"]) => WebhookAuthType::Basic,
        None if has(&["secret", "private_key", "algorithm", "claims"]) => WebhookAuthType::Jwt,
        None => {
            if whole {
                problems.add(
                    Problem::new(span, "`auth` gives no credentials").expected(
                        "`{type: header, name: …, value: …}`, `{type: basic, username: …, password: …}`, `{type: jwt, secret: …}` or `{type: bearer, token: …}`",
                    ),
                );
            }
            return None;
        }
    };
    if !whole {
        return None;
    }
    let (required, optional) = kind.keys();
    check_keys(kind.name(), span, &present, required, optional, problems)?;
    match kind {
        WebhookAuthType::None => Some(WebhookAuth::None),
        WebhookAuthType::Bearer => {
            Some(WebhookAuth::Bearer { token: secret(given.token.as_ref()?, "token", problems)? })
        }
        WebhookAuthType::Basic => {
            let (username, password) = basic(given.username.as_ref()?, given.password.as_ref(), problems)?;
            Some(WebhookAuth::Basic { username, password })
        }
        WebhookAuthType::Header => {
            let name = given.name.as_ref()?;
            if !is_token(name) {
                let message = format!("{} is not the name of a header", name.quoted());
                problems.add(Problem::new(name.span, message).expected("something like `X-Token`"));
                return None;
            }
            if WebhookAuthType::OURS.iter().any(|ours| name.value.eq_ignore_ascii_case(ours)) {
                let message = format!("{} is a header that each delivery sets itself", name.quoted());
                problems
                    .add(Problem::new(name.span, message).expected("a name of your own, such as `X-Token`"));
                return None;
            }
            Some(WebhookAuth::Header {
                name: name.value.clone(),
                value: secret(given.value.as_ref()?, "value", problems)?,
            })
        }
        WebhookAuthType::Jwt => jwt(span, given, problems),
    }
}
