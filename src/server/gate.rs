//! The gate over HTTP: `POST /v1/gate/{scope}/{key}/acquire | complete | fail | renew`, `GET /v1/gate/{scope}/{key}`, and
//! `POST /v1/gate/{scope}/acquire` for many keys at once.

mod forms;

use std::{borrow::Cow, sync::Arc};

use axum::{
    Json,
    extract::State,
    http::{HeaderName, HeaderValue, Method, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use serde_json::value::RawValue;

use self::forms::{Ask, AskOf, Asks, Completion, Failure, Renewal, Standing, Told, ToldAll, ToldOf};
use super::{
    Service,
    body::Body,
    operation::{Answered, Asked, Operation, wrong},
    path::{KeyOf, Scope, key},
    problem::{ErrorDetail, Problem},
};
use crate::{
    config::server::May,
    domain::gate::{Act, Allowed, Answer, GateKey, retry_after},
    store::{Acquired, KeyAct, KeyAsk, KeyView},
};

/// How many keys may be asked for at once.
const MOST_ITEMS: usize = 1_000;

/// The longest owner, fingerprint, correlation id and reason, in bytes.
const LONGEST_TEXT: usize = 1_024;

/// The largest metadata, in bytes of JSON.
const LARGEST_METADATA: usize = 4_096;

/// Says that an answer was given before.
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

pub(super) fn operations() -> Vec<Operation> {
    let told = |status, means| Answered::with::<Told>(status, means);
    let lost = || told(StatusCode::CONFLICT, "The key is another's by now, or was ended in another way.");
    let unknown = || {
        Answered::problem(StatusCode::NOT_FOUND, "There is no such scope, or nobody has acquired the key.")
    };
    let asked = |path, id, summary, body: Asked, handler, answers: Vec<Answered>| Operation {
        method: Method::POST,
        path: Cow::Borrowed(path),
        id: Cow::Borrowed(id),
        summary,
        may: &[May::Gate],
        body: Some(body),
        answers: answers.into_iter().chain(wrong()).collect(),
        handler,
    };
    vec![
        asked(
            "/v1/gate/{scope}/{key}/acquire",
            "acquire",
            "Asks whether something may be done now.",
            Asked::perhaps::<Ask>(),
            post(acquire),
            vec![
                told(
                    StatusCode::OK,
                    "`started`: it is yours, do it. `done`: it was done before, with this result.",
                ),
                told(
                    StatusCode::CONFLICT,
                    "Somebody has it, or it was done or failed and is not done again.",
                ),
                told(StatusCode::UNPROCESSABLE_ENTITY, "The key was acquired for something else."),
                Answered::problem(StatusCode::NOT_FOUND, "There is no such scope."),
            ],
        ),
        asked(
            "/v1/gate/{scope}/acquire",
            "acquire_all",
            "Asks the same for up to a thousand keys, in one transaction.",
            Asked::by::<Asks>(),
            post(acquire_all),
            vec![
                Answered::with::<ToldAll>(StatusCode::OK, "An answer for each key, in their order."),
                Answered::problem(StatusCode::NOT_FOUND, "There is no such scope."),
            ],
        ),
        asked(
            "/v1/gate/{scope}/{key}/complete",
            "complete",
            "Says that it was done.",
            Asked::by::<Completion>(),
            post(complete),
            vec![told(StatusCode::OK, "It is `done`."), lost(), unknown()],
        ),
        asked(
            "/v1/gate/{scope}/{key}/fail",
            "fail",
            "Says that it was not done.",
            Asked::by::<Failure>(),
            post(fail),
            vec![told(StatusCode::OK, "It is `failed`."), lost(), unknown()],
        ),
        asked(
            "/v1/gate/{scope}/{key}/renew",
            "renew",
            "Keeps a key for a lease more.",
            Asked::by::<Renewal>(),
            post(renew),
            vec![told(StatusCode::OK, "It is `in_progress`."), lost(), unknown()],
        ),
        Operation {
            method: Method::GET,
            path: "/v1/gate/{scope}/{key}".into(),
            id: "key".into(),
            summary: "Tells what is known of a key, and does not count as asking for it.",
            may: &[May::Gate, May::Read],
            body: None,
            answers: [told(StatusCode::OK, "What is known of it."), unknown()]
                .into_iter()
                .chain(wrong())
                .collect(),
            handler: get(read),
        },
    ]
}

/// The texts of an asker, none of them too long.
fn ask(key: GateKey, texts: [Option<String>; 3], metadata: Option<Box<RawValue>>) -> Result<KeyAsk, Problem> {
    let names = ["fingerprint", "owner", "correlation_id"];
    for (name, text) in names.iter().zip(&texts) {
        short_enough(name, text.as_deref())?;
    }
    let metadata = metadata.map(|json| json.get().to_owned());
    if metadata.as_ref().is_some_and(|json| json.len() > LARGEST_METADATA) {
        let message = format!("`metadata` is larger than {LARGEST_METADATA} bytes");
        return Err(Problem::bad_request("too_long", message));
    }
    let [fingerprint, owner, correlation_id] = texts;
    Ok(KeyAsk { key, fingerprint, owner, correlation_id, metadata })
}

fn short_enough(name: &str, text: Option<&str>) -> Result<(), Problem> {
    if text.is_some_and(|text| text.len() > LONGEST_TEXT) {
        return Err(Problem::bad_request(
            "too_long",
            format!("`{name}` is longer than {LONGEST_TEXT} bytes"),
        ));
    }
    Ok(())
}

/// What an acquisition is answered with.
struct Answering {
    status: StatusCode,
    told: Told,
    retry_after: Option<u64>,
    is_replayed: bool,
}

impl Answering {
    fn of(acquired: Acquired) -> Self {
        let Acquired { answer, view, now } = acquired;
        let wait = retry_after(view.lease_until, now);
        let (status, standing, code, message) = match answer {
            Answer::Started { .. } => (StatusCode::OK, Standing::Started, "", String::new()),
            Answer::Done => (StatusCode::OK, Standing::Done, "", String::new()),
            Answer::InProgress => {
                let message = format!("somebody has it; if nothing is heard of it, ask again in {wait} s");
                (StatusCode::CONFLICT, Standing::InProgress, "in_progress", message)
            }
            Answer::Rejected => {
                let message = "it was done before, and must not be done again".to_owned();
                (StatusCode::CONFLICT, Standing::Done, "rejected", message)
            }
            Answer::Failed => {
                let message = "it failed before, and is not tried again".to_owned();
                (StatusCode::CONFLICT, Standing::Failed, "failed", message)
            }
            Answer::Mismatch => {
                let message =
                    "the key was acquired under another fingerprint: it stands for something else".to_owned();
                (StatusCode::UNPROCESSABLE_ENTITY, Standing::Mismatch, "mismatch", message)
            }
        };
        let error = (!code.is_empty()).then_some(ErrorDetail { code, message });
        Self {
            status,
            told: Told::of(view, standing, error),
            retry_after: (answer == Answer::InProgress).then_some(wait),
            is_replayed: answer == Answer::Done,
        }
    }
}

impl IntoResponse for Answering {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.told)).into_response();
        if let Some(seconds) = self.retry_after {
            response.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        if self.is_replayed {
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
        }
        response
    }
}

async fn acquire(
    State(service): State<Arc<Service>>,
    KeyOf { scope, key }: KeyOf,
    Body(body): Body<Ask>,
) -> Result<Answering, Problem> {
    let asks = [ask(key, [body.fingerprint, body.owner, body.correlation_id], body.metadata)?];
    let acquired = service.store.acquire_keys(&scope.name, &scope.rules, &asks).await?;
    let first = acquired.into_iter().next();
    first.map(Answering::of).ok_or_else(|| Problem::bad_request("missing_key", "no key was asked for"))
}

async fn acquire_all(
    State(service): State<Arc<Service>>,
    scope: Scope,
    Body(body): Body<Asks>,
) -> Result<Json<ToldAll>, Problem> {
    if body.items.is_empty() || body.items.len() > MOST_ITEMS {
        let message = format!("`items` holds {} keys: it takes 1 to {MOST_ITEMS}", body.items.len());
        return Err(Problem::bad_request("bad_items", message));
    }
    let asks = body.items.into_iter().map(|item: AskOf| {
        ask(key(&item.key)?, [item.fingerprint, item.owner, item.correlation_id], item.metadata)
    });
    let asks = asks.collect::<Result<Vec<_>, _>>()?;
    let acquired = service.store.acquire_keys(&scope.name, &scope.rules, &asks).await?;
    let items = acquired.into_iter().map(Answering::of);
    let items = items.map(|answer| ToldOf { status: answer.status.as_u16(), told: answer.told });
    Ok(Json(ToldAll { items: items.collect() }))
}

async fn complete(
    State(service): State<Arc<Service>>,
    asked: KeyOf,
    Body(body): Body<Completion>,
) -> Result<(StatusCode, Json<Told>), Problem> {
    let result = body.result.map(|json| json.get().to_owned());
    service.act(asked, body.fence.0, Act::Complete, result, None).await
}

async fn fail(
    State(service): State<Arc<Service>>,
    asked: KeyOf,
    Body(body): Body<Failure>,
) -> Result<(StatusCode, Json<Told>), Problem> {
    short_enough("reason", body.reason.as_deref())?;
    service.act(asked, body.fence.0, Act::Fail, None, body.reason).await
}

async fn renew(
    State(service): State<Arc<Service>>,
    asked: KeyOf,
    Body(body): Body<Renewal>,
) -> Result<(StatusCode, Json<Told>), Problem> {
    service.act(asked, body.fence.0, Act::Renew, None, None).await
}

impl Service {
    async fn act(
        &self,
        KeyOf { scope, key }: KeyOf,
        fence: i64,
        act: Act,
        result: Option<String>,
        reason: Option<String>,
    ) -> Result<(StatusCode, Json<Told>), Problem> {
        let what = KeyAct { key, fence, act, result, reason, rules: scope.rules };
        let acted = self.store.act_on_key(&scope.name, &what).await?;
        let acted = acted.ok_or_else(|| unknown_key(&scope.name, &what.key))?;
        let standing = acted.view.state().into();
        if acted.allowed == Allowed::Lost {
            let message = lost(&acted.view, fence);
            let error = Some(ErrorDetail { code: "lost", message });
            return Ok((StatusCode::CONFLICT, Json(Told::of(acted.view, standing, error))));
        }
        Ok((StatusCode::OK, Json(Told::of(acted.view, standing, None))))
    }
}

fn lost(view: &KeyView, fence: i64) -> String {
    if view.fence == fence {
        return format!("under the fence {fence} it was said before that it is {}", view.state().name());
    }
    format!("the fence {fence} holds no more, {} does: the key was acquired by another since", view.fence)
}

fn unknown_key(scope: &str, key: &GateKey) -> Problem {
    Problem::not_found(
        "unknown_key",
        format!("nobody has acquired the key `{key}` in `{scope}`, or it is forgotten"),
    )
}

async fn read(
    State(service): State<Arc<Service>>,
    KeyOf { scope, key }: KeyOf,
) -> Result<Json<Told>, Problem> {
    let view = service.store.gate_key(&scope.name, &key).await?;
    let view = view.ok_or_else(|| unknown_key(&scope.name, &key))?;
    let standing = view.state().into();
    Ok(Json(Told::of(view, standing, None)))
}
