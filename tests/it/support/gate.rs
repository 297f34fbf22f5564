//! Keys of the gate, asked for in the scope `charge`.

use std::sync::Arc;

use onlynew::{
    domain::gate::{Act, Answer, GateKey, ScopeRules},
    store::{Acquired, Acted, KeyAct, KeyAsk, Store},
};

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
