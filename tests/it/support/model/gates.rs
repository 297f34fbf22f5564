//! The gate, the locks and the hooks of a watched store are the real ones: no history asks them for anything.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use async_trait::async_trait;
use onlynew::{
    domain::{
        content::Hash,
        gate::{GateKey, ScopeRules},
        key::RecordKey,
        lock,
    },
    store::{
        Acquired, Acted, Gates, HookDelivery, HookKey, HookTotals, Hooks, JobId, KeyAct, KeyAsk, KeyFilter,
        KeyView, LockTaken, LockView, Locks, Received, Released, ScopeView, StoreError,
    },
};

use super::store::WatchedStore;

#[async_trait]
impl Gates for WatchedStore {
    async fn acquire_keys(
        &self,
        scope: &str,
        rules: &ScopeRules,
        asks: &[KeyAsk],
    ) -> Result<Vec<Acquired>, StoreError> {
        self.inner.acquire_keys(scope, rules, asks).await
    }

    async fn act_on_key(&self, scope: &str, act: &KeyAct) -> Result<Option<Acted>, StoreError> {
        self.inner.act_on_key(scope, act).await
    }

    async fn gate_key(&self, scope: &str, key: &GateKey) -> Result<Option<KeyView>, StoreError> {
        self.inner.gate_key(scope, key).await
    }

    async fn gate_keys(&self, filter: &KeyFilter, limit: u32) -> Result<Vec<KeyView>, StoreError> {
        self.inner.gate_keys(filter, limit).await
    }

    async fn gate_scopes(&self) -> Result<Vec<ScopeView>, StoreError> {
        self.inner.gate_scopes().await
    }

    async fn release_key(&self, scope: &str, key: &GateKey, even_held: bool) -> Result<Released, StoreError> {
        self.inner.release_key(scope, key, even_held).await
    }

    async fn expire_key(&self, scope: &str, key: &GateKey) -> Result<bool, StoreError> {
        self.inner.expire_key(scope, key).await
    }
}

#[async_trait]
impl Locks for WatchedStore {
    async fn acquire_lock(
        &self,
        name: &GateKey,
        owner: Option<&str>,
        lease: Duration,
    ) -> Result<LockTaken, StoreError> {
        self.inner.acquire_lock(name, owner, lease).await
    }

    async fn act_on_lock(
        &self,
        name: &GateKey,
        fence: i64,
        act: lock::Act,
    ) -> Result<Option<(lock::Allowed, LockView)>, StoreError> {
        self.inner.act_on_lock(name, fence, act).await
    }

    async fn lock(&self, name: &GateKey) -> Result<Option<LockView>, StoreError> {
        self.inner.lock(name).await
    }

    async fn expire_lock(&self, name: &GateKey) -> Result<Option<bool>, StoreError> {
        self.inner.expire_lock(name).await
    }
}

#[async_trait]
impl Hooks for WatchedStore {
    async fn receive(&self, deliveries: Arc<[HookDelivery]>) -> Result<Vec<Received>, StoreError> {
        self.inner.receive(deliveries).await
    }

    async fn hook_totals(&self) -> Result<BTreeMap<JobId, HookTotals>, StoreError> {
        self.inner.hook_totals().await
    }

    async fn hook_key(&self, hook: JobId, key: &RecordKey) -> Result<Option<HookKey>, StoreError> {
        self.inner.hook_key(hook, key).await
    }

    async fn accept_hook(&self, id: Hash, delivery: &HookDelivery) -> Result<Option<Received>, StoreError> {
        self.inner.accept_hook(id, delivery).await
    }
}
