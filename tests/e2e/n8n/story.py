"""The end-to-end story, told with the real programs at both ends.

    localstripe ──▶ proxy ──▶ onlynew ──▶ proxy ──▶ n8n on PostgreSQL

Customers are created and changed between polls that overlap. onlynew is killed with SIGKILL in the middle of a
poll, in the middle of its deliveries, and while an answer of n8n was on its way. In the end n8n itself is asked
what it ran: every change once, with the right data, in order; no unchanged record again; and twice only the
events whose answer was lost on the way, with the same id and the same bytes.

Then come parts with an onlynew and a source of their own and the same n8n (receivers.py, batches.py): receivers that
are not there yet, refuse, or are restarted. For every workflow n8n's executions are compared with onlynew's outbox.
"""

import argparse
import json
import pathlib
import signal
import subprocess
import sys
import time
import traceback

import engine
import ledger
import workflows
from batches import Batches
from expected import Expected
from localstripe import JOBS, KEY, Localstripe
from n8n import N8n
from processes import StoryError, check, say, tail, wait_for
from proxy import Countdown, Once, Proxy, delivered, identity
from receivers import Receivers

REPOSITORY = pathlib.Path(__file__).resolve().parents[3]

# More than two pages of Stripe's 100; n8n starts some 13 executions a second on two cores.
CUSTOMERS = 220
# After a SIGKILL the job's lease and the claims' leases have to run out first.
AFTER_KILL = 180
# Answers are written down in groups; by then they surely are.
WRITTEN_DOWN = 2.0


class Story:
    def __init__(self, cache, scratch, store):
        self.cache = cache
        self.scratch = scratch
        self.logs = scratch / "logs"
        self.store = store
        self.expected = Expected()
        # The ids of all customers, in the order in which they were created.
        self.ids = []
        # Events whose answer was lost on purpose.
        self.again = set()
        # Further parts of the story, each with an onlynew of its own.
        self.parts = []
        self.localstripe = self.n8n = self.engine = self.source = self.destination = self.workflow = None

    # Setting up and clearing away.

    def set_up(self):
        self.logs.mkdir()
        self.binary = engine.build(REPOSITORY)
        say("starting localstripe and n8n")
        self.localstripe = Localstripe(self.cache, self.logs)
        self.n8n = N8n(self.cache, self.scratch, self.logs, self._postgres("n8n"))
        self.n8n.start()
        self.n8n.wait_until_up(300)
        self.n8n.set_up_owner()
        self.workflow = self.n8n.publish(workflows.example("single-changes"))
        self.source = Proxy("source", self.localstripe.port)
        self.destination = Proxy("destination", self.n8n.port)
        jobs = JOBS.format(
            store=f"store: {url}" if (url := self._store("onlynew")) else "",
            key=KEY,
            source_port=self.source.port,
            destination_port=self.destination.port,
            timeout=engine.DELIVERY_TIMEOUT,
        )
        self.engine = engine.Engine(self.binary, self.scratch / "onlynew", self.logs, jobs)
        self.engine.call("check")

    def _store(self, name):
        """The URL of a store; none means SQLite in onlynew's folder."""
        return self._postgres(name) if self.store == "postgres" else None

    def _postgres(self, name):
        script = REPOSITORY / "scripts" / "postgres"
        started = subprocess.run(
            [script, "start", self.scratch / f"postgres-{name}"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )
        check(started.returncode == 0, f"{script} start ended with {started.returncode}")
        return started.stdout.strip()

    def clear_away(self):
        for proxy in (self.source, self.destination):
            if proxy:
                proxy.close()
        for part in self.parts:
            part.clear_away()
        for owner in (self.engine, self.n8n, self.localstripe):
            if owner and owner.program:
                owner.program.clean_up()
        stop = [REPOSITORY / "scripts" / "postgres", "stop"]
        for cluster in self.scratch.glob("postgres-*"):
            subprocess.run([*stop, cluster], stdin=subprocess.DEVNULL, check=False)

    # What happens at the source.

    def create(self, count):
        made = []
        for _ in range(count):
            number = len(self.ids)
            customer = self.localstripe.create_customer(
                name=f"Customer {number}",
                email=f"customer{number}@example.com",
                # What JSON and HTTP may bend on the way: umlauts, an emoji, quotes, a number that looks like one.
                description=f"Žito & Brašno №{number} \"quoted\" \\ 🧾",
                metadata={"number": f"{number:04}", "plan": "free"},
            )
            self.ids.append(customer["id"])
            self.expected.customer(customer)
            made.append(customer["id"])
        return made

    def change(self, ids, plan):
        for customer_id in ids:
            self.expected.customer(self.localstripe.update_customer(customer_id, metadata={"plan": plan}))

    def touch(self, ids):
        """Saves customers without a change: Stripe writes an event, the customer stays what it was."""
        for customer_id in ids:
            name = self.localstripe.get(f"/v1/customers/{customer_id}")["name"]
            self.localstripe.update_customer(customer_id, name=name)

    # What is seen on the way to n8n.

    def deliveries(self):
        """Answered deliveries as (job, key, sequence), in the order in which they were asked for."""
        return [identity(exchange) for exchange in self.destination.exchanges(delivered)]

    def wait_delivered(self, seconds):
        """Waits until every change that happened was answered by n8n."""
        self.expected.events(self.localstripe.events())
        wanted = self.expected.changes()

        def missing():
            return wanted - set(self.deliveries())

        try:
            wait_for("every change to reach n8n", lambda: not missing(), seconds, self.engine.program)
        except StoryError as error:
            some = ", ".join(map(str, sorted(missing())[:5]))
            raise StoryError(f"{error}\n{len(missing())} of {len(wanted)} changes did not arrive, such as {some}") from None

    def wait_walks(self, count, seconds):
        """Waits until both jobs have read all they may `count` times more, each time from the first page on."""
        began = time.monotonic()

        def walks(path):
            return len(self.source.exchanges(lambda e: e.started > began and e.path == path and last_page(e)))

        # One more than asked for: the first to end may have begun before.
        wait_for(
            f"{count} whole walks of both streams",
            lambda: min(walks("/v1/customers"), walks("/v1/events")) > count,
            seconds,
            self.engine.program,
        )

    def freeze_and_kill(self, *holding):
        """SIGKILL at a moment when no answer of n8n is under way, and what was answered is written down.

        From the freeze on, no delivery reaches n8n; each waits at the proxy and is cut off after the kill. So none
        of them has run, and none may be missing later. Traps that are `holding` something go on holding it until
        onlynew is dead, and are dropped then.
        """
        freeze = self.destination.hold_requests(lambda exchange: True)
        wait_for("the deliveries under way to be answered", self.destination.quiet, 30, self.engine.program)
        time.sleep(WRITTEN_DOWN)
        for trap in holding:
            check(trap.holding > 0, "onlynew no longer waits for what was held back")
        self.engine.program.kill()
        # What it sent with its last breath has reached the freeze by then.
        time.sleep(0.5)
        for trap in (freeze, *holding):
            trap.drop()
        for proxy in (self.source, self.destination):
            wait_for(f"the {proxy.name} proxy to let go of the killed run's requests", proxy.idle, 30)

    # The chapters.

    def killed_in_a_poll(self):
        say(f"{CUSTOMERS} customers are there before the first poll")
        self.create(CUSTOMERS)
        self.expected.baseline(self.localstripe.events())
        # The baseline of `events` is an instant, and their time has whole seconds: what follows must be later.
        time.sleep(3)

        second_page = self.source.hold_requests(
            lambda e: e.path == "/v1/customers" and "starting_after" in e.query
        )
        self.engine.start()
        wait_for("the second page of customers to be asked for", lambda: second_page.caught, 60, self.engine.program)
        first_page = self.source.exchanges(lambda e: e.path == "/v1/customers" and e.answered)[0]
        on_it = [row["id"] for row in json.loads(first_page.answer)["data"]]
        check(0 < len(on_it) < CUSTOMERS, f"the first page holds {len(on_it)} of {CUSTOMERS} customers")
        say(f"while the second page is held back, the {len(on_it)} changes of the first one reach n8n")
        wanted = {("customers", key, 1) for key in on_it}
        wait_for(
            "the changes of the first page to reach n8n",
            lambda: wanted <= set(self.deliveries()),
            120,
            self.engine.program,
        )
        wait_for(
            "the baseline of events to be read",
            lambda: self.source.exchanges(lambda e: e.path == "/v1/events" and last_page(e)),
            60,
            self.engine.program,
        )
        say("SIGKILL in the middle of that poll")
        self.freeze_and_kill(second_page)
        check(
            set(self.deliveries()) == wanted,
            "before the first kill n8n was handed something else than the first page's customers",
        )

        say("while onlynew is down, customers are changed and created")
        self.change(on_it[:10], "bought-while-down")
        self.touch(on_it[10:15])
        self.create(5)
        self.engine.start()
        self.wait_delivered(AFTER_KILL)

    def steady_polls(self):
        for turn in range(3):
            say(f"polling goes on: round {turn + 1} of changes")
            self.change(self.ids[turn * 7 :: 23], f"round-{turn}")
            self.touch(self.ids[turn * 5 + 1 :: 61])
            self.create(3)
            self.wait_delivered(60)

    def killed_in_deliveries(self):
        say("many customers change at once; after a few deliveries no more are let through")
        passing = Countdown(8)
        gate = self.destination.hold_requests(lambda exchange: not passing.take())
        before = len(self.deliveries())
        self.change(self.ids[50:90], "many-at-once")
        wait_for("deliveries to wait at the gate", lambda: gate.caught, 60, self.engine.program)
        say("SIGKILL in the middle of those deliveries")
        self.freeze_and_kill(gate)
        done = self.deliveries()[before:]
        check(len(done) == 8, f"{len(done)} deliveries were answered before the kill, 8 were let through")
        self.engine.start()
        self.wait_delivered(AFTER_KILL)

    def killed_before_an_answer(self):
        say("n8n's answer to one delivery is held back; SIGKILL before it arrives")
        ids = self.ids[100:103]
        held = self.destination.hold_answers(Once(lambda e: identity(e)[:2] == ("customers", ids[1])))
        self.change(ids, "answer-lost-to-a-kill")
        wait_for("the answer to be held back", lambda: held.caught, 60, self.engine.program)
        self.freeze_and_kill(held)
        self.engine.start()
        self.wait_delivered(AFTER_KILL)
        self.check_repeat(held)

    def answer_cut_off(self):
        say("the connection breaks before n8n's answer arrives; onlynew lives on")
        (customer,) = ids = self.ids[110:111]
        held = self.destination.hold_answers(Once(lambda e: identity(e)[:2] == ("customers", customer)))
        self.change(ids, "answer-cut-off")
        wait_for("the answer to be held back", lambda: held.caught, 60, self.engine.program)
        held.drop()
        self.wait_delivered(60)
        self.check_repeat(held)

    def check_repeat(self, held):
        """The delivery whose answer was lost came once more, with the same key and the same bytes."""
        (lost,) = held.caught
        name = identity(lost)
        check(lost.status == 200 and lost.answered is None, f"the answer to {name} was not lost as it should be")
        same = self.destination.exchanges(lambda e: e.status is not None and identity(e) == name)
        check(len(same) == 2, f"{name}, whose answer was lost, was passed on {len(same)} times, not twice")
        check(same[0] is lost and same[1].answered, f"the repeat of {name} was not answered")
        for header in ("idempotency-key", "webhook-id", "content-type"):
            values = [exchange.headers.get(header) for exchange in same]
            check(values[0] and values[0] == values[1], f"the repeat of {name} changed {header}: {values}")
        check(same[0].body == same[1].body, f"the repeat of {name} has other bytes: {[e.body for e in same]}")
        self.again.add(json.loads(lost.body)["id"])

    def nothing_new(self):
        say("nothing happens, and nothing is handed on")
        before = len(self.destination.exchanges())
        self.wait_walks(2, 60)
        extra = self.destination.exchanges()[before:]
        check(not extra, f"polls that found nothing new handed on {[identity(e) for e in extra[:5]]}")

    def asked_to_stop(self):
        say("SIGTERM")
        code = self.engine.program.terminate(40)
        check(code == 0, f"onlynew ended with {code} after SIGTERM\n{self.engine.program.describe()}")
        for job, rows in (("customers", len(self.ids)), ("events", None)):
            summary = self.engine.sync(job)
            say(f"onlynew sync {job}: {json.dumps(summary)}")
            wanted = {"job": job, "status": "ok"}
            quiet = ["created", "updated", "deleted", "restored", "quarantined", "events", "delivered", "pending", "dead"]
            wanted.update(dict.fromkeys(quiet, 0))
            if rows:
                wanted.update(records=rows, unchanged=rows)
            wrong = {name: summary.get(name) for name, value in wanted.items() if summary.get(name) != value}
            check(not wrong, f"`onlynew sync {job}` found something new where nothing is: {wrong}")

    def judged_by_n8n(self):
        say("n8n says what it ran")
        runs = self.n8n.settled_executions(self.workflow, 120)
        wrong = [f"{run.id}: {run.status}" for run in runs if run.status != "success" or run.mode != "webhook"]
        check(not wrong, f"{len(wrong)} of {len(runs)} executions went wrong in n8n: {wrong[:10]}")
        bodies = []
        for run in runs:
            body = run.item("Change")["body"]
            key = run.item("Change")["headers"].get("idempotency-key")
            check(key == body["id"], f"execution {run.id} has the Idempotency-Key {key} and the id {body['id']}")
            lifted = {name: body[name] for name in ("id", "type", "job", "key", "version", "sequence", "data")}
            check(run.item("Fields") == lifted, f"execution {run.id}: the fields are not those of the body")
            bodies.append(body)
        self.expected.events(self.localstripe.events())
        self.expected.compare(bodies, self.again)
        receiver = ledger.Receiver("n8n", self.workflow, "Change", "Fields")
        ledger.compare(receiver, self.n8n, self.engine, self.destination)

        read = sum(len(json.loads(e.answer)["data"]) for e in self.source.exchanges(lambda e: e.answered))
        changes = len(self.expected.changes())
        check(read > 4 * changes, f"the polls hardly overlapped: {read} rows were read for {changes} changes")
        say(
            f"{read} rows were read, {changes} changes happened, n8n ran {len(runs)} executions: each change once, "
            f"{len(self.again)} of them twice, whose answers were lost on purpose"
        )

    def part(self, kind):
        """Tells a part of the story that has an onlynew of its own."""
        part = kind(self.binary, self.scratch, self.logs, self.n8n, self._store(kind.__name__.lower()))
        self.parts.append(part)
        part.tell()

    def tell(self):
        self.set_up()
        self.killed_in_a_poll()
        self.steady_polls()
        self.killed_in_deliveries()
        self.killed_before_an_answer()
        self.answer_cut_off()
        self.nothing_new()
        self.asked_to_stop()
        self.judged_by_n8n()
        self.part(Receivers)
        self.part(Batches)


def last_page(exchange):
    return exchange.answered is not None and exchange.status == 200 and not json.loads(exchange.answer)["has_more"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--cache", type=pathlib.Path, required=True)
    parser.add_argument("--scratch", type=pathlib.Path, required=True)
    parser.add_argument("--store", choices=["sqlite", "postgres"], default="sqlite")
    options = parser.parse_args()

    # A signal ends the story as an error does: its programs are ended first.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    began = time.monotonic()
    story = Story(options.cache.resolve(), options.scratch.resolve(), options.store)
    try:
        story.tell()
    except Exception as error:
        print(f"\nFAILED after {time.monotonic() - began:.0f} s: ", end="")
        if isinstance(error, StoryError):
            print(error)
            frames = reversed(traceback.extract_tb(error.__traceback__))
            print("at", " <- ".join(f"{frame.name}:{frame.lineno}" for frame in frames if frame.filename == __file__))
        else:
            traceback.print_exc(file=sys.stdout)
        for log in sorted(story.logs.glob("*.log")):
            print(f"\n---- the end of {log}\n{tail(log, 15)}")
        sys.stdout.flush()
        return 1
    finally:
        story.clear_away()
    say(f"PASSED in {time.monotonic() - began:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
