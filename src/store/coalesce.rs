//! Of several events that wait in a lane the newest alone is sent.

use serde::Serialize;

use super::{
    StoreError,
    claim::Head,
    dialect::{Dialect, sql},
    rows,
};

/// Turns heads over to the newest events of their lanes, and has the others superseded: the latest change is the newest,
/// also where an older one was sent again later. What may have been received is not: it is repeated first.
pub(super) async fn coalesce<DB: Dialect>(
    db: &mut DB::Connection,
    heads: &mut [Head],
) -> Result<(), StoreError> {
    #[derive(Serialize)]
    struct Turned {
        position: i64,
        newest: i64,
    }
    let free = heads.iter().filter(|head| head.message.is_none()).map(|head| head.position);
    let crowded = sql::<DB>(
        "SELECT head.position,
                (SELECT event.position FROM event
                 WHERE event.destination = head.destination AND event.job = head.job
                   AND event.partition = head.partition AND event.lane = head.lane AND event.state = 'pending'
                 ORDER BY event.sequence DESC, event.redelivery DESC LIMIT 1) AS newest
         FROM {each_text}($1{json}) AS free CROSS JOIN outbox_head AS head
         WHERE head.position = CAST(free.value AS BIGINT) AND EXISTS (
             SELECT 1 FROM event
             WHERE event.destination = head.destination AND event.job = head.job AND event.partition = head.partition
               AND event.lane = head.lane AND event.state = 'pending' AND event.position > head.position)",
    )
    .bind(serde_json::to_string(&free.collect::<Vec<_>>())?)
    .all(db)
    .await?;
    if crowded.is_empty() {
        return Ok(());
    }
    let mut turned = Vec::new();
    for row in crowded {
        let (position, newest) = (rows::get::<DB, _>(&row, "position")?, rows::get::<DB, _>(&row, "newest")?);
        turned.push(Turned { position, newest });
    }
    let list = serde_json::to_string(&turned)?;
    sql::<DB>(
        "UPDATE event SET state = 'superseded', settled_at = {now} WHERE position IN (
             SELECT older.position
             FROM {each}($1{json}) AS turned CROSS JOIN outbox_head AS head CROSS JOIN event AS older
             WHERE head.position = CAST(turned.value ->> 'position' AS BIGINT)
               AND older.destination = head.destination AND older.job = head.job AND older.partition = head.partition
               AND older.lane = head.lane AND older.state = 'pending'
               AND older.position <> CAST(turned.value ->> 'newest' AS BIGINT))",
    )
    .bind(list.clone())
    .run(db)
    .await?;
    sql::<DB>(
        "UPDATE outbox_head SET position = CAST(turned.value ->> 'newest' AS BIGINT), tried_at = NULL
         FROM {each}($1{json}) AS turned
         WHERE outbox_head.position = CAST(turned.value ->> 'position' AS BIGINT)
           AND outbox_head.position <> CAST(turned.value ->> 'newest' AS BIGINT)",
    )
    .bind(list)
    .run(db)
    .await?;
    for head in heads {
        if let Some(turned) = turned.iter().find(|turned| turned.position == head.position) {
            head.position = turned.newest;
        }
    }
    Ok(())
}
