//! An HTTP server on 127.0.0.1 whose answers a test writes: it stands for a source or for n8n.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Query, State},
    http::HeaderMap,
    response::Response,
};
use serde_json::Value;
use tokio::sync::watch;

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    pub query: BTreeMap<String, String>,
    pub headers: HeaderMap,
    pub body: String,
}

impl Asked {
    /// A query parameter; the empty text where it is missing.
    pub fn param(&self, name: &str) -> &str {
        self.query.get(name).map_or("", String::as_str)
    }

    /// A header; the empty text where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

/// What the server does with a request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// 200 with this JSON text.
    Json(String),
    /// This status, headers and body.
    Status(u16, Vec<(&'static str, String)>, String),
    /// This, after a while.
    Slow(Duration, Box<Reply>),
    /// No answer, for as long as the other side waits.
    Hold,
}

impl Reply {
    /// A status without headers and body.
    pub fn status(code: u16) -> Self {
        Self::Status(code, Vec::new(), String::new())
    }
}

type Answer = dyn Fn(&Asked) -> Reply + Send + Sync;

/// A server; it ends with the test's runtime.
#[derive(Clone)]
pub struct Server {
    /// `http://127.0.0.1:PORT`.
    pub url: String,
    asked: Arc<Mutex<Vec<Asked>>>,
    count: watch::Sender<usize>,
    answer: Arc<Mutex<Arc<Answer>>>,
}

impl Server {
    /// Serves what `answer` says.
    pub async fn new(answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) -> Self {
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let server = Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            asked: Arc::default(),
            count: watch::Sender::new(0),
            answer: Arc::new(Mutex::new(Arc::new(answer))),
        };
        let routes = Router::new().fallback(serve).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
        server
    }

    /// From now on the server does what `answer` says.
    pub fn now_answers(&self, answer: impl Fn(&Asked) -> Reply + Send + Sync + 'static) {
        *self.answer.lock().unwrap() = Arc::new(answer);
    }

    /// All requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// Waits until `condition` holds for the requests so far.
    pub async fn wait_until(&self, condition: impl Fn(&[Asked]) -> bool) {
        let mut count = self.count.subscribe();
        while !condition(&self.asked.lock().unwrap()) {
            count.changed().await.unwrap();
        }
    }
}

async fn serve(
    State(server): State<Server>,
    headers: HeaderMap,
    Query(query): Query<BTreeMap<String, String>>,
    body: Bytes,
) -> Response {
    let body = String::from_utf8(body.to_vec()).unwrap();
    let asked = Asked { query, headers, body };
    let answer = Arc::clone(&server.answer.lock().unwrap());
    let mut reply = answer(&asked);
    server.asked.lock().unwrap().push(asked);
    server.count.send_modify(|count| *count += 1);
    while let Reply::Slow(wait, then) = reply {
        tokio::time::sleep(wait).await;
        reply = *then;
    }
    let response = Response::builder();
    match reply {
        Reply::Json(text) => {
            response.header("content-type", "application/json").body(Body::from(text)).unwrap()
        }
        Reply::Status(code, headers, body) => headers
            .into_iter()
            .fold(response.status(code), |response, (name, value)| response.header(name, value))
            .body(Body::from(body))
            .unwrap(),
        Reply::Slow(..) => unreachable!("it is over"),
        Reply::Hold => std::future::pending().await,
    }
}
