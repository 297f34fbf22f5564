//! Credentials on a request, put there for every attempt anew, and kept out of everything that a person
//! or a log gets to see.

use base64::{Engine, engine::general_purpose::STANDARD};
use reqwest::header::{AUTHORIZATION, COOKIE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use url::Url;

use super::{
    address::{add_query, encoded},
    request::RequestError,
};
use crate::config::account::{Auth, Grant, KeyPlace};

/// Words in a query parameter's name that say its value is nobody's business.
const SECRET_WORDS: [&str; 8] =
    ["key", "token", "secret", "password", "passwd", "signature", "credential", "auth"];

/// Puts the credential on a request. A key in the query is added only where the URL has none: a next URL
/// may bring it along.
pub fn sign(auth: &Auth, url: &mut Url, headers: &mut HeaderMap) -> Result<(), RequestError> {
    match auth {
        Auth::None => {}
        Auth::Bearer { token } => {
            set(headers, AUTHORIZATION, &format!("Bearer {}", token.expose_secret()))?;
        }
        Auth::Basic { username, password } => {
            set(headers, AUTHORIZATION, &format!("Basic {}", basic(username, password)))?;
        }
        Auth::ApiKey { place, name, prefix, key } => {
            let value = format!("{prefix}{}", key.expose_secret());
            match place {
                KeyPlace::Header => {
                    let name = name
                        .parse::<HeaderName>()
                        .map_err(|_| RequestError::HeaderName { name: name.clone() })?;
                    set(headers, name, &value)?;
                }
                KeyPlace::Query => {
                    if !url.query_pairs().any(|(present, _)| present == name.as_str()) {
                        add_query(url, name, &Value::from(value))?;
                    }
                }
                KeyPlace::Cookie => {
                    let cookie = match headers.get(COOKIE).and_then(|before| before.to_str().ok()) {
                        Some(before) => format!("{before}; {name}={value}"),
                        None => format!("{name}={value}"),
                    };
                    set(headers, COOKIE, &cookie)?;
                }
            }
        }
        // What signs is the token that the login got, as a bearer.
        Auth::OAuth2(_) => return Err(RequestError::NoToken),
    }
    Ok(())
}

fn set(headers: &mut HeaderMap, name: HeaderName, value: &str) -> Result<(), RequestError> {
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| RequestError::HeaderValue { name: name.as_str().to_owned() })?;
    value.set_sensitive(true);
    headers.insert(name, value);
    Ok(())
}

/// A user's name and password as `Authorization: Basic` has them.
pub fn basic(username: &str, password: &SecretString) -> String {
    STANDARD.encode(format!("{username}:{}", password.expose_secret()))
}

/// What must not be seen, in every form in which it travels.
pub struct Secrets(Vec<String>);

impl Secrets {
    /// The secrets of a credential. A user name is one too: some vendors put their key there.
    pub fn of(auth: &Auth) -> Self {
        let mut secrets = Self(Vec::new());
        secrets.add(match auth {
            Auth::None => Vec::new(),
            Auth::Bearer { token } => vec![token.expose_secret().to_owned()],
            Auth::Basic { username, password } => {
                vec![basic(username, password), password.expose_secret().to_owned(), username.clone()]
            }
            Auth::ApiKey { key, .. } => vec![key.expose_secret().to_owned()],
            Auth::OAuth2(oauth2) => {
                let mut secrets = vec![
                    oauth2.client_secret.expose_secret().to_owned(),
                    basic(&oauth2.client_id, &oauth2.client_secret),
                ];
                if let Grant::RefreshToken { refresh_token } = &oauth2.grant {
                    secrets.push(refresh_token.expose_secret().to_owned());
                }
                secrets
            }
        });
        secrets
    }

    /// Keeps a secret that came later, such as an access token, out of sight as well.
    pub fn learn(&mut self, secret: &SecretString) {
        if !self.0.iter().any(|known| known == secret.expose_secret()) {
            self.add(vec![secret.expose_secret().to_owned()]);
        }
    }

    fn add(&mut self, mut plain: Vec<String>) {
        let escaped: Vec<String> = plain.iter().map(|secret| encoded(secret).into_owned()).collect();
        plain.extend(escaped);
        plain.retain(|secret| !secret.is_empty());
        self.0.extend(plain);
        self.0.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        self.0.dedup();
    }

    /// The text without secrets.
    pub fn hide(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| text.replace(secret.as_str(), "***"))
    }

    /// The first `chars` characters of a text in one line, without secrets.
    pub fn excerpt(&self, text: &str, chars: usize) -> String {
        // Hidden before it is cut, or a secret could be cut in two and stay.
        let longest = self.0.first().map_or(0, String::len);
        let head: String = text.chars().take(chars.saturating_mul(4).saturating_add(longest)).collect();
        let line = self.hide(&head).split(|c: char| c.is_whitespace() || c.is_control()).fold(
            String::new(),
            |mut line, word| {
                if !line.is_empty() && !word.is_empty() {
                    line.push(' ');
                }
                line.push_str(word);
                line
            },
        );
        match line.char_indices().nth(chars) {
            Some((end, _)) => format!("{}…", line.get(..end).unwrap_or_default()),
            None => line,
        }
    }

    /// A URL as a person may see it: without secrets, also those that the credential does not know of.
    pub fn url(&self, url: &Url) -> String {
        let mut shown = url.clone();
        if url.query().is_some() {
            let is_secret = |name: &str| {
                let name = name.to_ascii_lowercase();
                SECRET_WORDS.iter().any(|word| name.contains(word))
            };
            let query: Vec<String> = url
                .query_pairs()
                .map(|(name, value)| {
                    let value = if is_secret(&name) { "***".into() } else { encoded(&value).into_owned() };
                    format!("{}={value}", encoded(&name))
                })
                .collect();
            shown.set_query(Some(&query.join("&")));
        }
        self.excerpt(shown.as_str(), 300)
    }
}

impl std::fmt::Debug for Secrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secrets(***)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_secret_is_shown_in_any_form() {
        let auth = Auth::Basic { username: "sk_test_12345".into(), password: "p@ss".into() };
        let secrets = Secrets::of(&auth);
        let seen = secrets.excerpt("no sk_test_12345\n or p@ss,\tp%40ss or c2tfdGVzdF8xMjM0NTpwQHNz", 200);
        assert_eq!(seen, "no *** or ***, *** or ***");
        let key = Auth::ApiKey {
            place: KeyPlace::Query,
            name: "k".into(),
            prefix: String::new(),
            key: "s3cr&t".into(),
        };
        let mut url = Url::parse("https://api.test/x?page_token=abc&n=1").unwrap();
        sign(&key, &mut url, &mut HeaderMap::new()).unwrap();
        assert_eq!(url.query(), Some("page_token=abc&n=1&k=s3cr%26t"));
        assert_eq!(Secrets::of(&key).url(&url), "https://api.test/x?page_token=***&n=1&k=***");
    }

    #[test]
    fn a_secret_is_hidden_before_the_text_is_cut() {
        let secret = "x".repeat(50);
        let secrets = Secrets::of(&Auth::Bearer { token: secret.clone().into() });
        assert_eq!(secrets.excerpt(&format!("abcdef {secret} end"), 10), "abcdef ***…");
        assert_eq!(secrets.excerpt("žžžž", 2), "žž…");
    }

    #[test]
    fn a_credential_with_a_line_break_is_refused_without_showing_it() {
        let auth = Auth::Bearer { token: "abc\ndef".into() };
        let error = sign(&auth, &mut Url::parse("https://api.test").unwrap(), &mut HeaderMap::new());
        assert!(!error.unwrap_err().to_string().contains("abc"));
    }
}
