//! Who may ask for what: by a bearer token, or, where there are none, whoever reaches a loopback address by its own name.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{AUTHORIZATION, HOST, WWW_AUTHENTICATE},
    },
    middleware::Next,
    response::{IntoResponse, Response},
};
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use super::{Service, problem::Problem};
use crate::config::server::{May, Token};

/// The tokens, as hashes: comparing those tells nobody how much of a token was right.
#[derive(Debug)]
pub(super) struct Access {
    tokens: Vec<([u8; 32], Vec<May>)>,
}

impl Access {
    pub(super) fn new(tokens: &[Token]) -> Self {
        let hashed = |token: &Token| (hash(token.secret.expose_secret()), token.may.clone());
        Self { tokens: tokens.iter().map(hashed).collect() }
    }

    /// Whether requests need a token.
    pub(super) const fn has_tokens(&self) -> bool {
        !self.tokens.is_empty()
    }

    /// Lets a request in that may do one of these.
    fn check(&self, headers: &HeaderMap, wanted: &[May]) -> Result<(), Problem> {
        if self.tokens.is_empty() {
            return check_host(headers);
        }
        let Some(given) = bearer(headers) else {
            return Err(Problem::new(
                StatusCode::UNAUTHORIZED,
                "no_token",
                "this needs a token: send `Authorization: Bearer TOKEN`, one of `server.tokens`",
            ));
        };
        let given = hash(given);
        let Some((_, may)) = self.tokens.iter().find(|(known, _)| *known == given) else {
            return Err(Problem::new(StatusCode::UNAUTHORIZED, "unknown_token", "this token is not known"));
        };
        if may.contains(&May::Admin) || wanted.iter().any(|wanted| may.contains(wanted)) {
            return Ok(());
        }
        let wanted: Vec<&str> = wanted.iter().map(|may| may.name()).collect();
        let message = format!("this token may not do that: it needs `{}`, or `admin`", wanted.join("` or `"));
        Err(Problem::new(StatusCode::FORBIDDEN, "not_allowed", message))
    }
}

/// Where nobody needs a token, a page in a browser could ask in a person's stead, by a name of its own that leads here.
fn check_host(headers: &HeaderMap) -> Result<(), Problem> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let name = host.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')).map_or(host, |(name, _)| name);
    let address = name.trim_start_matches('[').trim_end_matches(']').parse::<std::net::IpAddr>();
    if name.eq_ignore_ascii_case("localhost") || address.is_ok_and(|address| address.is_loopback()) {
        return Ok(());
    }
    let message =
        format!("without tokens only this machine may ask, by `127.0.0.1` or `localhost`, not by `{host}`");
    Err(Problem::new(StatusCode::FORBIDDEN, "foreign_host", message))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Lets requests pass that may do one of the second.
pub(super) async fn authorize(
    State((service, wanted)): State<(Arc<Service>, &'static [May])>,
    request: Request,
    next: Next,
) -> Response {
    match service.access.check(request.headers(), wanted) {
        Ok(()) => next.run(request).await,
        Err(problem) => {
            let mut response = problem.into_response();
            if response.status() == StatusCode::UNAUTHORIZED {
                let challenge = HeaderValue::from_static("Bearer realm=\"onlynew\"");
                response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            }
            response
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(name: axum::http::HeaderName, value: &str) -> HeaderMap {
        HeaderMap::from_iter([(name, HeaderValue::from_str(value).unwrap())])
    }

    #[test]
    fn without_tokens_this_machine_alone_may_ask() {
        let access = Access::new(&[]);
        for host in
            ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "LOCALHOST", "[::1]:8080", "[::1]", "127.9.9.9"]
        {
            assert!(access.check(&asked(HOST, host), &[May::Gate]).is_ok(), "{host}");
        }
        for host in
            ["", "example.com", "127.0.0.1.example.com", "10.0.0.1:8080", "localhost.example.com", "[::2]:1"]
        {
            assert!(access.check(&asked(HOST, host), &[May::Gate]).is_err(), "{host}");
        }
        assert!(access.check(&HeaderMap::new(), &[May::Gate]).is_err());
    }

    #[test]
    fn a_token_is_good_for_what_it_may() {
        let token = |text: &str, may: &[May]| Token { secret: text.into(), may: may.to_vec() };
        let access = Access::new(&[token("gate-token", &[May::Gate]), token("all", &[May::Admin])]);
        let cases = [
            ("Bearer gate-token", &[May::Gate][..], true),
            ("bearer  gate-token ", &[May::Read, May::Gate][..], true),
            ("Bearer gate-token", &[May::Locks][..], false),
            ("Bearer all", &[May::Locks][..], true),
            ("Bearer gate-toke", &[May::Gate][..], false),
            ("Bearer ", &[May::Gate][..], false),
            ("Bearer", &[May::Gate][..], false),
            ("Basic gate-token", &[May::Gate][..], false),
        ];
        for (header, wanted, is_let_in) in cases {
            let found = access.check(&asked(AUTHORIZATION, header), wanted);
            assert_eq!(found.is_ok(), is_let_in, "{header} {wanted:?}");
        }
        assert!(access.check(&asked(HOST, "localhost"), &[May::Gate]).is_err());
    }
}
