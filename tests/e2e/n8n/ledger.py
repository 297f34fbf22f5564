"""What n8n says it ran, held against what onlynew says it delivered, event by event."""

import collections
import dataclasses

from processes import StoryError


@dataclasses.dataclass(frozen=True)
class Receiver:
    """A destination and the workflow behind it."""

    name: str
    workflow: str
    # The Webhook node.
    entry: str
    # A node that only runs where the workflow takes what it was handed.
    taken: str


def events_of(body):
    """The events of a delivery, alone or in a batch."""
    return body["events"] if "batch_id" in body else [body]


def compare(receiver, n8n, engine, proxy):
    """Both lists name the same events, and each ran once, or more often where an answer was lost.

    Returns what ran, by the event's id: the event once for each run.
    """
    problems = []
    runs = collections.defaultdict(list)
    for run in n8n.settled_executions(receiver.workflow, 120):
        if run.status != "success" or not run.nodes.get(receiver.taken):
            continue
        taken = run.item(receiver.entry)
        body, headers = taken["body"], taken["headers"]
        delivery = body.get("batch_id") or body["id"]
        names = {headers.get("idempotency-key"), headers.get("webhook-id")}
        if names != {delivery}:
            problems.append(f"execution {run.id} was handed {delivery} under the names {names}")
        if run.mode != "webhook":
            problems.append(f"execution {run.id} ran in the mode {run.mode}, not by its webhook")
        keys = [(event["job"], event["key"]) for event in events_of(body)]
        if len(set(keys)) < len(keys):
            problems.append(f"execution {run.id} was handed two events of one key: {sorted(keys)}")
        for event in events_of(body):
            runs[event["id"]].append((delivery, event))

    on_record = {event["event"]: event for event in engine.events(destination=receiver.name, state="delivered")}
    problems += [f"{event} is on record as delivered, and n8n never ran it" for event in on_record.keys() - runs.keys()]
    problems += [f"n8n ran {event}, which is not on record as delivered" for event in runs.keys() - on_record.keys()]

    sent = collections.defaultdict(list)
    for exchange in proxy.exchanges(lambda exchange: exchange.method == "POST"):
        sent[exchange.headers["idempotency-key"]].append(exchange)
    for key, exchanges in sent.items():
        if len({exchange.body for exchange in exchanges}) > 1:
            problems.append(f"{key} was sent with different bytes")

    for event_id in on_record.keys() & runs.keys():
        again = len(runs[event_id]) - 1
        if not again:
            continue
        deliveries = {delivery for delivery, _ in runs[event_id]}
        lost = sum(exchange.answered is None for delivery in deliveries for exchange in sent[delivery])
        if again > lost:
            problems.append(f"{event_id} ran {again + 1} times, and {lost} of its answers were lost")
        if len(deliveries) > 1:
            problems.append(f"{event_id} ran under several Idempotency-Keys: {sorted(deliveries)}")
        if any(event != runs[event_id][0][1] for _, event in runs[event_id]):
            problems.append(f"{event_id} ran with different content")
        told = engine.event(event_id)
        if not (told["ambiguous"] or any(attempt["ambiguous"] for attempt in told["attempts"])):
            problems.append(f"{event_id} ran {again + 1} times, and onlynew does not say that it may have")

    if problems:
        shown = "\n".join(f"  - {problem}" for problem in problems[:20])
        more = f"\n  … and {len(problems) - 20} more" if len(problems) > 20 else ""
        raise StoryError(f"n8n and onlynew do not tell the same of the destination {receiver.name}:\n{shown}{more}")
    return {event_id: [event for _, event in handed] for event_id, handed in runs.items()}
