//! Webhooks on their way in: told apart, stored in groups, answered once they are stored.
//!
//! Whoever receives one waits until the group that it is stored with is committed. While one group is being committed the next
//! one gathers, so that many at once cost as few commits as few do; how many may wait is bounded, and what is beyond that is
//! refused at once.

use std::{collections::BTreeMap, sync::Arc};

use serde_json::{Value, value::RawValue};
use tokio::sync::{mpsc, oneshot};

use crate::{
    config::{
        hook::{Hook, KeyRule},
        template::template_value,
    },
    domain::{
        event::HookSource,
        hook::{NoHookKey, key_of_fields, key_of_value},
        instant::Instant,
        key::RecordKey,
    },
    store::{HookDelivery, JobRow, Received, Store, StoreError},
};

/// How many may wait to be stored.
const MOST_WAITING: usize = 1_024;
/// How many are stored in one transaction.
const MOST_AT_ONCE: usize = 200;

/// A webhook that was believed.
#[derive(Debug)]
pub struct Arrived<'a> {
    /// The headers, by names in lower case.
    pub headers: &'a BTreeMap<String, String>,
    /// The body as JSON: itself, or a text.
    pub data: Box<RawValue>,
    /// When it came.
    pub at: Instant,
}

/// The key of a webhook, or why it has none.
pub fn key_of(hook: &Hook, arrived: &Arrived<'_>) -> Result<RecordKey, NoHookKey> {
    let body: Value = serde_json::from_str(arrived.data.get()).map_err(|error| error.to_string())?;
    match &hook.key {
        KeyRule::Fields(fields) => key_of_fields(&body, fields),
        KeyRule::Template(template) => {
            let headers: Value =
                arrived.headers.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
            let context =
                minijinja::context! { body => template_value(&body), headers => template_value(&headers) };
            let text = template.render(&context).map_err(|error| error.to_string())?;
            key_of_value(&Value::from(text))
        }
    }
}

/// What is stored of a webhook of this hook.
pub fn delivery(hook: &Hook, row: &JobRow, arrived: Arrived<'_>) -> HookDelivery {
    let key = key_of(hook, &arrived);
    let kept = |name: &String| Some((name.clone(), arrived.headers.get(name)?.clone()));
    HookDelivery {
        hook: row.id,
        source: HookSource { uid: row.uid.clone(), name: hook.name.clone() },
        key,
        headers: hook.headers.iter().filter_map(kept).collect(),
        data: arrived.data,
        destination: hook.destination.name.clone(),
        order: hook.destination.lanes.order,
        received_at: arrived.at,
    }
}

/// Why a webhook was not stored.
#[derive(Debug, thiserror::Error)]
pub enum NotStored {
    /// Too many wait already.
    #[error("{MOST_WAITING} webhooks wait to be stored already")]
    Full,
    /// The store failed.
    #[error("{0}")]
    Store(Arc<StoreError>),
    /// The process is being stopped.
    #[error("the process is being stopped")]
    Stopping,
}

type Answer = oneshot::Sender<Result<Received, Arc<StoreError>>>;

/// Where webhooks are handed in.
#[derive(Clone, Debug)]
pub struct Intake {
    queue: mpsc::Sender<(HookDelivery, Answer)>,
}

/// Stores what is handed in.
#[derive(Debug)]
pub struct Writer {
    queue: mpsc::Receiver<(HookDelivery, Answer)>,
    store: Arc<dyn Store>,
}

/// An intake and what stores for it.
pub fn intake(store: Arc<dyn Store>) -> (Intake, Writer) {
    let (sender, receiver) = mpsc::channel(MOST_WAITING);
    (Intake { queue: sender }, Writer { queue: receiver, store })
}

impl Intake {
    /// Hands a webhook in and waits until it is stored.
    pub async fn receive(&self, delivery: HookDelivery) -> Result<Received, NotStored> {
        let (answer, answered) = oneshot::channel();
        self.queue.try_send((delivery, answer)).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NotStored::Full,
            mpsc::error::TrySendError::Closed(_) => NotStored::Stopping,
        })?;
        answered.await.map_err(|_| NotStored::Stopping)?.map_err(NotStored::Store)
    }
}

impl Writer {
    /// Stores what is handed in until nobody can hand anything in any more. `told` is called when something is to be
    /// delivered.
    pub async fn run(mut self, told: impl Fn() + Send) {
        let mut group = Vec::with_capacity(MOST_AT_ONCE);
        while self.queue.recv_many(&mut group, MOST_AT_ONCE).await > 0 {
            let (deliveries, answers): (Vec<HookDelivery>, Vec<Answer>) = group.drain(..).unzip();
            let deliveries: Arc<[HookDelivery]> = deliveries.into();
            let is_alone = deliveries.len() == 1;
            match self.store.receive(Arc::clone(&deliveries)).await {
                Ok(received) => answer_all(answers, received, &told),
                Err(error) if is_alone => refuse(answers, error),
                // One of them may be what it fails for: each by itself, none is refused for another's sake.
                Err(_) => {
                    for (delivery, answer) in deliveries.iter().zip(answers) {
                        match self.store.receive(Arc::from([delivery.clone()])).await {
                            Ok(received) => answer_all(vec![answer], received, &told),
                            Err(error) => refuse(vec![answer], error),
                        }
                    }
                }
            }
        }
    }
}

/// Whoever has gone away meanwhile is told nothing: what was stored stays.
fn answer_all(answers: Vec<Answer>, received: Vec<Received>, told: &impl Fn()) {
    if received.iter().any(|received| matches!(received, Received::Accepted { .. })) {
        told();
    }
    for (answer, received) in answers.into_iter().zip(received) {
        let _ = answer.send(Ok(received));
    }
}

fn refuse(answers: Vec<Answer>, error: StoreError) {
    tracing::error!(%error, "the store failed; webhooks were refused and have to be sent again");
    let error = Arc::new(error);
    for answer in answers {
        let _ = answer.send(Err(Arc::clone(&error)));
    }
}
