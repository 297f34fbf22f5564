//! [`Gates`] for both databases.

use async_trait::async_trait;

use super::{
    Acquired, Acted, Gates, KeyAct, KeyAsk, KeyFilter, KeyView, Released, ScopeView, StoreError,
    dialect::Dialect, gate::keys, sql_store::SqlStore,
};
use crate::domain::gate::{GateKey, ScopeRules};

#[async_trait]
impl<DB: Dialect> Gates for SqlStore<DB> {
    async fn acquire_keys(
        &self,
        scope: &str,
        rules: &ScopeRules,
        asks: &[KeyAsk],
    ) -> Result<Vec<Acquired>, StoreError> {
        let input = (scope.to_owned(), *rules, asks.to_vec());
        self.write(input, |db, (scope, rules, asks)| Box::pin(keys::acquire::<DB>(db, scope, rules, asks)))
            .await
    }

    async fn act_on_key(&self, scope: &str, act: &KeyAct) -> Result<Option<Acted>, StoreError> {
        let input = (scope.to_owned(), act.clone());
        self.write(input, |db, (scope, act)| Box::pin(keys::act::<DB>(db, scope, act))).await
    }

    async fn gate_key(&self, scope: &str, key: &GateKey) -> Result<Option<KeyView>, StoreError> {
        keys::key::<DB>(&mut *self.reader().await?, scope, key).await
    }

    async fn gate_keys(&self, filter: &KeyFilter, limit: u32) -> Result<Vec<KeyView>, StoreError> {
        keys::keys::<DB>(&mut *self.reader().await?, filter, limit).await
    }

    async fn gate_scopes(&self) -> Result<Vec<ScopeView>, StoreError> {
        keys::scopes::<DB>(&mut *self.reader().await?).await
    }

    async fn release_key(&self, scope: &str, key: &GateKey, even_held: bool) -> Result<Released, StoreError> {
        self.write((scope.to_owned(), key.clone(), even_held), |db, (scope, key, even_held)| {
            Box::pin(keys::release::<DB>(db, scope, key, *even_held))
        })
        .await
    }

    async fn expire_key(&self, scope: &str, key: &GateKey) -> Result<bool, StoreError> {
        self.write((scope.to_owned(), key.clone()), |db, (scope, key)| {
            Box::pin(keys::expire::<DB>(db, scope, key))
        })
        .await
    }
}
