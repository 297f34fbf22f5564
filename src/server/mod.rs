//! The HTTP server: what workflows ask, and what watches over the process.

mod access;
mod body;
mod gate;
mod health;
mod hooks;
mod locks;
mod openapi;
mod operation;
mod path;
mod problem;

use std::{collections::BTreeMap, io, net::SocketAddr, sync::Arc};

use axum::{
    Json, Router,
    http::{StatusCode, Uri},
    routing::get,
};
use serde_json::Value;
use tokio::{net::TcpListener, sync::Semaphore};
use tokio_util::sync::CancellationToken;

use self::{access::Access, hooks::Listening, operation::Operation, problem::Problem};
use crate::{
    config::{hook::Hook, server::Server as Settings},
    domain::gate::ScopeRules,
    intake::Intake,
    store::{JobRow, Store},
};

/// A server that listens.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    router: Router,
    /// Also where there are no hooks: what stores for them ends with it, and not before.
    intake: Intake,
}

/// What the operations work on.
#[derive(Debug)]
struct Service {
    store: Arc<dyn Store>,
    scopes: BTreeMap<String, ScopeRules>,
    access: Access,
    /// Those who may still begin to wait for locks.
    waiters: Semaphore,
}

impl Server {
    /// Listens where the settings say.
    pub async fn bind(
        settings: &Settings,
        store: Arc<dyn Store>,
        scopes: BTreeMap<String, ScopeRules>,
        hooks: Vec<(Arc<Hook>, JobRow)>,
        intake: Intake,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(settings.listen).await?;
        let service = Arc::new(Service {
            store,
            scopes,
            access: Access::new(&settings.tokens),
            waiters: Semaphore::new(locks::MOST_WAITERS),
        });
        let proxies = &settings.trusted_proxies;
        let listening = |(hook, row)| Listening::new(hook, row, intake.clone(), proxies.clone()).operation();
        let router = router(&service, hooks.into_iter().map(listening).collect());
        Ok(Self { listener, router, intake })
    }

    /// Where it listens.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves requests until `stop`, then those that are under way.
    pub async fn serve(self, stop: CancellationToken) -> io::Result<()> {
        let Self { listener, router, intake } = self;
        let service = router.into_make_service_with_connect_info::<SocketAddr>();
        let served = axum::serve(listener, service).with_graceful_shutdown(stop.cancelled_owned()).await;
        drop(intake);
        served
    }
}

fn router(service: &Arc<Service>, hooks: Vec<Operation>) -> Router {
    let operations: Vec<_> = [health::operations(), gate::operations(), locks::operations(), hooks]
        .into_iter()
        .flatten()
        .collect();
    let scopes: Vec<&str> = service.scopes.keys().map(String::as_str).collect();
    let document = openapi::document(&operations, &scopes, service.access.has_tokens());
    let document: Arc<Value> = Arc::new(document);
    operation::router(operations, service)
        .route("/openapi.json", get(async move || Json(document.as_ref().clone())))
        .fallback(nothing_there)
        .method_not_allowed_fallback(async || {
            let message = "this path is asked in another way: see the `Allow` header";
            Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong_method", message)
        })
        .with_state(Arc::clone(service))
}

/// What is asked of a path that leads nowhere. One with an empty part was made from something that is missing.
async fn nothing_there(uri: Uri) -> Problem {
    let is_missing = uri.path().starts_with("/v1/") && uri.path().contains("//");
    if is_missing {
        let message = "a part of this path is empty: what it is made from is missing, and without it nobody can tell \
                       whether this was done before";
        return Problem::bad_request("missing_key", message);
    }
    let message = format!("there is nothing at `{}`; /openapi.json tells what there is", uri.path());
    Problem::not_found("no_such_path", message)
}
