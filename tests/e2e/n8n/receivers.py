"""The chapters about what n8n may do to a delivery: one destination for each kind of receiver.

A workflow that is not active yet, the three ways in which a webhook answers, a record that its workflow cannot take,
one that is larger than n8n takes, a receiver that verifies signatures, and n8n restarted in the middle of it all.
"""

import base64
import hashlib
import hmac
import json
import secrets
import time
import urllib.error
import urllib.request

import workflows
from deliveries import Deliveries
from processes import check, say, wait_for
from proxy import Countdown, Once

# One for each response mode of the Webhook node.
MODES = {"received": "onReceived", "last": "lastNode", "response": "responseNode"}
# So that n8n is asked many times while it starts.
SOON = {"delays": ["200ms", "400ms"]}
# What n8n answers with a 200 before it takes anything.
STARTING = b"n8n is starting up. Please wait"
# n8n takes 16 MB unless N8N_PAYLOAD_SIZE_MAX says otherwise.
TOO_LARGE = 17 * 1024 * 1024


class Receivers(Deliveries):
    def __init__(self, *where):
        super().__init__("receivers", *where)
        self.secret = secrets.token_hex(24)
        self.late_version = self.alerts = self.lost_event = None

    def tell(self):
        self._set_up()
        self._all_at_once()
        self._some_end_dead()
        self._activated_late()
        self._restarted()
        self._forged()
        self.stop()
        self.compare({self.lost_event})
        self._alerted()

    def _set_up(self):
        single = workflows.example("single-changes")
        late, self.late_version = self.n8n.add(workflows.moved(single, "late"))
        self.receive("late", late, "late", "Change", "Fields")

        for name, mode in MODES.items():
            last = workflows.ANSWER if mode == "responseNode" else workflows.TAKEN
            workflow = self.n8n.publish(workflows.answering(name, mode, workflows.PAUSE, last))
            self.receive(name, workflow, name, retry=SOON)

        self.alerts = self.n8n.publish(workflows.example("error-alert"))
        throwing = self.n8n.publish(workflows.throwing("throwing", "poison", self.alerts))
        self.receive("throwing", throwing, "throwing")

        large = self.n8n.publish(workflows.answering("large", "onReceived", workflows.TAKEN))
        # Read once: its row is as large as it is meant to be.
        self.receive("large", large, "large", jobs={"large": "1h", "small": "1s"})

        credential = self.n8n.add_credential("onlynew signing secret", "crypto", {"hmacSecret": self.secret})
        signed = workflows.with_credential(
            workflows.example("verify-signature"), "crypto", credential, "onlynew signing secret"
        )
        signing_secret = base64.b64encode(self.secret.encode()).decode()
        self.receive(
            "signed", self.n8n.publish(signed), "onlynew-signed", "Signed change", signing_secret=signing_secret
        )

    def _all_at_once(self):
        say("rows for a workflow that is not active, for three that answer in three ways, and for three more")
        for name in ("late", "signed", *MODES):
            self.add(name, 6)
        self.add("throwing", 6)
        self.rows.add("throwing", "poison")
        self.add("throwing", 6)
        self.rows.add("large", "too-large", text="x" * TOO_LARGE)
        self.add("small", 3)
        self.start()

        def parked():
            told = self.engine.destination("late")
            return told if told["condition"] == "parked" and told["pending"] == 6 else None

        what = "the destination whose workflow is not active to be parked"
        told = wait_for(what, parked, 60, self.engine.program, every=0.5)
        check("not registered" in told["reason"], f"the destination is parked because of {told['reason']!r}")
        self.wait_taken("signed", "small", "throwing", *MODES, besides={"poison"})

    def _some_end_dead(self):
        say("what a workflow cannot take ends dead, as others go by; what waits for an inactive one does not")
        troubled = {"throwing": ("throwing", "poison"), "large": ("small", "too-large")}

        def all_dead():
            alive = []
            for name, (job, key) in troubled.items():
                if not self.engine.events(destination=name, key=key, state="dead"):
                    alive.append(job)
            # Attempts count only where the destination has taken something since: it is given something to take.
            for job in alive:
                if not self.missing(job, besides={"poison"}):
                    self.add(job, 1)
            return not alive

        wait_for("the record that throws and the one that is too large to end dead", all_dead, 90, every=0.5)
        for name, (job, key) in troubled.items():
            (dead,) = self.engine.events(destination=name, state="dead")
            check(dead["key"] == key, f"{name}: {dead['key']} is dead, not {key}")
            attempts = self.engine.event(dead["event"])["attempts"]
            say(f"{key}: answered {[attempt['status'] for attempt in attempts]}; {dead['last_error']}")
            condition = self.engine.destination(name)["condition"]
            check(condition in ("well", "recovering"), f"{name} is {condition} for the sake of one record")
        self.wait_taken("small", "throwing", besides={"poison"})
        late = self.engine.destination("late")
        check(late["condition"] == "parked" and late["pending"] == 6, f"what waits for an inactive workflow: {late}")

    def _activated_late(self):
        say("the inactive workflow is activated, and what waited for it comes by itself")
        check(not self.taken()["late"], "the workflow that is not active was handed something")
        self.n8n.activate(self.receivers["late"].workflow, self.late_version)
        self.wait_taken("late")

    def _restarted(self):
        say("SIGTERM to n8n in the middle of deliveries of all three kinds, and a new start")
        # Nine of each kind pass, of which one answer is held back; what comes after waits until n8n is gone.
        passing = {f"/webhook/{name}": Countdown(9) for name in MODES}
        gate = self.proxy.hold_requests(lambda exchange: exchange.path in passing and not passing[exchange.path].take())
        lost = self.proxy.hold_answers(Once(lambda exchange: exchange.path == "/webhook/response"))
        for name in MODES:
            self.add(name, 40)

        def under_way():
            taken = self.taken()
            return lost.caught and all(len(taken[name]) > 6 for name in MODES)

        wait_for("each of the three to take some of its rows", under_way, 60, self.engine.program, self.n8n.program)
        self.n8n.stop()
        left = self.missing(*MODES)
        check(len({row[0] for row in left}) == len(MODES), f"n8n had taken too many rows before it was stopped: {left}")
        self.proxy.shut = True
        for trap in (lost, gate):
            trap.drop()

        def failing():
            return all(self.engine.destination(name)["condition"] == "failing" for name in MODES)

        wait_for("all three to be given up for now", failing, 30, self.engine.program, every=0.5)
        self._asked_while_starting()
        self.n8n.wait_until_up(120)
        self.proxy.shut = False
        self.wait_taken(*MODES, seconds=120)
        say(f"{len(left)} rows were left when n8n stopped, one of which had been taken and its answer lost")
        self.lost_event = lost.caught[0].headers["idempotency-key"]
        attempts = self.engine.event(self.lost_event)["attempts"]
        ambiguous = any(attempt["ambiguous"] for attempt in attempts)
        check(ambiguous, f"the answer to {self.lost_event} was lost, and no attempt says so: {attempts}")

    def _asked_while_starting(self):
        say("while n8n waits for its tables, it answers 200 to everything and runs nothing")
        migrations = self.n8n.hold_migrations()
        try:
            self.n8n.start()
            self.n8n.wait_until_listening(120)
            self.proxy.shut = False

            def all_misled():
                misled = self.proxy.exchanges(lambda exchange: exchange.answer == STARTING)
                return {exchange.path for exchange in misled} == {f"/webhook/{name}" for name in MODES}

            wait_for("n8n to say to all three that it is starting", all_misled, 30, self.engine.program)
        finally:
            migrations.clean_up()

    def _forged(self):
        say("deliveries whose signature is wrong, or too old, are refused by the workflow")
        body = json.dumps({"id": "evt_forged", "type": "record.created", "job": "signed", "key": "forged"}).encode()
        now = int(time.time())
        forged = {
            "signed with another secret": (now, self._signature("another secret", now, body)),
            "not signed": (now, ""),
            "signed an hour ago": (now - 3600, self._signature(self.secret, now - 3600, body)),
        }
        for name, (timestamp, signature) in forged.items():
            status, text = self._deliver_forged(timestamp, signature, body)
            check(status == 401, f"n8n answered {status} to what is {name}, not 401: {text}")
            check("signature" in text, f"n8n answered 401 to what is {name}, but not by the workflow: {text}")
        runs = self.n8n.settled_executions(self.receivers["signed"].workflow, 60)
        refused = [run for run in runs if run.nodes.get("Refused")]
        check(len(refused) == len(forged), f"the workflow refused {len(refused)} deliveries, not {len(forged)}")
        check(not any(run.nodes.get("Taken") for run in refused), "the workflow took what it refused")

    def _signature(self, secret, timestamp, body):
        signed = f"evt_forged.{timestamp}.".encode() + body
        return "v1," + base64.b64encode(hmac.digest(secret.encode(), signed, hashlib.sha256)).decode()

    def _deliver_forged(self, timestamp, signature, body):
        """A delivery past onlynew and its proxy."""
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": "evt_forged",
            "webhook-id": "evt_forged",
            "webhook-timestamp": str(timestamp),
            "webhook-signature": signature,
        }
        url = f"http://127.0.0.1:{self.n8n.port}/webhook/onlynew-signed"
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(urllib.request.Request(url, body, headers), timeout=30) as response:
                return response.status, response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(errors="replace")

    def _alerted(self):
        say("the error workflow has told of each time the record was thrown out")
        (dead,) = self.engine.events(destination="throwing", state="dead")
        workflow = self.receivers["throwing"].workflow
        failed = {run.id for run in self.n8n.settled_executions(workflow, 60) if run.status == "error"}
        tries = len(self.engine.event(dead["event"])["attempts"])
        check(len(failed) == tries, f"the record was tried {tries} times, and n8n has {len(failed)} failed runs")

        def alerts():
            runs = self.n8n.settled_executions(self.alerts, 60)
            return runs if len(runs) >= len(failed) else None

        runs = wait_for(f"{len(failed)} alerts", alerts, 60, self.n8n.program, every=0.5)
        for run in runs:
            check(run.status == "success", f"the error workflow's execution {run.id} is {run.status}")
            alert = run.item("Alert")
            wanted = {"workflow": "throwing", "node": "Booking", "event": dead["event"]}
            wrong = {name: alert[name] for name, value in wanted.items() if alert[name] != value}
            check(not wrong, f"an alert says {wrong}, not {wanted}")
            check(all(value in alert["text"] for value in wanted.values()), f"an alert's text: {alert['text']}")
        told = {int(run.item("Alert")["execution"]) for run in runs}
        check(told == failed and len(runs) == len(failed), f"the alerts are about {told}, and {failed} failed")
        say(f"such as: {runs[0].item('Alert')['text']!r}")
