//! Keys of the gate, asked for in the scope `charge`: of the store, and over HTTP.

use std::{path::Path, sync::Arc};

use onlynew::{
    domain::gate::{Act, Answer, GateKey, ScopeRules},
    intake::intake,
    server::Server,
    store::{Acquired, Acted, KeyAct, KeyAsk, Store},
};
use reqwest::{RequestBuilder, header::HeaderMap};
use serde_json::Value;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::database::Database;

pub const SCOPE: &str = "charge";

pub fn key(text: &str) -> GateKey {
    GateKey::parse(text).unwrap()
}

pub fn ask(text: &str) -> KeyAsk {
    KeyAsk { key: key(text), fingerprint: None, owner: None, correlation_id: None, metadata: None }
}

pub async fn acquire(store: &Arc<dyn Store>, rules: &ScopeRules, ask: &KeyAsk) -> Acquired {
    store.acquire_keys(SCOPE, rules, std::slice::from_ref(ask)).await.unwrap().remove(0)
}

pub fn started(acquired: &Acquired) -> bool {
    matches!(acquired.answer, Answer::Started { .. })
}

/// Does something under a fence: completes with a small result, fails with a reason.
pub async fn act(
    store: &Arc<dyn Store>,
    rules: &ScopeRules,
    text: &str,
    fence: i64,
    act: Act,
) -> Option<Acted> {
    let act = KeyAct {
        key: key(text),
        fence,
        act,
        result: Some(r#"{"id":7}"#.to_owned()),
        reason: Some("because".to_owned()),
        rules: *rules,
    };
    store.act_on_key(SCOPE, &act).await.unwrap()
}

/// A server over a database, which stops with this value.
pub struct GateServer {
    pub url: String,
    pub database: Database,
    client: reqwest::Client,
    _stop: DropGuard,
}

/// What was answered.
#[derive(Debug)]
pub struct Said {
    pub status: u16,
    pub headers: HeaderMap,
    pub body: Value,
}

impl Said {
    /// The status, and the state or the code of the error.
    pub fn short(&self) -> (u16, &str) {
        let state = self.body["state"].as_str();
        (self.status, state.or_else(|| self.body["error"]["code"].as_str()).unwrap_or_default())
    }

    pub fn fence(&self) -> i64 {
        self.body["fence"].as_i64().unwrap()
    }
}

impl GateServer {
    /// A server that this jobs file describes, less `server.listen`.
    pub async fn start(database: Database, server: &str, gate: &str) -> Self {
        Self::start_with(database, server, &format!("gate: {gate}")).await
    }

    /// The same with any other parts.
    pub async fn start_with(database: Database, server: &str, rest: &str) -> Self {
        let text = format!("server: {{listen: \"127.0.0.1:0\"{server}}}\n{rest}\n");
        let config = onlynew::config::load_str("jobs.yaml", &text, Path::new(""), &|_| None);
        let config = config.unwrap_or_else(|errors| panic!("{errors}"));
        let store = database.open().await;
        let mut hooks = Vec::new();
        for hook in config.hooks.values() {
            hooks.push((Arc::clone(hook), store.register_job(&hook.name, None).await.unwrap()));
        }
        let (intake, writer) = intake(Arc::clone(&store));
        let server =
            Server::bind(&config.server.unwrap(), store, config.scopes, hooks, intake).await.unwrap();
        let url = format!("http://{}", server.address().unwrap());
        let stop = CancellationToken::new();
        tokio::spawn(server.serve(stop.clone()));
        tokio::spawn(writer.run(|| {}));
        Self { url, database, client: reqwest::Client::new(), _stop: stop.drop_guard() }
    }

    pub fn request(&self, method: &str, path: &str) -> RequestBuilder {
        self.client.request(method.parse().unwrap(), format!("{}{path}", self.url))
    }

    /// `POST` with this body.
    pub async fn post(&self, path: &str, body: Value) -> Said {
        said(self.request("POST", path).json(&body)).await
    }

    /// The same under `/v1/gate/charge/`.
    pub async fn ask(&self, path: &str, body: Value) -> Said {
        self.post(&format!("/v1/gate/charge/{path}"), body).await
    }
}

pub async fn said(request: RequestBuilder) -> Said {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let text = response.text().await.unwrap();
    Said { status, headers, body: serde_json::from_str(&text).unwrap_or(Value::String(text)) }
}
