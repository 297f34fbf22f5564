//! The gate of a watched store is the real one: no history asks it for anything.

use async_trait::async_trait;
use onlynew::{
    domain::gate::{GateKey, ScopeRules},
    store::{Acquired, Acted, Gates, KeyAct, KeyAsk, KeyFilter, KeyView, Released, ScopeView, StoreError},
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
