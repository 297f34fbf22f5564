"""onlynew between rows of our own and any number of workflows of n8n, each a destination.

    rows ──▶ onlynew ──▶ proxy ──▶ n8n

The chapters on top of it add rows, wait until n8n has answered for them, and ask onlynew what it says of the rest.
"""

import collections
import json

import ledger
from engine import DELIVERY_TIMEOUT, Engine
from processes import StoryError, check, say, wait_for
from proxy import Proxy, delivered
from rows import Rows

# Probes of a destination that is shut follow these too.
RETRY = {"delays": ["1s", "2s"]}


class Deliveries:
    def __init__(self, name, binary, scratch, logs, n8n, store):
        self.n8n = n8n
        self.rows = Rows()
        self.proxy = Proxy(name, n8n.port)
        # Destination -> its receiver.
        self.receivers = {}
        self._jobs = {}
        self._destinations = {}
        self._make_engine = lambda jobs: Engine(binary, scratch / name, logs, jobs)
        self._store = store
        self.engine = None

    def receive(self, name, workflow_id, path, entry="Event", taken="Taken", jobs=None, **options):
        """A destination of this name, the webhook at this path, and the jobs that send to it (name -> `every`)."""
        self.receivers[name] = ledger.Receiver(name, workflow_id, entry, taken)
        self._destinations[name] = {
            "url": f"http://127.0.0.1:{self.proxy.port}/webhook/{path}",
            "timeout": DELIVERY_TIMEOUT,
            "retry": RETRY,
            **options,
        }
        for job, every in (jobs or {name: "1s"}).items():
            self._jobs[job] = {
                "source": {
                    "base_url": f"http://127.0.0.1:{self.rows.port}",
                    "request": {"path": f"/{job}"},
                    "records": {"path": "$.rows"},
                    "primary_key": ["id"],
                    "incremental": {"field": "updated_at", "format": "iso8601"},
                },
                "every": every,
                "first_run": "emit",
                "destination": name,
            }

    def start(self):
        jobs = {"version": 1, "destinations": self._destinations, "jobs": self._jobs}
        if self._store:
            jobs["store"] = self._store
        # JSON is YAML too.
        self.engine = self._make_engine(json.dumps(jobs, indent=2))
        self.engine.call("check")
        self.engine.start()

    def stop(self):
        code = self.engine.program.terminate(40)
        check(code == 0, f"onlynew ended with {code} after SIGTERM\n{self.engine.program.describe()}")

    def clear_away(self):
        self.proxy.close()
        self.rows.close()
        if self.engine and self.engine.program:
            self.engine.program.clean_up()

    def add(self, job, count, prefix="row"):
        """So many more rows of a job."""
        first = len(self.rows.of(job))
        for number in range(first, first + count):
            self.rows.add(job, f"{prefix}-{number}", text=f"Žito & Brašno №{number} \"quoted\" \\ 🧾")

    def taken(self):
        """Job -> the keys that n8n has answered 2xx for."""
        keys = collections.defaultdict(set)
        for exchange in self.proxy.exchanges(delivered):
            for event in ledger.events_of(json.loads(exchange.body)):
                keys[event["job"]].add(event["key"])
        return keys

    def missing(self, *jobs, besides=()):
        """(job, key) of the rows that n8n has not answered 2xx for."""
        taken = self.taken()
        return {
            (job, row["id"])
            for job in jobs
            for row in self.rows.of(job)
            if row["id"] not in besides and row["id"] not in taken[job]
        }

    def wait_taken(self, *jobs, besides=(), seconds=60):
        what = f"all rows of {', '.join(jobs)} to reach n8n"
        programs = (self.engine.program, self.n8n.program)
        try:
            wait_for(what, lambda: not self.missing(*jobs, besides=besides), seconds, *programs, every=0.3)
        except StoryError as error:
            missing = sorted(self.missing(*jobs, besides=besides))
            told = [event for job in jobs for event in self.engine.events(job=job)]
            shown = [f"  {event['job']} {event['key']} is {event['state']}: {event['last_error']}" for event in told]
            raise StoryError("\n".join([str(error), f"missing: {missing[:10]}", *shown[:10]])) from None

    def compare(self, again=frozenset()):
        """n8n ran what onlynew says it delivered, which is what the source gave, less what is dead.

        `again` are the ids of the events that must have run more than once.
        """
        repeated = set()
        for receiver in self.receivers.values():
            ran = ledger.compare(receiver, self.n8n, self.engine, self.proxy)
            jobs = [name for name, job in self._jobs.items() if job["destination"] == receiver.name]
            dead = self.engine.events(destination=receiver.name, state="dead")
            dead = {(event["job"], event["key"]) for event in dead}
            wanted = {(job, row["id"]): row for job in jobs for row in self.rows.of(job)}
            seen = {(events[0]["job"], events[0]["key"]): events[0]["data"] for events in ran.values()}
            twice = {event_id for event_id, events in ran.items() if len(events) > 1}
            repeated |= twice
            for name in wanted.keys() - dead:
                check(name in seen, f"{receiver.name}: n8n never ran {name}, which is not dead either")
            for name, data in seen.items():
                check(wanted.get(name) == data, f"{receiver.name}: {name} ran with other data than the source gave")
                check(name not in dead, f"{receiver.name}: {name} ran, and is dead")
            check(len(seen) == len(ran), f"{receiver.name}: {len(ran)} events ran for {len(seen)} rows")
            say(
                f"{receiver.name}: {len(ran)} events ran and are on record as delivered, {len(twice)} of them ran again "
                f"because an answer was lost; {len(dead)} dead"
            )
        check(again <= repeated, f"{sorted(again - repeated)} ran once, although an answer was lost after they ran")
