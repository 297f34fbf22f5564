//! Locks. Whoever asks holds the lock's row before it is decided, and draws its fence while it holds it. Nobody waits
//! inside a transaction for a lock that another has: who wants to wait asks again.

use std::time::Duration;

use async_trait::async_trait;

use super::{
    StoreError, Taken, account,
    dialect::{Dialect, sql, without_nul},
    gate, rows,
    sql_store::SqlStore,
};
use crate::domain::{
    gate::GateKey,
    instant::Instant,
    lock::{self, Act, Allowed, Held},
};

/// What locks ask of a database.
#[async_trait]
pub trait Locks: Send + Sync {
    /// Takes a lock for `lease` where nobody has it.
    async fn acquire_lock(
        &self,
        name: &GateKey,
        owner: Option<&str>,
        lease: Duration,
    ) -> Result<LockTaken, StoreError>;

    /// Renews a lock or lets it go, under the fence that it was acquired with; `None` where it is not known.
    async fn act_on_lock(
        &self,
        name: &GateKey,
        fence: i64,
        act: Act,
    ) -> Result<Option<(Allowed, LockView)>, StoreError>;

    /// What is known of a lock.
    async fn lock(&self, name: &GateKey) -> Result<Option<LockView>, StoreError>;

    /// Ends the lease of a lock, so that the next who asks takes it over; `None` where it is not known, `false` where nobody
    /// has it.
    async fn expire_lock(&self, name: &GateKey) -> Result<Option<bool>, StoreError>;
}

/// What came of asking for a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockTaken {
    /// Whether it is the asker's now.
    pub is_taken: bool,
    /// What is known of it now.
    pub view: LockView,
    /// The database's time of day.
    pub now: Instant,
}

/// What is known of a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LockView {
    /// Its name.
    pub name: GateKey,
    /// The number of its last acquisition.
    pub fence: i64,
    /// It was not let go yet; its lease may be over.
    pub is_held: bool,
    /// Who acquired it.
    pub owner: Option<String>,
    /// It was taken over from a holder that never let it go.
    pub takeover: bool,
    /// When it was last acquired.
    pub acquired_at: Instant,
    /// Until when its holder has it.
    pub lease_until: Instant,
}

impl LockView {
    const fn held(&self) -> Held {
        Held { fence: self.fence, is_released: !self.is_held, lease_until: self.lease_until }
    }
}

fn view<DB: Dialect>(row: &DB::Row) -> Result<LockView, StoreError> {
    Ok(LockView {
        name: GateKey::from_stored(rows::get::<DB, _>(row, "name")?),
        fence: rows::get::<DB, _>(row, "fence")?,
        is_held: rows::get::<DB, _>(row, "held")?,
        owner: rows::get::<DB, _>(row, "owner")?,
        takeover: rows::get::<DB, _>(row, "takeover")?,
        acquired_at: rows::instant::<DB>(row, "acquired_at")?,
        lease_until: rows::instant::<DB>(row, "lease_until")?,
    })
}

async fn acquire<DB: Dialect>(
    db: &mut DB::Connection,
    name: &GateKey,
    owner: Option<&str>,
    lease: Duration,
) -> Result<LockTaken, StoreError> {
    // A row that is new is one that was let go, and has no fence yet.
    let row = sql::<DB>(
        "INSERT INTO lock (name, fence, held, acquired_at, lease_until) VALUES ($1, 0, FALSE, 0, 0)
         ON CONFLICT (name) DO UPDATE SET fence = lock.fence
         RETURNING name, fence, held, owner, takeover, acquired_at, lease_until",
    );
    let mut view = view::<DB>(&row.text(name.as_str()).one(db).await?)?;
    let now = account::now::<DB>(db).await?;
    let Some(takeover) = lock::acquire(Some(&view.held()), now) else {
        return Ok(LockTaken { is_taken: false, view, now });
    };
    let fence = gate::keys::draw::<DB>(db, 1).await?.next();
    view.fence = fence.ok_or_else(|| StoreError::Inconsistent("no fence was drawn".to_owned()))?;
    view.is_held = true;
    view.owner = owner.map(without_nul);
    view.takeover = takeover;
    (view.acquired_at, view.lease_until) = (now, now.plus(lease));
    write::<DB>(db, &view).await?;
    Ok(LockTaken { is_taken: true, view, now })
}

async fn write<DB: Dialect>(db: &mut DB::Connection, view: &LockView) -> Result<(), StoreError> {
    sql::<DB>(
        "UPDATE lock SET fence = $2, held = $3, owner = $4, takeover = $5, acquired_at = $6, lease_until = $7
         WHERE name = $1",
    )
    .text(view.name.as_str())
    .bind(view.fence)
    .bind(view.is_held)
    .bind(view.owner.clone())
    .bind(view.takeover)
    .bind(view.acquired_at.micros())
    .bind(view.lease_until.micros())
    .run(db)
    .await?;
    Ok(())
}

async fn find<DB: Dialect>(
    db: &mut DB::Connection,
    name: &GateKey,
    statement: &'static str,
) -> Result<Option<LockView>, StoreError> {
    sql::<DB>(statement).text(name.as_str()).first(db).await?.map(|row| view::<DB>(&row)).transpose()
}

const SEEN: &str =
    "SELECT name, fence, held, owner, takeover, acquired_at, lease_until FROM lock WHERE name = $1";
const LOCKED: &str = "SELECT name, fence, held, owner, takeover, acquired_at, lease_until FROM lock WHERE name = $1 {for_update}";

async fn act<DB: Dialect>(
    db: &mut DB::Connection,
    name: &GateKey,
    fence: i64,
    what: Act,
) -> Result<Option<(Allowed, LockView)>, StoreError> {
    let Some(mut view) = find::<DB>(db, name, LOCKED).await? else { return Ok(None) };
    let allowed = lock::act(view.held(), fence, what);
    if allowed == Allowed::Yes {
        match what {
            Act::Renew(lease) => {
                let now = account::now::<DB>(db).await?;
                view.lease_until = view.lease_until.max(now.plus(lease));
            }
            Act::Release => view.is_held = false,
        }
        write::<DB>(db, &view).await?;
    }
    Ok(Some((allowed, view)))
}

async fn expire<DB: Dialect>(db: &mut DB::Connection, name: &GateKey) -> Result<Option<bool>, StoreError> {
    let Some(mut view) = find::<DB>(db, name, LOCKED).await? else { return Ok(None) };
    let now = account::now::<DB>(db).await?;
    let is_had = view.is_held && now < view.lease_until;
    if is_had {
        view.lease_until = now;
        write::<DB>(db, &view).await?;
    }
    Ok(Some(is_had))
}

/// How many locks one bite of a purge takes.
const BITE: i64 = 500;

/// Forgets locks whose leases ended before; who held one and comes back finds that it is not known.
pub(super) async fn forget<DB: Dialect>(
    db: &mut DB::Connection,
    before: Instant,
) -> Result<Taken, StoreError> {
    let gone = sql::<DB>(
        "DELETE FROM lock WHERE name IN (
             SELECT name FROM lock WHERE lease_until < $1 ORDER BY lease_until LIMIT $2 {skip_locked})",
    );
    let rows = gone.bind(before.micros()).bind(BITE).run(db).await?;
    let next = (rows >= BITE.unsigned_abs()).then_some(super::Purge::Locks(before));
    Ok(Taken { rows, next })
}

pub(super) const PURGEABLE: &str = "SELECT count(*) AS found FROM lock WHERE lease_until < $1";

#[async_trait]
impl<DB: Dialect> Locks for SqlStore<DB> {
    async fn acquire_lock(
        &self,
        name: &GateKey,
        owner: Option<&str>,
        lease: Duration,
    ) -> Result<LockTaken, StoreError> {
        let input = (name.clone(), owner.map(str::to_owned), lease);
        self.write(input, |db, (name, owner, lease)| {
            Box::pin(acquire::<DB>(db, name, owner.as_deref(), *lease))
        })
        .await
    }

    async fn act_on_lock(
        &self,
        name: &GateKey,
        fence: i64,
        act: Act,
    ) -> Result<Option<(Allowed, LockView)>, StoreError> {
        self.write((name.clone(), fence, act), |db, (name, fence, what)| {
            Box::pin(self::act::<DB>(db, name, *fence, *what))
        })
        .await
    }

    async fn lock(&self, name: &GateKey) -> Result<Option<LockView>, StoreError> {
        find::<DB>(&mut *self.reader().await?, name, SEEN).await
    }

    async fn expire_lock(&self, name: &GateKey) -> Result<Option<bool>, StoreError> {
        self.write(name.clone(), |db, name| Box::pin(expire::<DB>(db, name))).await
    }
}
