"""The receiver: n8n 2.38.7 on PostgreSQL, driven through the same internal REST API that its editor uses.

Facts about it, found by trying and by reading its source:

- A workflow posted to /rest/workflows is a draft. POST /rest/workflows/ID/activate with its `versionId` publishes
  it; before that its webhook answers 404 "not registered".
- A webhook that responds "immediately" (`onReceived`) answers 200 {"message":"Workflow was started"} after the
  execution was written to the database. So execution ids rise in the order of the answers.
- The body arrives in the Webhook node's output under `body`, the headers in lower case under `headers`.
- Its answer is 500 {"message":"Error in workflow"} where a node throws and the webhook answers at the end
  (`lastNode`, `responseNode`); where it answers at once, the answer was 200 before.
- SIGTERM lets what runs end, for 30 s at most, and meanwhile webhooks are taken as ever. A session outlives a restart.
- While it starts, every path but /healthz answers **200** "n8n is starting up. Please wait" until its tables are
  migrated, and then 404 "Cannot POST /webhook/…" (HTML) until its routes are there. Nothing has run then.
- A body beyond N8N_PAYLOAD_SIZE_MAX (16 MB) is answered 500 "There was a problem executing the workflow", not 413.
- An error workflow runs only while it is active, like one with a webhook. It is told the failed execution's id and
  error, and nothing of what started it.
- GET /rest/executions gives at most 100 runs a page, newest first, and pages by `lastId`; a single one carries
  its data as text in the "flatted" form: an array in which each string inside a container is an index.
"""

import hashlib
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
        # Node name -> the items it put out.
        self.nodes = nodes

    def item(self, node):
        """The one item that a node put out."""
        items = self.nodes.get(node, [])
        check(len(items) == 1, f"in execution {self.id} the node {node} put out {len(items)} items, not 1")
        return items[0]


class N8n:
    def __init__(self, cache, scratch, logs, postgres_url):
        self.port = free_port()
        cluster = urllib.parse.urlsplit(postgres_url)
        user_folder = scratch / "n8n"
        user_folder.mkdir()
        node = cache / NODE / "bin" / "node"
        self._env = {
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
        self._command = [node, entry, "start"]
        self._log = logs / "n8n.log"
        self._postgres_url = postgres_url
        self.program = None
        self._opener = urllib.request.build_opener(
            # No proxy of the machine stands between us and loopback.
            urllib.request.ProxyHandler({}),
            urllib.request.HTTPCookieProcessor(http.cookiejar.CookieJar()),
        )
        self._details = {}

    def start(self):
        self.program = Program("n8n", self._command, self._log, self._env, self._env["HOME"])

    def hold_migrations(self):
        """Has n8n's next start wait before it migrates its tables, until the returned program is ended.

        Another n8n on the same database holds the same lock while it migrates.
        """
        lock = int.from_bytes(hashlib.sha256(b"public:").digest()[:4], signed=True)
        statements = [
            # Without it the server would sleep on after psql has ended.
            "SET client_connection_check_interval = '200ms'",
            f"SELECT 'held', pg_advisory_lock(1005, {lock})",
            "SELECT pg_sleep(300)",
        ]
        options = [part for statement in statements for part in ("-c", statement)]
        log = self._log.with_name("migrations.log")
        holder = Program("psql", ["psql", "--no-psqlrc", self._postgres_url, *options], log)
        wait_for("the lock on n8n's migrations", lambda: "held" in log.read_text(), 30, holder)
        return holder

    def stop(self):
        """SIGTERM: it lets what it runs end."""
        code = self.program.terminate(60)
        check(code == 0, f"n8n ended with {code} after SIGTERM\n{self.program.describe()}")

    def wait_until_up(self, seconds):
        """Its first start creates its tables, which takes a while."""

        self.wait_until_listening(seconds)
        wait_for(
            "n8n to be ready", lambda: self._health("/healthz/readiness") == 200, seconds, self.program, every=0.5
        )

        def answers():
            # /healthz is up a moment before the REST API is.
            try:
                return self._rest("GET", "/rest/settings")
            except (OSError, NotReady):
                return None

        wait_for("n8n's REST API to answer", answers, 120, self.program, every=0.5)

    def wait_until_listening(self, seconds):
        """It answers, long before it is ready."""
        wait_for("n8n to answer on /healthz", lambda: self._health("/healthz"), seconds, self.program)

    def _health(self, path):
        try:
            with self._opener.open(f"http://127.0.0.1:{self.port}{path}", timeout=5) as response:
                return response.status
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return None

    def set_up_owner(self):
        self._rest(
            "POST",
            "/rest/owner/setup",
            {
                "email": "owner@example.com",
                "firstName": "End",
                "lastName": "Story",
                "password": f"Aa1{secrets.token_hex(12)}",
            },
        )

    def add(self, workflow):
        """Creates a workflow, which is a draft until it is activated; returns its id and version."""
        made = self._rest("POST", "/rest/workflows", workflow)
        return made["id"], made["versionId"]

    def activate(self, workflow_id, version):
        active = self._rest("POST", f"/rest/workflows/{workflow_id}/activate", {"versionId": version})
        check(active["active"], f"n8n did not activate the workflow {active['name']}")

    def publish(self, workflow):
        """Creates a workflow and activates it; returns its id."""
        workflow_id, version = self.add(workflow)
        self.activate(workflow_id, version)
        return workflow_id

    def add_credential(self, name, kind, data):
        """Creates a credential and returns its id."""
        return self._rest("POST", "/rest/credentials", {"name": name, "type": kind, "data": data})["id"]

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
    """Node name -> the items it put out, from an execution's data."""
    if not data:
        return {}
    run = unflatten(data) if isinstance(data, str) else data
    outputs = {}
    for name, attempts in run.get("resultData", {}).get("runData", {}).items():
        check(len(attempts) == 1, f"n8n ran the node {name} {len(attempts)} times in one execution")
        branches = (attempts[0].get("data") or {}).get("main") or []
        outputs[name] = [item["json"] for branch in branches for item in branch or []]
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
