//! A request for an access token (RFC 6749) and what its answer means. No word of an answer that may hold a
//! token is ever shown; what a person has to do is.

use std::time::Duration;

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderMap, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};

use super::{
    auth::{Secrets, basic},
    body::text::is_html,
    http::{Answer, Http, HttpError},
    place::header,
};
use crate::{
    config::{
        account::{Auth, ClientAuth, Grant, OAuth2},
        stream::RecordFormat,
    },
    domain::{clock::Clock, instant::Instant, json, retry_after},
};

/// The longest life of a token that is believed; `0` and nonsense say nothing.
const LONGEST_LIFE: f64 = 10.0 * 365.0 * 86_400.0;

/// How much of a refusal is shown, in characters.
const SHOWN: usize = 200;

/// What a provider gave.
#[derive(Debug)]
pub struct Granted {
    /// What signs requests.
    pub access_token: SecretString,
    /// What the next one is traded in for, where it is a new one.
    pub refresh_token: Option<SecretString>,
    /// How long it is good for, counted from when it was asked for.
    pub expires_in: Option<Duration>,
    /// When it was asked for, by our clock.
    pub asked_at: Instant,
}

/// Why there is no access token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// It may come later.
    #[error("no access token: {0}")]
    MayPass(String),
    /// The provider wants to be left alone.
    #[error("no access token: {reason}")]
    Limited {
        /// For how long, where it says.
        wait: Option<Duration>,
        /// What it said.
        reason: String,
    },
    /// A person has to look.
    #[error("no access token: {0}")]
    Refused(String),
}

impl LoginError {
    /// Whether it passes by itself.
    pub fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused(_))
    }
}

/// Asks for an access token. `rotated` is the refresh token that was got last, where there is one.
pub async fn ask(
    auth: &Auth,
    oauth2: &OAuth2,
    rotated: Option<&SecretString>,
    http: &Http,
    clock: &dyn Clock,
) -> Result<Granted, LoginError> {
    let mut secrets = Secrets::of(auth);
    let mut form = Vec::new();
    match &oauth2.grant {
        Grant::ClientCredentials => form.push(("grant_type", "client_credentials")),
        Grant::RefreshToken { refresh_token } => {
            let refresh_token = rotated.unwrap_or(refresh_token);
            secrets.learn(refresh_token);
            form.extend([("grant_type", "refresh_token"), ("refresh_token", refresh_token.expose_secret())]);
        }
    }
    let mut headers = HeaderMap::from_iter([(ACCEPT, HeaderValue::from_static("application/json"))]);
    match oauth2.client_auth {
        ClientAuth::Body => {
            form.push(("client_id", oauth2.client_id.as_str()));
            // A public client has none, and an empty one is refused by some.
            if !oauth2.client_secret.expose_secret().is_empty() {
                form.push(("client_secret", oauth2.client_secret.expose_secret()));
            }
        }
        ClientAuth::Basic => {
            let value = format!("Basic {}", basic(&oauth2.client_id, &oauth2.client_secret));
            let mut value = HeaderValue::from_str(&value)
                .map_err(|_| LoginError::Refused("the client's id or secret cannot be sent".to_owned()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
    }
    form.extend(oauth2.scope.as_deref().map(|scope| ("scope", scope)));
    form.extend(oauth2.extra.iter().map(|(name, value)| (name.as_str(), value.as_str())));

    let asked_at = clock.now();
    let place = secrets.url(&oauth2.token_url);
    let said = |reason: &str| format!("{} (POST {place})", secrets.hide(reason));
    match http.post_form(&oauth2.token_url, headers, &form, clock).await {
        Ok(answer) => read(&answer, asked_at, &secrets).map_err(|error| match error {
            LoginError::MayPass(reason) => LoginError::MayPass(said(&reason)),
            LoginError::Limited { wait, reason } => LoginError::Limited { wait, reason: said(&reason) },
            LoginError::Refused(reason) => LoginError::Refused(said(&reason)),
        }),
        Err(error @ (HttpError::NoAnswer(_) | HttpError::Broken(_))) => {
            Err(LoginError::MayPass(said(&error.to_string())))
        }
        Err(error) => Err(LoginError::Refused(said(&error.to_string()))),
    }
}

/// Reads a provider's answer.
fn read(answer: &Answer, asked_at: Instant, secrets: &Secrets) -> Result<Granted, LoginError> {
    let text = String::from_utf8_lossy(&answer.body);
    let text = text.trim_start_matches('\u{feff}');
    let members = json::parse(text).ok().and_then(|answer| match answer {
        Value::Object(members) => Some(members),
        _ => None,
    });
    let status = answer.status.as_u16();
    let answered = format!("the provider answered {}", answer.status);
    let retry_after = || {
        let now = header(&answer.headers, "date")
            .and_then(|date| jiff::fmt::rfc2822::parse(date.trim()).ok())
            .map_or(answer.begun_at, |date| Instant::from(date.timestamp()));
        retry_after::parse(&header(&answer.headers, "retry-after")?, now)
    };
    // Some providers answer 200 to what they refuse.
    let error = members.as_ref().and_then(|members| members.get("error")).filter(|error| !error.is_null());
    match status {
        429 => return Err(LoginError::Limited { wait: retry_after(), reason: answered }),
        503 => {
            return Err(match retry_after() {
                Some(wait) => LoginError::Limited { wait: Some(wait), reason: answered },
                None => LoginError::MayPass(answered),
            });
        }
        408 | 425 | 500..=599 => return Err(LoginError::MayPass(answered)),
        300..=399 => {
            let advice = "a redirect, which would take the client's secret elsewhere: write the address it leads to into `token_url`";
            return Err(LoginError::Refused(format!("{answered}, {advice}")));
        }
        200..=299 if error.is_none() => {}
        _ => return Err(refused(&answered, status, members.as_ref(), text, secrets)),
    }
    let Some(members) = members else {
        let what = if is_html(text, header(&answer.headers, "content-type").as_deref(), RecordFormat::Json) {
            "a web page where a token should be: a login, a proxy, or a wrong `token_url`"
        } else if text.trim().is_empty() {
            "an empty body where a token should be"
        } else {
            "something that is no JSON object where a token should be: check `token_url`"
        };
        return Err(LoginError::MayPass(format!("{answered} and {what}")));
    };
    let text_of = |name: &str| members.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
    let Some(access_token) = text_of("access_token") else {
        let names: Vec<&str> = members.keys().map(String::as_str).take(10).collect();
        let names = secrets.excerpt(&names.join(", "), SHOWN);
        return Err(LoginError::Refused(format!(
            "{answered} without an `access_token` (its members: {names}): check `token_url`"
        )));
    };
    if access_token.contains(|c: char| c.is_control()) {
        return Err(LoginError::Refused(format!("{answered} with a token that no header can carry")));
    }
    Ok(Granted {
        access_token: access_token.into(),
        refresh_token: text_of("refresh_token").map(SecretString::from),
        expires_in: members.get("expires_in").and_then(life),
        asked_at,
    })
}

fn life(value: &Value) -> Option<Duration> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    };
    let seconds = seconds.filter(|seconds: &f64| (1.0..=f64::MAX).contains(seconds))?;
    Duration::try_from_secs_f64(seconds.min(LONGEST_LIFE)).ok()
}

/// A refusal in words (RFC 6749, section 5.2), and what to do about it.
fn refused(
    answered: &str,
    status: u16,
    members: Option<&Map<String, Value>>,
    text: &str,
    secrets: &Secrets,
) -> LoginError {
    let member = |name: &str| members?.get(name).and_then(Value::as_str);
    let code = member("error").unwrap_or_default();
    // The whole body only where it cannot be an answer with a token in it.
    let said = match (member("error"), member("error_description")) {
        (Some(code), Some(description)) => format!("{code}: {description}"),
        (Some(one), None) | (None, Some(one)) => one.to_owned(),
        (None, None) if status >= 400 => text.to_owned(),
        (None, None) => "an error".to_owned(),
    };
    let said = secrets.excerpt(&said, SHOWN);
    let reason = format!("{answered} with `{said}`");
    let advice = match code {
        "temporarily_unavailable" | "server_error" | "slow_down" => return LoginError::MayPass(reason),
        "invalid_grant" | "bad_refresh_token" => {
            "the refresh token is used up, revoked or of another client: allow access anew and write the new one into `auth`"
        }
        "invalid_scope" => "check `scope`",
        "unauthorized_client" | "unsupported_grant_type" => {
            "the provider does not let this client log in this way: check the type of `auth`"
        }
        "invalid_client" => CLIENT,
        _ if matches!(status, 401 | 403) => CLIENT,
        _ if matches!(status, 404 | 405 | 410) => {
            "there is no token to be had at this address: check `token_url`"
        }
        _ => "check `token_url` and the credentials of `auth`",
    };
    LoginError::Refused(format!("{reason}: {advice}"))
}

const CLIENT: &str =
    "check `client_id` and `client_secret`, and whether the provider wants them by `client_auth: basic`";

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use url::Url;

    use super::*;

    const NOW: Instant = Instant::from_seconds(1_790_000_000);

    fn answered(
        status: u16,
        headers: &[(&'static str, &'static str)],
        body: &str,
    ) -> Result<Granted, LoginError> {
        let answer = Answer {
            url: Url::parse("https://id.test/token").unwrap(),
            status: StatusCode::from_u16(status).unwrap(),
            headers: headers
                .iter()
                .map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)))
                .collect(),
            body: body.as_bytes().to_vec(),
            begun_at: NOW,
        };
        let auth = Auth::Bearer { token: "s3cret".into() };
        read(&answer, NOW, &Secrets::of(&auth))
    }

    #[test]
    fn a_token_is_read_with_what_is_said_about_it() {
        let cases = [
            (r#""expires_in":3600"#, Some(3_600)),
            (r#""expires_in":"60""#, Some(60)),
            (r#""expires_in":59.5"#, Some(59)),
            (r#""expires_in":1e300"#, Some(315_360_000)),
            (r#""expires_in":0"#, None),
            (r#""expires_in":-5"#, None),
            (r#""expires_in":null"#, None),
            (r#""expires_in":"soon""#, None),
            (r#""expires_in":"nan""#, None),
            (r#""token_type":"bearer""#, None),
        ];
        for (member, expected) in cases {
            let granted = answered(200, &[], &format!(r#"{{"access_token":"a",{member}}}"#)).unwrap();
            assert_eq!(granted.expires_in.map(|life| life.as_secs()), expected, "{member}");
            assert!(granted.refresh_token.is_none());
        }
        let granted = answered(201, &[], "\u{feff}{\"access_token\":\"a\",\"refresh_token\":\"r\"}").unwrap();
        assert_eq!(granted.refresh_token.unwrap().expose_secret(), "r");
    }

    #[test]
    fn what_is_no_token_says_what_to_do_and_no_secret() {
        let html = "<!doctype html><title>Sign in s3cret</title>";
        let cases = [
            (
                400,
                r#"{"error":"invalid_grant","error_description":"s3cret is used up"}"#,
                false,
                "allow access anew",
            ),
            (401, r#"{"error":"invalid_client"}"#, false, "client_auth: basic"),
            (401, "who is s3cret?", false, "`client_id`"),
            (400, r#"{"error":"invalid_scope"}"#, false, "check `scope`"),
            (400, r#"{"error":"unauthorized_client"}"#, false, "the type of `auth`"),
            (400, r#"{"error":"temporarily_unavailable"}"#, true, "temporarily"),
            (404, html, false, "check `token_url`"),
            (200, html, true, "a web page"),
            (200, "", true, "an empty body"),
            (200, "access_token=s3cret", true, "no JSON object"),
            (200, r#"{"token":"s3cret"}"#, false, "its members: token"),
            (200, r#"{"access_token":"","s3cret":1}"#, false, "without an `access_token`"),
            (200, r#"{"access_token":"a\nb"}"#, false, "no header can carry"),
            (200, r#"{"error":"bad_refresh_token","access_token":"s3cret"}"#, false, "allow access anew"),
            (200, r#"{"error":{"code":7},"access_token":"s3cret"}"#, false, "an error"),
            (302, "", false, "write the address it leads to"),
            (500, "s3cret", true, "500"),
            (503, "", true, "503"),
        ];
        for (status, body, may_pass, expected) in cases {
            let error = answered(status, &[], body).unwrap_err();
            let text = error.to_string();
            assert!(text.contains(expected) && !text.contains("s3cret"), "{status} {body}: {text}");
            assert_eq!(error.may_pass(), may_pass, "{status} {body}");
        }
    }

    #[test]
    fn a_provider_that_asks_for_patience_is_given_it() {
        let wait = |status, value| match answered(status, &[("retry-after", value)], "{}") {
            Err(LoginError::Limited { wait, .. }) => wait.map(|wait| wait.as_secs()),
            other => panic!("{other:?}"),
        };
        assert_eq!(wait(429, "30"), Some(30));
        assert_eq!(wait(503, "Mon, 21 Sep 2026 14:15:20 GMT"), Some(120));
        assert_eq!(wait(429, "soon"), None);
    }
}
