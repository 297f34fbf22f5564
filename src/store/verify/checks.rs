//! The checks. Each statement is written so that what is sound comes out empty, whatever is under way beside it.

use super::Check;

/// What is found is of no release's making.
const REPORT: &str = "no release writes this: stop every process, keep a copy of the database, and report it";

/// Every check, in the order of the report.
pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "lanes_have_heads",
        holds: "every lane with events that wait has a head, by which they are sent",
        advice: "these events are never sent: keep a copy of the database, and report it",
        sql: "SELECT 'event ' || event.event_id || ' waits without a head' AS found FROM event
              WHERE event.state = 'pending' AND NOT EXISTS (
                 SELECT 1 FROM outbox_head AS head
                 WHERE head.destination = event.destination AND head.job = event.job
                   AND head.partition = event.partition AND head.lane = event.lane)
              ORDER BY event.position LIMIT $1",
    },
    Check {
        name: "heads_come_first",
        holds: "a head names the earliest event of its lane that waits, but for events that are sent again",
        advice: "events of this key go out in the wrong order: stop every process until it is understood",
        sql: "SELECT 'the head of ' || head.lane || ' stands at ' || CAST(head.position AS TEXT) || ', and '
                     || CAST(waiting.earliest AS TEXT) || ' comes first' AS found
              FROM outbox_head AS head CROSS JOIN (
                  SELECT destination, job, partition, lane, min(position) AS earliest FROM event
                  WHERE state = 'pending' AND redelivery = 0 GROUP BY destination, job, partition, lane) AS waiting
              WHERE waiting.destination = head.destination AND waiting.job = head.job
                AND waiting.partition = head.partition AND waiting.lane = head.lane
                AND waiting.earliest < head.position
              ORDER BY head.position LIMIT $1",
    },
    Check {
        name: "heads_name_waiting_events",
        holds: "the event that a head names waits, and is of its lane",
        advice: "what waits behind it is never sent: keep a copy of the database, and report it",
        sql: "SELECT 'the head of ' || head.lane || ' names ' || coalesce('event ' || event.event_id || ', which is '
                     || event.state || ' and of ' || event.lane, 'no event') AS found
              FROM outbox_head AS head LEFT JOIN event ON event.position = head.position
              WHERE event.position IS NULL OR event.state <> 'pending' OR event.destination <> head.destination
                 OR event.job <> head.job OR event.partition <> head.partition OR event.lane <> head.lane
              ORDER BY head.position LIMIT $1",
    },
    Check {
        name: "held_heads_are_never_due",
        holds: "a head that waits for a person is not due and not sent, and no other waits for ever",
        advice: "`onlynew outbox retry EVENT` has it due at once",
        sql: "SELECT 'the head of ' || lane || ' is due ' || CAST(due_at AS TEXT)
                     || CASE WHEN held THEN ' and held' ELSE '' END AS found
              FROM outbox_head
              WHERE (held AND (leased OR due_at < 9223372036854775807)) OR (NOT held AND due_at > {now} + 172800000000)
              ORDER BY position LIMIT $1",
    },
    Check {
        name: "fences_grow",
        holds: "a head that is being sent has a fence, and no attempt for it has a later one",
        advice: REPORT,
        sql: "SELECT 'the head of ' || head.lane || ' has the fence ' || CAST(head.fence AS TEXT) AS found
              FROM outbox_head AS head
              WHERE (head.leased AND head.fence < 1) OR EXISTS (
                 SELECT 1 FROM attempt WHERE attempt.position = head.position AND attempt.fence > head.fence)
              ORDER BY head.position LIMIT $1",
    },
    Check {
        name: "messages_are_of_one_job",
        holds: "the events of a message are of one job",
        advice: REPORT,
        sql: "SELECT 'the message ' || message || ' holds events of '
                     || CAST(count(DISTINCT job) AS TEXT) || ' jobs' AS found
              FROM outbox_head WHERE message IS NOT NULL
              GROUP BY destination, message HAVING count(DISTINCT job) > 1
              ORDER BY message LIMIT $1",
    },
    Check {
        name: "events_have_known_states",
        holds: "the state of an event is one that this release knows",
        advice: "a later release may have written it: use that one",
        sql: "SELECT 'event ' || event_id || ' is ' || state AS found FROM event
              WHERE state NOT IN ('pending', 'delivered', 'dead', 'discarded', 'superseded')
              ORDER BY position LIMIT $1",
    },
    Check {
        name: "settled_events_say_when",
        holds: "an event has a moment of settlement exactly where it is settled",
        advice: REPORT,
        sql: "SELECT 'event ' || event_id || ' is ' || state
                     || CASE WHEN settled_at IS NULL THEN ' since no moment' ELSE ' and settled' END AS found
              FROM event WHERE (state = 'pending') <> (settled_at IS NULL) ORDER BY position LIMIT $1",
    },
    Check {
        name: "sequences_are_unique",
        holds: "two events of one key have different numbers",
        advice: "a workflow that goes by `sequence` takes one for the other: report it",
        sql: "SELECT 'the key ' || key || ' has ' || CAST(count(DISTINCT event_id) AS TEXT) || ' events of number '
                     || CAST(sequence AS TEXT) AS found
              FROM event JOIN job ON job.id = event.job
              WHERE event.redelivery = 0 AND event.position > job.begun_behind
              GROUP BY event.job, partition, key, sequence HAVING count(DISTINCT event_id) > 1
              ORDER BY key, sequence LIMIT $1",
    },
    Check {
        name: "sequences_are_counted",
        holds: "no event of a key has a number above the one that its record has counted to",
        advice: "the next change of this key takes a number that is used already: report it before the job runs again",
        sql: "SELECT 'event ' || event.event_id || ' is number ' || CAST(event.sequence AS TEXT) || ' of the key '
                     || event.key || ', whose record counts ' || CAST(record.sequence AS TEXT) AS found
              FROM job CROSS JOIN event CROSS JOIN record
              WHERE event.job = job.id AND event.redelivery = 0 AND event.position > job.begun_behind
                AND record.job = event.job AND record.partition = event.partition AND record.key = event.key
                AND record.sequence < event.sequence
              ORDER BY event.position LIMIT $1",
    },
    Check {
        name: "redeliveries_are_the_same_event",
        holds: "what is sent again has the key, the number and the body of its event, which is settled",
        advice: REPORT,
        sql: "SELECT 'redelivery ' || CAST(again.redelivery AS TEXT) || ' of event ' || again.event_id || ' '
                     || CASE WHEN before.position IS NULL THEN 'has none before it'
                             WHEN before.state = 'pending' THEN 'came while the one before it waited'
                             ELSE 'differs from the one before it' END AS found
              FROM event AS again LEFT JOIN event AS before
                ON before.event_id = again.event_id AND before.redelivery = again.redelivery - 1
              WHERE again.redelivery > 0 AND (before.position IS NULL OR before.state = 'pending'
                 OR before.job <> again.job OR before.partition <> again.partition OR before.key <> again.key
                 OR before.sequence <> again.sequence OR before.body <> again.body)
              ORDER BY again.position LIMIT $1",
    },
    Check {
        name: "attempts_are_of_events",
        holds: "every attempt is for an event that is stored, and no event has more of them than tries",
        advice: REPORT,
        sql: "SELECT found FROM (
                 SELECT 'attempt ' || CAST(attempt.id AS TEXT) || ' is for no event' AS found FROM attempt
                 WHERE NOT EXISTS (SELECT 1 FROM event WHERE event.position = attempt.position)
                 UNION ALL
                 SELECT 'event ' || event.event_id || ' was tried ' || CAST(event.tries AS TEXT) || ' times and has '
                        || CAST(counted.attempts AS TEXT) || ' attempts'
                 FROM (SELECT position, count(*) AS attempts FROM attempt GROUP BY position) AS counted CROSS JOIN event
                 WHERE event.position = counted.position AND event.tries < counted.attempts) AS wrong
              ORDER BY found LIMIT $1",
    },
    Check {
        name: "everything_is_of_a_job",
        holds: "events, heads, records and runs are of a job that is stored",
        advice: REPORT,
        sql: "SELECT found FROM (
                 SELECT DISTINCT 'events of the job ' || CAST(job AS TEXT) || ', which there is not' AS found FROM event
                 WHERE job NOT IN (SELECT id FROM job)
                 UNION SELECT DISTINCT 'heads of the job ' || CAST(job AS TEXT) || ', which there is not' FROM outbox_head
                 WHERE job NOT IN (SELECT id FROM job)
                 UNION SELECT DISTINCT 'records of the job ' || CAST(job AS TEXT) || ', which there is not' FROM record
                 WHERE job NOT IN (SELECT id FROM job)
                 UNION SELECT DISTINCT 'runs of the job ' || CAST(job AS TEXT) || ', which there is not' FROM run
                 WHERE job NOT IN (SELECT id FROM job)) AS wrong
              ORDER BY found LIMIT $1",
    },
    Check {
        name: "records_have_states",
        holds: "no record is a placeholder, which only the transaction that makes it may see",
        advice: "the key is decided when it is read again; report it all the same",
        sql: "SELECT 'the key ' || key || ' has no state' AS found FROM record
              WHERE ((hash IS NULL OR answered_at IS NULL) AND forgotten_at IS NULL) OR sequence < 0 ORDER BY key LIMIT $1",
    },
    Check {
        name: "leases_are_whole",
        holds: "a job's lease has an owner, an end within the hour, and an epoch, or neither owner nor end",
        advice: "the clock of the database may have been set back: the job runs again once its lease has run out",
        sql: "SELECT 'the job ' || name || ' is held by ' || coalesce(lease_owner, 'nobody') || ' until '
                     || coalesce(CAST(lease_until AS TEXT), 'no moment') AS found
              FROM job
              WHERE (lease_owner IS NULL) <> (lease_until IS NULL) OR lease_until > {now} + 3600000000
                 OR (lease_owner IS NOT NULL AND lease_epoch < 1)
              ORDER BY name LIMIT $1",
    },
    Check {
        name: "one_run_at_a_time",
        holds: "a job has one open run at most",
        advice: REPORT,
        sql: "SELECT 'the job ' || CAST(job AS TEXT) || ' has ' || CAST(count(*) AS TEXT) || ' open runs' AS found
              FROM run WHERE status = 'running' GROUP BY job, kind HAVING count(*) > 1 ORDER BY job LIMIT $1",
    },
    Check {
        name: "ended_runs_say_when",
        holds: "a run has an end exactly where it is not open",
        advice: REPORT,
        sql: "SELECT 'run ' || CAST(id AS TEXT) || ' is ' || status AS found FROM run
              WHERE (status = 'running') <> (ended_at IS NULL) ORDER BY id LIMIT $1",
    },
    Check {
        name: "counts_add_up",
        holds: "the records of a run are the sum of what was decided of them",
        advice: "the numbers of these runs are wrong, and nothing else: report it",
        sql: "SELECT 'run ' || CAST(id AS TEXT) || ' read ' || CAST(records AS TEXT) || ' records and decided '
                     || CAST(created + updated + deleted + restored + unchanged + stale + conflicts + quarantined + skipped
                             + below_floor AS TEXT) AS found
              FROM run
              WHERE records <> created + updated + deleted + restored + unchanged + stale + conflicts + quarantined + skipped
                             + below_floor
              ORDER BY id LIMIT $1",
    },
    Check {
        name: "sightings_are_of_their_job",
        holds: "what pages found and what runs covered is of a run of the same job",
        advice: REPORT,
        sql: "SELECT found FROM (
                 SELECT 'sighting ' || CAST(sighting.id AS TEXT) || ' is of another job than its run' AS found
                 FROM sighting CROSS JOIN run WHERE run.id = sighting.run AND run.job <> sighting.job
                 UNION ALL
                 SELECT 'sighting ' || CAST(id AS TEXT) || ' holds no whole key' FROM sighting WHERE length(keys) < 9
                 UNION ALL
                 SELECT 'covered ' || CAST(covered.id AS TEXT) || ' is of another job than its run'
                 FROM covered CROSS JOIN run WHERE run.id = covered.run AND run.job <> covered.job) AS wrong
              ORDER BY found LIMIT $1",
    },
    Check {
        name: "covered_steps_have_versions",
        holds: "a step that was covered begins before it ends",
        advice: REPORT,
        sql: "SELECT 'run ' || CAST(run AS TEXT) || ' covered from ' || CAST(from_version AS TEXT) || ' up to '
                     || CAST(to_version AS TEXT) AS found
              FROM covered WHERE from_version >= to_version ORDER BY id LIMIT $1",
    },
    Check {
        name: "watermarks_are_covered",
        holds: "a watermark stands no higher than some live run is known to have read to the end",
        advice: "changes may have been passed over: `onlynew why JOB --gap FROM TO` tells which versions were read",
        sql: "SELECT 'the watermark of ' || job.name || ' is ' || CAST(progress.watermark AS TEXT) || ', and read was up to '
                     || CAST(known.reached AS TEXT) AS found
              FROM progress JOIN job ON job.id = progress.job JOIN (
                  SELECT covered.job, covered.partition, max(covered.to_version) AS reached
                  FROM covered CROSS JOIN run WHERE run.id = covered.run AND run.task IS NULL
                  GROUP BY covered.job, covered.partition HAVING count(*) = count(covered.to_version)) AS known
                ON known.job = progress.job AND known.partition = progress.partition
              WHERE progress.watermark > known.reached ORDER BY job.name LIMIT $1",
    },
    Check {
        name: "destinations_have_known_conditions",
        holds: "the condition of a destination is one that this release knows",
        advice: "a later release may have written it: use that one",
        sql: "SELECT 'the destination ' || name || ' is ' || condition AS found FROM destination
              WHERE condition NOT IN ('well', 'recovering', 'failing', 'parked') ORDER BY name LIMIT $1",
    },
];
