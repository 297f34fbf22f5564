"""The receiver: n8n 2.38.7 on PostgreSQL, driven through the same internal REST API that its editor uses.

Facts about it, found by trying and by reading its source:

- A workflow posted to /rest/workflows is a draft. POST /rest/workflows/ID/activate with its `versionId` publishes
  it; before that its webhook answers 404 "not registered".
- A webhook that responds "immediately" (`onReceived`) answers 200 {"message":"Workflow was started"} after the
  execution was written to the database. So execution ids rise in the order of the answers.
- The body arrives in the Webhook node's output under `body`, the headers in lower case under `headers`.
- GET /rest/executions gives at most 100 runs a page, newest first, and pages by `lastId`; a single one carries
  its data as text in the "flatted" form: an array in which each string inside a container is an index.
"""

import http.cookiejar
import json
import os
import secrets
import urllib.error
import urllib.parse
import urllib.request

from processes import Program, StoryError, check, free_port, wait_for

NODE, N8N = "node-24", "n8n-2.38.7"

STATUSES = ["new", "running", "waiting", "success", "error", "crashed", "canceled", "unknown"]
UNFINISHED = {"new", "running", "waiting"}


class Execution:
    """One run of the workflow, as n8n itself recorded it."""

    def __init__(self, summary, nodes):
        self.id = int(summary["id"])
        self.status = summary["status"]
        self.mode = summary["mode"]
        # Node name -> the single item it put out.
        self.nodes = nodes


class N8n:
    def __init__(self, cache, scratch, logs, postgres_url):
        self.port = free_port()
        cluster = urllib.parse.urlsplit(postgres_url)
        user_folder = scratch / "n8n"
        user_folder.mkdir()
        node = cache / NODE / "bin" / "node"
        env = {
            # Only what n8n needs: nobody's N8N_* and proxy variables shall change what is tested here.
            "PATH": f"{node.parent}:{os.environ['PATH']}",
            "HOME": str(user_folder),
            "TMPDIR": str(user_folder),
            "TZ": "UTC",
            "NODE_ENV": "production",
            "DB_TYPE": "postgresdb",
            "DB_POSTGRESDB_HOST": cluster.hostname,
            "DB_POSTGRESDB_PORT": str(cluster.port),
            "DB_POSTGRESDB_USER": cluster.username,
            "DB_POSTGRESDB_PASSWORD": "",
            "DB_POSTGRESDB_DATABASE": cluster.path.strip("/"),
            "N8N_USER_FOLDER": str(user_folder),
            "N8N_LISTEN_ADDRESS": "127.0.0.1",
            "N8N_HOST": "127.0.0.1",
            "N8N_PORT": str(self.port),
            "N8N_RUNNERS_BROKER_PORT": str(free_port()),
            # The session cookie must travel over plain HTTP here.
            "N8N_SECURE_COOKIE": "false",
            # Every run is kept with its data: they are what the story is judged by.
            "EXECUTIONS_DATA_SAVE_ON_SUCCESS": "all",
            "EXECUTIONS_DATA_SAVE_ON_ERROR": "all",
            "EXECUTIONS_DATA_PRUNE": "false",
            # Nothing of this calls out.
            "N8N_DIAGNOSTICS_ENABLED": "false",
            "N8N_VERSION_NOTIFICATIONS_ENABLED": "false",
            "N8N_TEMPLATES_ENABLED": "false",
            "N8N_DYNAMIC_BANNERS_ENABLED": "false",
            "N8N_LICENSE_AUTO_RENEW_ENABLED": "false",
            "N8N_COMMUNITY_PACKAGES_ENABLED": "false",
            "N8N_PERSONALIZATION_ENABLED": "false",
            "N8N_DISABLED_MODULES": "mcp-registry",
        }
        entry = cache / N8N / "node_modules" / "n8n" / "bin" / "n8n"
        self.program = Program("n8n", [node, entry, "start"], logs / "n8n.log", env, cwd=user_folder)
        self._opener = urllib.request.build_opener(
            # No proxy of the machine stands between us and loopback.
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
        )
        self._details = {}

    def wait_until_up(self, seconds):
        """Its first start creates its tables, which takes a while; then its owner is set up."""

        def healthy():
            try:
                with self._opener.open(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as response:
                    return response.status == 200
            except OSError:
                return False

        wait_for("n8n to answer on /healthz", healthy, seconds, self.program, every=0.5)

        def set_up():
            # /healthz is up a moment before the REST API is.
            try:
                return self._rest(
                    "POST",
                    "/rest/owner/setup",
                    {
                        "email": "owner@example.com",
                        "firstName": "End",
                        "lastName": "Story",
                        "password": f"Aa1{secrets.token_hex(12)}",
                    },
                )
            except (OSError, NotReady):
                return None

        wait_for("n8n to set up its owner", set_up, 120, self.program, every=0.5)

    def publish(self, workflow_file):
        """Imports a workflow file and activates it; returns its id."""
        workflow = self._rest("POST", "/rest/workflows", json.loads(workflow_file.read_text()))
        active = self._rest(
            "POST", f"/rest/workflows/{workflow['id']}/activate", {"versionId": workflow["versionId"]}
        )
        check(active["active"], f"n8n did not activate the workflow {workflow_file}")
        return workflow["id"]

    def summaries(self, workflow_id):
        """All runs of a workflow, oldest first, without their data."""
        found, last = [], None
        while True:
            query = {
                "filter": json.dumps({"workflowId": workflow_id, "status": STATUSES}),
                "limit": "100",
            }
            if last is not None:
                query["lastId"] = last
            page = self._rest("GET", f"/rest/executions?{urllib.parse.urlencode(query)}")["results"]
            if not page:
                break
            found += page
            last = page[-1]["id"]
        found.sort(key=lambda summary: int(summary["id"]))
        ids = [summary["id"] for summary in found]
        check(len(set(ids)) == len(ids), "n8n's list of executions names one twice")
        return found

    def executions(self, workflow_id):
        """All runs of a workflow with their data, oldest first. Each finished run is fetched once."""
        result = []
        for summary in self.summaries(workflow_id):
            run_id = summary["id"]
            if run_id not in self._details or self._details[run_id].status in UNFINISHED:
                whole = self._rest("GET", f"/rest/executions/{run_id}")
                self._details[run_id] = Execution(whole, node_outputs(whole.get("data")))
            result.append(self._details[run_id])
        return result

    def settled_executions(self, workflow_id, seconds):
        """Waits until no run is under way, then returns all of them."""

        def settled():
            return not any(summary["status"] in UNFINISHED for summary in self.summaries(workflow_id))

        wait_for("n8n to finish what it runs", settled, seconds, self.program, every=0.5)
        return self.executions(workflow_id)

    def _rest(self, method, path, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with self._opener.open(request, timeout=60) as response:
                answer = response.read()
        except urllib.error.HTTPError as error:
            text = error.read().decode(errors="replace")
            if error.code in (404, 503):
                raise NotReady(f"n8n answered {error.code} to {method} {path}: {text}") from None
            raise StoryError(f"n8n answered {error.code} to {method} {path}: {text}") from None
        try:
            return json.loads(answer)["data"]
        except (ValueError, KeyError):
            raise NotReady(f"n8n answered {method} {path} with {answer[:200]!r}") from None


class NotReady(StoryError):
    """The REST API is not there (yet)."""


def node_outputs(data):
    """Node name -> its one output item, from an execution's data."""
    if not data:
        return {}
    run = unflatten(data) if isinstance(data, str) else data
    outputs = {}
    for name, attempts in run.get("resultData", {}).get("runData", {}).items():
        check(len(attempts) == 1, f"n8n ran the node {name} {len(attempts)} times in one execution")
        branches = (attempts[0].get("data") or {}).get("main") or []
        items = [item for branch in branches for item in branch or []]
        check(len(items) <= 1, f"the node {name} put out {len(items)} items")
        if items:
            outputs[name] = items[0]["json"]
    return outputs


def unflatten(text):
    """Reads the "flatted" form: values in one array, strings inside containers are indices into it."""
    values = json.loads(text)
    done = {}

    def value(index):
        index = int(index)
        if index not in done:
            raw = values[index]
            # Entered before it is filled, since the form exists to carry cycles.
            if isinstance(raw, dict):
                done[index] = {}
                for key, member in raw.items():
                    done[index][key] = value(member) if isinstance(member, str) else member
            elif isinstance(raw, list):
                done[index] = []
                for member in raw:
                    done[index].append(value(member) if isinstance(member, str) else member)
            else:
                done[index] = raw
        return done[index]

    return value(0)
