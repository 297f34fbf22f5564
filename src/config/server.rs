//! `server`: where onlynew listens, and who may ask for what.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ipnet::IpNet;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{
    de::Spanned,
    error::{Problem, Problems},
    server_file::{ServerFile, TokenFile},
    values::{network, unusable},
};

/// Where onlynew listens where nothing else is said.
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080);

/// Shorter tokens can be guessed.
const SHORTEST_TOKEN: usize = 16;

/// Where onlynew listens, and who may ask for what.
#[derive(Debug)]
pub struct Server {
    /// The address and the port.
    pub listen: SocketAddr,
    /// The tokens that requests are let in by; without any, all may do everything.
    pub tokens: Vec<Token>,
    /// The proxies whose word on addresses is believed.
    pub trusted_proxies: Vec<IpNet>,
}

impl Default for Server {
    fn default() -> Self {
        Self { listen: LISTEN, tokens: Vec::new(), trusted_proxies: Vec::new() }
    }
}

/// A bearer token.
#[derive(Debug)]
pub struct Token {
    /// The token.
    pub secret: SecretString,
    /// What it is good for.
    pub may: Vec<May>,
}

/// What a token may be good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum May {
    /// Acquire, complete, fail and renew keys of the gate, and read one.
    Gate,
    /// Acquire, renew and release locks.
    Locks,
    /// Look into everything.
    Read,
    /// Everything.
    Admin,
}

impl May {
    /// The name in the file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Gate => "gate",
            Self::Locks => "locks",
            Self::Read => "read",
            Self::Admin => "admin",
        }
    }
}

/// Where onlynew listens; `None` where something in it is wrong.
pub(super) fn server(file: &Spanned<ServerFile>, problems: &Problems) -> Option<Server> {
    let before = problems.count();
    let listen = file.listen.as_ref().map_or(Some(LISTEN), |text| address(text, problems));
    let files = file.tokens.as_ref();
    let tokens = files.iter().flat_map(|tokens| tokens.iter()).filter_map(|file| token(file, problems));
    let tokens: Vec<Token> = tokens.collect();
    let proxies = file.trusted_proxies.iter().flat_map(|proxies| proxies.iter());
    let trusted_proxies: Vec<IpNet> = proxies.filter_map(|text| network(text, problems)).collect();
    if let (Some(listen), Some(given)) = (listen, &file.listen)
        && !listen.ip().is_loopback()
        && files.is_none_or(|files| files.is_empty() && files.whole)
    {
        let message = format!("{} can be reached by others, and nothing says who may ask", given.quoted());
        let problem = Problem::new(given.span, message);
        problems.add(problem.help(
            "add `tokens: [{token: \"${ONLYNEW_TOKEN}\", may: [gate, locks]}]`, or listen on `127.0.0.1`",
        ));
    }
    let is_same = |one: &Token, other: &Token| one.secret.expose_secret() == other.secret.expose_secret();
    let is_repeated = |at: usize, token: &Token| tokens.iter().take(at).any(|before| is_same(before, token));
    if let Some(files) = files
        && tokens.iter().enumerate().any(|(at, token)| is_repeated(at, token))
    {
        let problem = Problem::new(files.span, "two of these tokens are the same");
        problems.add(problem.help("give each program a token of its own, or one token all that it `may`"));
    }
    if problems.count() > before {
        return None;
    }
    Some(Server { listen: listen?, tokens, trusted_proxies })
}

fn address(text: &Spanned<String>, problems: &Problems) -> Option<SocketAddr> {
    let literal = match text.trim().split_once(':') {
        Some(("localhost", port)) => format!("{}:{port}", Ipv4Addr::LOCALHOST),
        _ => text.trim().to_owned(),
    };
    let parsed = literal.parse().ok();
    if parsed.is_none() {
        let problem = unusable(text, format!("`{}` is not an address to listen on", text.value));
        problems.add(problem.expected("an IP address and a port, such as `127.0.0.1:8080` or `[::]:8080`"));
    }
    parsed
}

fn token(file: &Spanned<TokenFile>, problems: &Problems) -> Option<Token> {
    let before = problems.count();
    let text = file.token.as_str();
    if text.len() < SHORTEST_TOKEN || text.contains(|c: char| !c.is_ascii_graphic()) {
        let message = "this token has fewer than 16 characters, or others than letters, digits and signs";
        let problem = Problem::new(file.token.span, message);
        problems.add(problem.help("`openssl rand -hex 32` makes a good one"));
    }
    if file.may.is_empty() && file.may.whole {
        let problem = Problem::new(file.may.span, "this token is good for nothing");
        problems.add(problem.expected("`gate`, `locks`, `read` or `admin`"));
    }
    let may = file.may.iter().map(|may| may.value).collect();
    (problems.count() == before).then(|| Token { secret: SecretString::from(text), may })
}
