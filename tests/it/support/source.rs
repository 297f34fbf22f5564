//! A source API that a test scripts: it answers what it is told to, also what no server should, and keeps
//! every request. It speaks HTTP/1.1 on the bare socket, since half of its answers are broken on purpose.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use url::Url;

/// A request that was received.
#[derive(Clone, Debug)]
pub struct Asked {
    pub method: String,
    /// The path as it was sent, escapes and all.
    pub path: String,
    /// The query, decoded.
    pub query: Vec<(String, String)>,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Asked {
    /// The value of a query parameter.
    pub fn param(&self, name: &str) -> Option<&str> {
        find(&self.query, name)
    }

    /// The value of a query parameter as a number; 0 where it is missing.
    pub fn number(&self, name: &str) -> usize {
        self.param(name).map_or(0, |value| value.parse().unwrap())
    }

    /// The value of a header.
    pub fn header(&self, name: &str) -> Option<&str> {
        find(&self.headers, name)
    }
}

fn find<'a>(pairs: &'a [(String, String)], name: &str) -> Option<&'a str> {
    pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
}

/// What the source does with a request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Answers.
    Whole { status: u16, headers: Vec<(String, String)>, body: Vec<u8> },
    /// Promises so many bytes more than it sends.
    Cut { body: Vec<u8>, missing: usize },
    /// Closes the connection without a word.
    Close,
    /// Never answers.
    Hang,
}

impl Answer {
    /// 200 with a JSON body.
    pub fn json(body: &Value) -> Self {
        Self::text(&body.to_string()).header("content-type", "application/json")
    }

    /// 200 with a body as it is.
    pub fn text(body: &str) -> Self {
        Self::Whole { status: 200, headers: Vec::new(), body: body.as_bytes().to_vec() }
    }

    /// A status with a JSON body that says nothing.
    pub fn status(status: u16) -> Self {
        Self::Whole { status, headers: Vec::new(), body: br#"{"message":"no"}"#.to_vec() }
    }

    /// The same with one more header.
    pub fn header(mut self, name: &str, value: &str) -> Self {
        if let Self::Whole { headers, .. } = &mut self {
            headers.push((name.to_owned(), value.to_owned()));
        }
        self
    }
}

/// A running source; it stops when it is dropped.
#[derive(Debug)]
pub struct Source {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: JoinHandle<()>,
}

impl Drop for Source {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Source {
    /// A source that answers each request by `handler`.
    pub async fn start(handler: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let (kept, handler) = (Arc::clone(&asked), Arc::new(handler));
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, Arc::clone(&kept), Arc::clone(&handler)));
            }
        });
        Self { address, asked, task }
    }

    /// A source that gives these answers one after another, and the last one for ever.
    pub async fn script(answers: impl IntoIterator<Item = Answer>) -> Self {
        let answers: Vec<_> = answers.into_iter().collect();
        let next = Mutex::new(0);
        Self::start(move |_| {
            let mut next = next.lock().unwrap();
            let answer = answers[(*next).min(answers.len() - 1)].clone();
            *next += 1;
            answer
        })
        .await
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests so far.
    pub fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    /// A query parameter of every request so far; `-` where it is missing.
    pub fn params(&self, name: &str) -> Vec<String> {
        self.asked().iter().map(|asked| asked.param(name).unwrap_or("-").to_owned()).collect()
    }
}

async fn serve<H: Fn(&Asked) -> Answer>(
    mut stream: TcpStream,
    kept: Arc<Mutex<Vec<Asked>>>,
    handler: Arc<H>,
) {
    let Some(asked) = read(&mut stream).await else { return };
    kept.lock().unwrap().push(asked.clone());
    let (head, body) = match handler(&asked) {
        Answer::Close => return,
        Answer::Hang => return std::future::pending().await,
        Answer::Cut { body, missing } => {
            (format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n", body.len() + missing), body)
        }
        Answer::Whole { status, headers, body } => {
            let mut head = format!("HTTP/1.1 {status} X\r\ncontent-length: {}\r\n", body.len());
            for (name, value) in headers {
                head.push_str(&format!("{name}: {value}\r\n"));
            }
            (head, body)
        }
    };
    let head = format!("{head}connection: close\r\n\r\n");
    let _ = stream.write_all(&[head.as_bytes(), &body].concat()).await;
    let _ = stream.shutdown().await;
}

async fn read(stream: &mut TcpStream) -> Option<Asked> {
    let mut bytes = Vec::new();
    while !bytes.windows(4).any(|end| end == b"\r\n\r\n") {
        let mut chunk = [0; 4096];
        let length = stream.read(&mut chunk).await.ok().filter(|length| *length > 0)?;
        bytes.extend_from_slice(&chunk[..length]);
    }
    let text = String::from_utf8(bytes).ok()?;
    let mut lines = text.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?, words.next()?);
    let url = Url::parse("http://source").unwrap().join(target).ok()?;
    let headers = lines.take_while(|line| !line.is_empty()).filter_map(|line| line.split_once(": "));
    Some(Asked {
        method: method.to_owned(),
        path: target.split('?').next()?.to_owned(),
        query: url.query_pairs().into_owned().collect(),
        headers: headers.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect(),
    })
}
