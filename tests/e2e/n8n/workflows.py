"""The workflows that onlynew delivers to: the examples that people import, and small ones for single questions."""

import copy
import json
import pathlib
import uuid

EXAMPLES = pathlib.Path(__file__).resolve().parents[3] / "examples" / "n8n"

# Name, type, version and parameters of nodes.
PAUSE = ("Pause", "wait", 1.1, {"amount": 0.5, "unit": "seconds"})
TAKEN = ("Taken", "noOp", 1, {})
ANSWER = ("Taken", "respondToWebhook", 1.5, {"respondWith": "noData", "options": {"responseCode": 200}})
REFUSAL = ("Refused", "respondToWebhook", 1.5, {"respondWith": "noData", "options": {"responseCode": 400}})


def example(name):
    return json.loads((EXAMPLES / f"{name}.json").read_text())


def moved(workflow, path):
    """The same workflow under another path, since n8n takes a path only once."""
    workflow = copy.deepcopy(workflow)
    hook = node(workflow, "webhook")
    hook["parameters"]["path"] = path
    hook["webhookId"] = str(uuid.uuid4())
    return workflow


def with_credential(workflow, kind, credential_id, name):
    """The same workflow, whose node of this type uses the credential."""
    workflow = copy.deepcopy(workflow)
    node(workflow, kind)["credentials"] = {kind: {"id": credential_id, "name": name}}
    return workflow


def answering(path, mode, *steps, **settings):
    """A webhook that answers in this mode, and nodes behind it, one after another."""
    return _workflow(path, mode, steps, _line(["Event", *(step[0] for step in steps)]), settings)


def throwing(path, key, error_workflow):
    """Throws where it is handed this key, and says which event that was."""
    script = f"""
for (const {{ json: {{ body }} }} of $input.all()) {{
  if (body.key === '{key}') throw new Error(`cannot book ${{body.id}}`);
}}
return $input.all();
"""
    booking = ("Booking", "code", 2, {"mode": "runOnceForAllItems", "language": "javaScript", "jsCode": script})
    return answering(path, "lastNode", booking, TAKEN, errorWorkflow=error_workflow)


def refusing_batches(path, key):
    """Answers 400 to each batch that holds this key."""
    condition = {
        "id": "c01",
        "leftValue": f"={{{{ $json.body.events.some((event) => event.key === '{key}') }}}}",
        "rightValue": "",
        "operator": {"type": "boolean", "operation": "true", "singleValue": True},
    }
    options = {"caseSensitive": True, "leftValue": "", "typeValidation": "strict", "version": 2}
    holds = {"conditions": {"options": options, "conditions": [condition], "combinator": "and"}, "options": {}}
    steps = [("Holds it?", "if", 2.2, holds), REFUSAL, ANSWER]
    connections = _line(["Event", "Holds it?"])
    connections["Holds it?"] = {"main": [[_to("Refused")], [_to("Taken")]]}
    return _workflow(path, "responseNode", steps, connections, {})


def node(workflow, kind):
    """The one node of this type."""
    (found,) = (node for node in workflow["nodes"] if node["type"] == f"n8n-nodes-base.{kind}")
    return found


def _workflow(path, mode, steps, connections, settings):
    hook = ("Event", "webhook", 2.1, {"httpMethod": "POST", "path": path, "responseMode": mode, "options": {}})
    nodes = [
        {
            "id": str(uuid.uuid4()),
            "name": name,
            "type": f"n8n-nodes-base.{kind}",
            "typeVersion": version,
            "position": [index * 220, 0],
            "parameters": parameters,
            # Only webhooks and waits have one; n8n passes over the others.
            "webhookId": str(uuid.uuid4()),
        }
        for index, (name, kind, version, parameters) in enumerate([hook, *steps])
    ]
    return {
        "name": path,
        "nodes": nodes,
        "connections": connections,
        "settings": {"executionOrder": "v1", **settings},
        "pinData": {},
    }


def _line(names):
    return {name: {"main": [[_to(following)]]} for name, following in zip(names, names[1:])}


def _to(name):
    return {"node": name, "type": "main", "index": 0}
