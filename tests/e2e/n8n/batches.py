"""The chapter about batches: many events in one request, and one that its workflow refuses among them."""

import collections
import json

import ledger
import workflows
from deliveries import Deliveries
from processes import check, say, wait_for
from proxy import Once, delivered

BATCH = {"max_events": 20, "max_bytes": "1MB", "linger": "500ms"}


class Batches(Deliveries):
    def __init__(self, *where):
        super().__init__("batches", *where)

    def tell(self):
        split_out = self.n8n.publish(workflows.example("batch-split-out"))
        self.receive("split-out", split_out, "onlynew-batches", "Batch", "Fields", batch=BATCH)
        refusing = self.n8n.publish(workflows.refusing_batches("refusing", "refused"))
        self.receive("refusing", refusing, "refusing", batch=BATCH)

        say("rows go out in batches; one answer is lost, and one workflow answers 400 where a batch holds a certain record")
        self.add("split-out", 60)
        self.add("refusing", 12)
        self.rows.add("refusing", "refused")
        self.add("refusing", 12)
        lost = self.proxy.hold_answers(Once(lambda exchange: exchange.path == "/webhook/onlynew-batches"))
        self.start()
        wait_for("the answer to a batch to be held back", lambda: lost.caught, 60, self.engine.program, self.n8n.program)
        lost.drop()
        self.wait_taken("split-out", "refusing", besides={"refused"})

        def dead():
            if not self.missing("refusing", besides={"refused"}):
                self.add("refusing", 1)
            return self.engine.events(destination="refusing", state="dead")

        (event,) = wait_for("the refused record to end dead", dead, 60, self.engine.program, every=1)
        check(event["key"] == "refused", f"{event['key']} is dead, not the record that was refused")
        self.wait_taken("refusing", besides={"refused"})
        self.stop()
        self._judge_form()
        self.compare({event["id"] for event in json.loads(lost.caught[0].body)["events"]})
        self._judge_split_out(split_out)

    def _judge_form(self):
        """Batches have the promised form and size, and one event a key."""
        sizes = collections.Counter()
        for exchange in self.proxy.exchanges(delivered):
            body = json.loads(exchange.body)
            check(set(body) == {"batch_id", "job", "events"}, f"a batch has the members {sorted(body)}")
            events = body["events"]
            check(1 <= len(events) <= BATCH["max_events"], f"a batch holds {len(events)} events")
            check(len(exchange.body) <= 1_000_000, f"a batch has {len(exchange.body)} bytes")
            check(all(event["job"] == body["job"] for event in events), f"{body['batch_id']} mixes jobs")
            sizes[body["job"], len(events)] += 1
        check(any(size > 1 for _, size in sizes), f"no batch held more than one event: {dict(sizes)}")
        say(f"batches by job and size: {dict(sizes)}")

    def _judge_split_out(self, workflow):
        for run in self.n8n.settled_executions(workflow, 60):
            body = run.item("Batch")["body"]
            names = ("id", "type", "job", "key", "version", "sequence", "data")
            lifted = [
                {**{name: event[name] for name in names}, "batch_id": body["batch_id"]}
                for event in ledger.events_of(body)
            ]
            check(run.nodes["Fields"] == lifted, f"execution {run.id}: its items are not the events of the batch")
