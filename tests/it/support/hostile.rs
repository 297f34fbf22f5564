//! A receiver that behaves as badly as networks, proxies and overloaded machines do: what it does with each request is
//! drawn from a seed, the request's id and how often that came. It keeps account of all that came and of what it did.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    io,
    net::SocketAddr,
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use onlynew::domain::{clock::machine_time, instant::Instant};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::watch,
};

/// The path that it listens at.
pub const PATH: &str = "/webhook/hostile";

/// How much a flood would send to whoever reads it all. What systems hold of it on its way is a fraction.
pub const FLOOD: usize = 64 << 20;

/// What it does with everything for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// So many of a hundred requests meet trouble, each with one of its own.
    Fair(u8),
    /// It asks to be left alone for a second.
    Storm,
    /// Everything is elsewhere.
    Moved,
    /// No workflow is active.
    NotRegistered,
    /// Nobody listens.
    Closed,
}

/// What it did with one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Act {
    /// Answers this at once; a 2xx after taking the events.
    Status(u16),
    /// Refuses for the moment, and wants this request no sooner than in a second.
    Later(u16),
    /// Takes the events, sends the status, and nothing after it.
    StatusAlone,
    /// Takes the events, and sends an answer a byte at a time.
    Trickle,
    /// Takes the events, and sends an answer of [`FLOOD`] bytes.
    Flood,
    /// Says that a gate knows the events as done.
    Gate,
    /// Resets the connection after it has read the request.
    Reset,
    /// Answers nothing.
    Hang,
    /// A proxy answers for it.
    Gateway(u16),
    /// Hangs up before it has read the body.
    HangUp,
}

impl Act {
    /// Its sender cannot know whether the events were taken.
    pub const fn is_ambiguous(self) -> bool {
        matches!(self, Self::Reset | Self::Hang | Self::Gateway(_))
    }

    /// It tells its sender that the events are taken.
    pub const fn says_taken(self) -> bool {
        matches!(self, Self::Status(200..=299) | Self::StatusAlone | Self::Trickle | Self::Flood | Self::Gate)
    }
}

/// One event, as a request names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    pub id: String,
    pub key: String,
    pub sequence: i64,
}

/// One request and what became of it.
#[derive(Clone, Debug)]
pub struct Arrival {
    pub phase: Phase,
    /// The request's first line.
    pub line: String,
    pub headers: HashMap<String, String>,
    /// Empty where it was not read.
    pub body: String,
    pub events: Vec<Named>,
    pub act: Act,
    /// The events were taken, whatever was answered.
    pub is_taken: bool,
    pub at: Instant,
    /// When the status was written, and so the whole answer where it has no body.
    pub answered_at: Option<Instant>,
    /// How much of a flood was taken.
    pub flooded: usize,
}

impl Arrival {
    /// A header; the empty text where it is missing.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", String::as_str)
    }

    /// The number that its sender gives it.
    pub fn number(&self) -> u32 {
        self.header("x-onlynew-attempt").parse().unwrap()
    }
}

/// What the receiver does not take for what it is.
#[derive(Clone, Debug, Default)]
pub struct Tastes {
    /// Events that it refuses, by key and sequence, and with them every request that holds one.
    pub poison: HashSet<(String, i64)>,
    /// A request with more events is too large.
    pub most_events: Option<usize>,
}

/// The receiver; it ends with the test's runtime.
#[derive(Clone)]
pub struct Receiver(Arc<Inner>);

struct Inner {
    address: SocketAddr,
    seed: u64,
    tastes: Tastes,
    phase: watch::Sender<Phase>,
    log: Mutex<Vec<Arrival>>,
    count: watch::Sender<usize>,
}

impl Receiver {
    pub fn new(seed: u64, tastes: Tastes) -> Self {
        let spare = socket(SocketAddr::from(([127, 0, 0, 1], 0)));
        let address = spare.local_addr().unwrap();
        let receiver = Self(Arc::new(Inner {
            address,
            seed,
            tastes,
            phase: watch::Sender::new(Phase::Fair(0)),
            log: Mutex::default(),
            count: watch::Sender::new(0),
        }));
        tokio::spawn(receiver.clone().accept(spare));
        receiver
    }

    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.0.address)
    }

    /// From now on it behaves so.
    pub fn now(&self, phase: Phase) {
        self.0.phase.send_replace(phase);
    }

    /// All requests so far, in the order in which they had come.
    pub fn log(&self) -> MutexGuard<'_, Vec<Arrival>> {
        self.0.log.lock().unwrap()
    }

    /// Waits until `condition` holds for the requests so far.
    pub async fn wait_until(&self, condition: impl Fn(&[Arrival]) -> bool) {
        let mut count = self.0.count.subscribe();
        while !condition(&self.log()) {
            count.changed().await.unwrap();
        }
    }

    /// Listens but while it is closed. A socket that does not listen holds its port all the time.
    async fn accept(self, mut spare: TcpSocket) {
        let mut phase = self.0.phase.subscribe();
        loop {
            phase.wait_for(|phase| *phase != Phase::Closed).await.unwrap();
            let next = socket(self.0.address);
            let listener = std::mem::replace(&mut spare, next).listen(1024).unwrap();
            self.clone().accept_until_closed(listener, &mut phase).await;
        }
    }

    async fn accept_until_closed(self, listener: TcpListener, phase: &mut watch::Receiver<Phase>) {
        loop {
            tokio::select! {
                _ = phase.wait_for(|phase| *phase == Phase::Closed) => return,
                Ok((stream, _)) = listener.accept() => {
                    let receiver = self.clone();
                    // What its other end does to a connection is no matter of this one.
                    tokio::spawn(async move { receiver.serve(BufReader::new(stream)).await.ok() });
                }
            }
        }
    }

    /// Serves the requests of one connection.
    async fn serve(self, mut stream: BufReader<TcpStream>) -> io::Result<()> {
        while let Some((line, headers)) = head(&mut stream).await? {
            let phase = *self.0.phase.borrow();
            let mut random = self.draw(&headers);
            let hangs_up = match phase {
                Phase::Closed => true,
                Phase::Fair(trouble) => random.u8(..100) < trouble / 6,
                _ => false,
            };
            let mut body = Vec::new();
            if !hangs_up {
                let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
                body.resize(length, 0);
                stream.read_exact(&mut body).await?;
            }
            let body = String::from_utf8(body).unwrap();
            let events = named(&body);
            let (act, number) = {
                let mut log = self.log();
                let is_known = !events.is_empty() && events.iter().all(|event| was_taken(&log, event));
                let act =
                    if hangs_up { Act::HangUp } else { self.choose(phase, &events, is_known, &mut random) };
                let is_taken = act.says_taken() && act != Act::Gate || act.is_ambiguous() && random.bool();
                let (at, answered_at, flooded) = (machine_time(), None, 0);
                log.push(Arrival {
                    phase,
                    line,
                    headers,
                    body,
                    events,
                    act,
                    is_taken,
                    at,
                    answered_at,
                    flooded,
                });
                (act, log.len() - 1)
            };
            self.0.count.send_replace(number + 1);
            if !self.answer(&mut stream, act, number).await? || random.u8(..20) == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Chance, the same for a request of this id that came so often before.
    fn draw(&self, headers: &HashMap<String, String>) -> fastrand::Rng {
        let id = headers.get("webhook-id");
        let times = self.log().iter().filter(|arrival| arrival.headers.get("webhook-id") == id).count();
        let mut hasher = DefaultHasher::new();
        (self.0.seed, id, times).hash(&mut hasher);
        fastrand::Rng::with_seed(hasher.finish())
    }

    fn choose(&self, phase: Phase, events: &[Named], is_known: bool, random: &mut fastrand::Rng) -> Act {
        let Tastes { poison, most_events } = &self.0.tastes;
        let is_poison = |event: &Named| poison.contains(&(event.key.clone(), event.sequence));
        match phase {
            Phase::Storm => Act::Later(random.choice([429, 503]).unwrap()),
            Phase::Moved => Act::Status(random.choice([301, 302, 307]).unwrap()),
            Phase::NotRegistered => Act::Status(404),
            Phase::Fair(trouble) if random.u8(..100) < trouble => match random.u8(..16) {
                0..4 => Act::Reset,
                4..6 => Act::Hang,
                6..9 => Act::Gateway(random.choice([502, 504]).unwrap()),
                9 => Act::Later(random.choice([408, 425, 409]).unwrap()),
                _ => Act::Status(random.choice([500, 503, 408, 425, 409]).unwrap()),
            },
            _ if events.iter().any(is_poison) => Act::Status(400),
            _ if most_events.is_some_and(|most| events.len() > most) => Act::Status(413),
            _ if is_known && random.bool() => Act::Gate,
            _ => match random.u8(..100) {
                0 => Act::StatusAlone,
                1 => Act::Trickle,
                2 => Act::Flood,
                3..40 => Act::Status(204),
                _ => Act::Status(200),
            },
        }
    }

    /// Answers; `false` where the connection is of no use after it.
    async fn answer(&self, stream: &mut BufReader<TcpStream>, act: Act, number: usize) -> io::Result<bool> {
        let answered = || self.log()[number].answered_at = Some(machine_time());
        match act {
            Act::HangUp => Ok(false),
            Act::Reset => {
                stream.get_ref().set_zero_linger()?;
                Ok(false)
            }
            Act::Hang => {
                stream.read_u8().await?;
                Ok(false)
            }
            Act::StatusAlone => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n").await?;
                answered();
                stream.read_u8().await?;
                Ok(false)
            }
            Act::Trickle => {
                stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n").await?;
                answered();
                for _ in 0..1_000 {
                    stream.write_all(b"x").await?;
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                Ok(true)
            }
            Act::Flood => {
                let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {FLOOD}\r\n\r\n");
                stream.write_all(head.as_bytes()).await?;
                answered();
                let some = vec![b'x'; 1 << 16];
                for _ in 0..FLOOD / some.len() {
                    stream.write_all(&some).await?;
                    self.log()[number].flooded += some.len();
                }
                Ok(true)
            }
            Act::Status(code) | Act::Later(code) | Act::Gateway(code) => {
                let wait = if matches!(act, Act::Later(_)) { "retry-after: 1\r\n" } else { "" };
                let place = if (300..400).contains(&code) { self.url() } else { String::new() };
                let place = if place.is_empty() { place } else { format!("location: {place}\r\n") };
                let body = if code == 404 { "The requested webhook is not registered." } else { "" };
                let length =
                    if code == 204 { String::new() } else { format!("content-length: {}\r\n", body.len()) };
                let answer = format!("HTTP/1.1 {code} So\r\n{wait}{place}{length}\r\n{body}");
                stream.write_all(answer.as_bytes()).await?;
                answered();
                Ok(true)
            }
            Act::Gate => {
                let answer = "HTTP/1.1 409 Conflict\r\ncontent-length: 17\r\n\r\n{\"state\": \"done\"}";
                stream.write_all(answer.as_bytes()).await?;
                answered();
                Ok(true)
            }
        }
    }
}

/// A socket that does not listen yet, at an address that others of this process may have as well.
fn socket(address: SocketAddr) -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseaddr(true).unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(address).unwrap();
    socket
}

/// The next request's first line and headers, their names in small letters; `None` where there is none.
async fn head(stream: &mut BufReader<TcpStream>) -> io::Result<Option<(String, HashMap<String, String>)>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if stream.read_line(&mut line).await? == 0 {
            return Ok(None);
        }
        let line = line.trim_end().to_owned();
        if line.is_empty() {
            break;
        }
        lines.push(line);
    }
    let headers = lines.iter().skip(1).filter_map(|line| line.split_once(':'));
    let headers = headers.map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned())).collect();
    Ok(Some((lines.swap_remove(0), headers)))
}

/// The events of a request, which holds one or a batch.
fn named(body: &str) -> Vec<Named> {
    if body.is_empty() {
        return Vec::new();
    }
    let body: Value = serde_json::from_str(body).unwrap();
    let text = |event: &Value, name: &str| event[name].as_str().unwrap().to_owned();
    let named = |event: &Value| Named {
        id: text(event, "id"),
        key: text(event, "key"),
        sequence: event["sequence"].as_i64().unwrap(),
    };
    body["events"].as_array().map_or_else(|| vec![named(&body)], |events| events.iter().map(named).collect())
}

fn was_taken(log: &[Arrival], event: &Named) -> bool {
    log.iter().any(|arrival| arrival.is_taken && arrival.events.contains(event))
}
