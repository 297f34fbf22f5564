"""What n8n must have run in the end, written down while the story makes it happen.

The source's own words are the measure: for each customer the answers that localstripe gave when it was created
and changed, in order; for each of its events the event. The story changes a customer again only after the change
before has reached n8n, since a poll can only see what stands at that moment.
"""

import datetime
import json

from processes import StoryError, check


class Expected:
    def __init__(self):
        # Customer id -> its states, oldest first.
        self._customers = {}
        # Event id -> the event.
        self._events = {}
        # Events from before the first poll: recorded by the baseline, never handed on.
        self._before = set()

    def customer(self, state):
        """A customer was created, or its content was changed."""
        states = self._customers.setdefault(state["id"], [])
        check(not states or states[-1] != state, "the story changed a customer without changing it")
        states.append(state)

    def baseline(self, events):
        self._before = {event["id"] for event in events}

    def events(self, events):
        """All events that the source has by now."""
        self._events = {event["id"]: event for event in events if event["id"] not in self._before}

    def changes(self):
        """(job, key, sequence) of every change that n8n must have run."""
        customers = {
            ("customers", key, sequence)
            for key, states in self._customers.items()
            for sequence in range(1, len(states) + 1)
        }
        return customers | {("events", key, 1) for key in self._events}

    def compare(self, bodies, again):
        """Judges the bodies that n8n ran, in its order, against what happened.

        `again` are the ids of the events that may, and must, have run twice.
        """
        problems = []
        first, repeats = {}, {}
        for body in bodies:
            if body["id"] in first:
                repeats.setdefault(body["id"], []).append(body)
            else:
                first[body["id"]] = body

        for event_id, more in repeats.items():
            name = describe(first[event_id])
            if event_id not in again:
                problems.append(f"{name} ran {len(more) + 1} times")
            elif len(more) > 1:
                problems.append(f"{name}, whose answer was lost once, ran {len(more) + 1} times")
            elif more[0] != first[event_id]:
                problems.append(f"{name} ran twice with different content")
        for event_id in again - repeats.keys():
            problems.append(f"{event_id}, whose answer was lost, was not sent again")

        seen = {}
        for body in first.values():
            seen.setdefault((body["job"], body["key"]), []).append(body)
        for (job, key), changes in seen.items():
            sequences = [body["sequence"] for body in changes]
            if sequences != list(range(1, len(sequences) + 1)):
                problems.append(f"{job} {key} ran in the order {sequences}")

        ran = [(body["job"], body["key"], body["sequence"]) for body in first.values()]
        wanted = self.changes()
        for change in sorted(wanted - set(ran)):
            problems.append(f"{name_of(change)} never ran")
        for change in sorted(set(ran) - wanted):
            problems.append(f"{name_of(change)} ran, and nothing of the kind happened")
        if len(set(ran)) < len(ran):
            problems.append(f"{len(ran) - len(set(ran))} changes ran under two ids")

        for body in first.values():
            if (body["job"], body["key"], body["sequence"]) in wanted:
                problems += self._differences(body)
        if problems:
            shown = "\n".join(f"  - {problem}" for problem in problems[:20])
            more = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
            raise StoryError(f"n8n did not run exactly what happened:\n{shown}{more}")

    def _differences(self, body):
        if body["job"] == "customers":
            states = self._customers[body["key"]]
            data = states[body["sequence"] - 1]
            kind = "record.created" if body["sequence"] == 1 else "record.updated"
        else:
            data = self._events[body["key"]]
            kind = "record.created"
            version = datetime.datetime.fromisoformat(body["version"] or "1970-01-01T00:00:00Z")
            if version.timestamp() != data["created"]:
                yield f"{describe(body)} has the version {body['version']}, not that of second {data['created']}"
        if body["type"] != kind:
            yield f"{describe(body)} is a {body['type']}, not a {kind}"
        if body["data"] != data:
            yield f"{describe(body)} carries other data than the source gave: {fields_apart(body['data'], data)}"
        if body["stream"] != body["job"] or body["connector"] != "stripe" or body["partition"] or body["replay"]:
            yield f"{describe(body)} says it is from elsewhere: {json.dumps({**body, 'data': None})}"


def fields_apart(ran, said):
    """The fields in which two objects differ, for a person."""
    absent = "(absent)"
    names = sorted(name for name in ran.keys() | said.keys() if ran.get(name, absent) != said.get(name, absent))
    return "; ".join(
        f"{name} is {json.dumps(ran.get(name, absent))}, not {json.dumps(said.get(name, absent))}" for name in names
    )


def describe(body):
    return name_of((body["job"], body["key"], body["sequence"])) + f" ({body['id']})"


def name_of(change):
    job, key, sequence = change
    return f"{job} {key} change {sequence}"
