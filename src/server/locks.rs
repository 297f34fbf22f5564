//! Locks over HTTP: `POST /v1/locks/{name}/acquire | renew | release | expire` and `GET
//! /v1/locks/{name}`.

use std::{borrow::Cow, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    http::{HeaderName, Method, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tokio::time::Instant as Deadline;

use super::{
    Service,
    body::{Body, Fence},
    operation::{Answered, Asked, Operation, wrong},
    path::Named,
    problem::{ErrorDetail, Problem},
};
use crate::{
    config::server::May,
    domain::{
        gate::{GateKey, retry_after},
        instant::Instant,
        lock::{Act, Allowed, LEASE, LONGEST_LEASE, LONGEST_WAIT, SHORTEST_LEASE},
        units::{format_duration, parse_duration},
    },
    store::{LockTaken, LockView},
};

/// So many may wait for locks at once.
pub(super) const MOST_WAITERS: usize = 256;

/// How often somebody who waits looks, at first and at most.
const FIRST_LOOK: Duration = Duration::from_millis(20);
const LONGEST_LOOK: Duration = Duration::from_millis(500);

/// The longest owner, in bytes.
const LONGEST_OWNER: usize = 1_024;

/// What a holder sends along with whatever it writes, so that late writes can be told.
const FENCE: HeaderName = HeaderName::from_static("x-fence");

/// Somebody asks for a lock.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Ask {
    /// How long it is held at most, from `1s` to `24h`: `1m` where nothing is said.
    #[schemars(regex(pattern = r"^([1-9][0-9]{0,3}s|[1-9][0-9]{0,2}m|([1-9]|1[0-9]|2[0-4])h)$"))]
    lease: Option<String>,
    /// How long to wait for it, up to `1m`: not at all where nothing is said.
    #[schemars(regex(pattern = r"^(0s|[1-9][0-9]{0,2}ms|[1-5]?[1-9]s|1m)$"))]
    wait: Option<String>,
    /// Who asks, such as the workflow and its execution.
    #[schemars(length(max = 1024))]
    owner: Option<String>,
}

/// A holder keeps its lock.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Renewal {
    /// The number that the lock was acquired with.
    fence: Fence,
    /// How long from now, from `1s` to `24h`: `1m` where nothing is said.
    #[schemars(regex(pattern = r"^([1-9][0-9]{0,3}s|[1-9][0-9]{0,2}m|([1-9]|1[0-9]|2[0-4])h)$"))]
    lease: Option<String>,
}

/// A holder lets its lock go.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Release {
    /// The number that the lock was acquired with.
    fence: Fence,
}

/// Where a lock stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum LockState {
    /// It is yours.
    Acquired,
    /// Somebody has it.
    Held,
    /// Whoever had it did not let it go before its lease ended.
    Expired,
    /// Nobody has it.
    Free,
}

/// What is known of a lock.
#[derive(Debug, Serialize, JsonSchema)]
struct LockTold {
    /// Where it stands for whoever asked.
    state: LockState,
    /// The lock.
    name: String,
    /// The number of its last acquisition: greater than all before, and never given twice.
    fence: i64,
    /// It was taken over from one who never let it go: what that one did is not known.
    takeover: bool,
    /// Who acquired it.
    owner: Option<String>,
    /// When it was acquired.
    #[schemars(with = "String")]
    acquired_at: Instant,
    /// Until when it is held at most.
    #[schemars(with = "String")]
    lease_until: Instant,
    /// Why this is not what was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<ErrorDetail>,
}

impl LockTold {
    fn of(view: LockView, state: LockState, error: Option<ErrorDetail>) -> Self {
        Self {
            state,
            name: view.name.as_str().to_owned(),
            fence: view.fence,
            takeover: view.takeover,
            owner: view.owner,
            acquired_at: view.acquired_at,
            lease_until: view.lease_until,
            error,
        }
    }
}

fn state(view: &LockView, now: Instant) -> LockState {
    match (view.is_held, now < view.lease_until) {
        (false, _) => LockState::Free,
        (true, true) => LockState::Held,
        (true, false) => LockState::Expired,
    }
}

pub(super) fn operations() -> Vec<Operation> {
    let told = |status, means| Answered::with::<LockTold>(status, means);
    let lost = || told(StatusCode::CONFLICT, "The lock is another's by now, or was let go.");
    let unknown = || Answered::problem(StatusCode::NOT_FOUND, "Nobody has had the lock for a long time.");
    let operation =
        |method, path, id, summary, body: Option<Asked>, may, answers: Vec<Answered>, handler| Operation {
            method,
            path: Cow::Borrowed(path),
            id: Cow::Borrowed(id),
            summary,
            may,
            body,
            answers: answers.into_iter().chain(wrong()).collect(),
            handler,
        };
    vec![
        operation(
            Method::POST,
            "/v1/locks/{name}/acquire",
            "acquire_lock",
            "Takes a lock, or waits for it.",
            Some(Asked::perhaps::<Ask>()),
            &[May::Locks],
            vec![
                told(StatusCode::OK, "It is yours: send its `fence` along with whatever you write."),
                told(StatusCode::CONFLICT, "Somebody has it."),
            ],
            post(acquire),
        ),
        operation(
            Method::POST,
            "/v1/locks/{name}/renew",
            "renew_lock",
            "Keeps a lock for longer.",
            Some(Asked::by::<Renewal>()),
            &[May::Locks],
            vec![told(StatusCode::OK, "It is yours still."), lost(), unknown()],
            post(renew),
        ),
        operation(
            Method::POST,
            "/v1/locks/{name}/release",
            "release_lock",
            "Lets a lock go.",
            Some(Asked::by::<Release>()),
            &[May::Locks],
            vec![told(StatusCode::OK, "It is free."), lost(), unknown()],
            post(release),
        ),
        operation(
            Method::GET,
            "/v1/locks/{name}",
            "lock",
            "Tells what is known of a lock.",
            None,
            &[May::Locks, May::Read],
            vec![told(StatusCode::OK, "What is known of it."), unknown()],
            get(read),
        ),
        operation(
            Method::POST,
            "/v1/locks/{name}/expire",
            "expire_lock",
            "Ends the lease of a lock whose holder is known to be gone.",
            None,
            &[May::Admin],
            vec![told(StatusCode::OK, "The next that asks takes it over."), unknown()],
            post(expire),
        ),
    ]
}

async fn acquire(
    State(service): State<Arc<Service>>,
    Named(name): Named,
    Body(ask): Body<Ask>,
) -> Result<Response, Problem> {
    let lease = lease(ask.lease.as_deref())?;
    let wait = duration("wait", ask.wait.as_deref(), Duration::ZERO, Duration::ZERO, LONGEST_WAIT)?;
    if ask.owner.as_ref().is_some_and(|owner| owner.len() > LONGEST_OWNER) {
        return Err(Problem::bad_request(
            "too_long",
            format!("`owner` is longer than {LONGEST_OWNER} bytes"),
        ));
    }
    let taken = take(&service, &name, ask.owner.as_deref(), lease, wait).await?;
    let seconds = retry_after(taken.view.lease_until, taken.now);
    if !taken.is_taken {
        let message = format!("somebody has it; if nothing is heard of it, ask again in {seconds} s");
        let error = Some(ErrorDetail { code: "held", message });
        let told = LockTold::of(taken.view, LockState::Held, error);
        return Ok((StatusCode::CONFLICT, [(RETRY_AFTER, seconds.to_string())], Json(told)).into_response());
    }
    let fence = [(FENCE, taken.view.fence.to_string())];
    Ok((fence, Json(LockTold::of(taken.view, LockState::Acquired, None))).into_response())
}

/// Asks for a lock until it is had, or for as long as `wait`. Between two looks nothing is held, not even a connection;
/// whoever looks first after it was let go has it.
async fn take(
    service: &Service,
    name: &GateKey,
    owner: Option<&str>,
    lease: Duration,
    wait: Duration,
) -> Result<LockTaken, Problem> {
    let deadline = Deadline::now() + wait;
    let mut taken = service.store.acquire_lock(name, owner, lease).await?;
    if taken.is_taken || wait.is_zero() {
        return Ok(taken);
    }
    let Ok(_waiter) = service.waiters.try_acquire() else {
        let message = format!("{MOST_WAITERS} wait for locks already: ask without `wait`, or later");
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "too_many_waiters", message).retry_after(1));
    };
    let mut pause = FIRST_LOOK;
    loop {
        let left = deadline.saturating_duration_since(Deadline::now());
        if left.is_zero() {
            return Ok(taken);
        }
        let until_over = taken.view.lease_until.since(taken.now).max(FIRST_LOOK);
        let spread = pause.mul_f64(fastrand::f64().mul_add(0.5, 0.75));
        tokio::time::sleep(spread.min(left).min(until_over)).await;
        taken = service.store.acquire_lock(name, owner, lease).await?;
        if taken.is_taken {
            return Ok(taken);
        }
        pause = (pause * 2).min(LONGEST_LOOK);
    }
}

async fn renew(
    State(service): State<Arc<Service>>,
    Named(name): Named,
    Body(body): Body<Renewal>,
) -> Result<Response, Problem> {
    let lease = lease(body.lease.as_deref())?;
    act(&service, &name, body.fence.0, Act::Renew(lease)).await
}

async fn release(
    State(service): State<Arc<Service>>,
    Named(name): Named,
    Body(body): Body<Release>,
) -> Result<Response, Problem> {
    act(&service, &name, body.fence.0, Act::Release).await
}

async fn act(service: &Service, name: &GateKey, fence: i64, what: Act) -> Result<Response, Problem> {
    let acted = service.store.act_on_lock(name, fence, what).await?;
    let (allowed, view) = acted.ok_or_else(|| unknown(name))?;
    if allowed == Allowed::Lost {
        let message = if view.fence == fence {
            "it was let go before".to_owned()
        } else {
            format!(
                "the fence {fence} holds no more, {} does: the lock was acquired by another since",
                view.fence
            )
        };
        let error = Some(ErrorDetail { code: "lost", message });
        let state = state(&view, service.store.now().await?);
        return Ok((StatusCode::CONFLICT, Json(LockTold::of(view, state, error))).into_response());
    }
    let state = if what == Act::Release { LockState::Free } else { LockState::Acquired };
    Ok(Json(LockTold::of(view, state, None)).into_response())
}

async fn read(State(service): State<Arc<Service>>, Named(name): Named) -> Result<Json<LockTold>, Problem> {
    told(&service, &name).await
}

async fn expire(State(service): State<Arc<Service>>, Named(name): Named) -> Result<Json<LockTold>, Problem> {
    service.store.expire_lock(&name).await?.ok_or_else(|| unknown(&name))?;
    told(&service, &name).await
}

async fn told(service: &Service, name: &GateKey) -> Result<Json<LockTold>, Problem> {
    let view = service.store.lock(name).await?.ok_or_else(|| unknown(name))?;
    let state = state(&view, service.store.now().await?);
    Ok(Json(LockTold::of(view, state, None)))
}

fn unknown(name: &GateKey) -> Problem {
    Problem::not_found("unknown_lock", format!("nobody has had the lock `{name}`, or not for a long time"))
}

fn lease(text: Option<&str>) -> Result<Duration, Problem> {
    duration("lease", text, LEASE, SHORTEST_LEASE, LONGEST_LEASE)
}

fn duration(
    what: &str,
    text: Option<&str>,
    otherwise: Duration,
    least: Duration,
    most: Duration,
) -> Result<Duration, Problem> {
    let Some(text) = text else { return Ok(otherwise) };
    parse_duration(text).filter(|given| (least..=most).contains(given)).ok_or_else(|| {
        let (least, most) = (format_duration(least), format_duration(most));
        let message =
            format!("`{what}` is `{text}`: it takes a duration from `{least}` to `{most}`, such as `30s`");
        Problem::bad_request("bad_duration", message)
    })
}
