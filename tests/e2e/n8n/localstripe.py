"""The source: localstripe 1.15.10, a stateful stand-in for Stripe's API written by others.

Facts about it, found by trying and by reading its source:

- Lists are **oldest first** (Stripe itself is newest first): what is created appears on the last page, and a
  changed object keeps its place.
- `limit` defaults to 10 and has no upper bound (Stripe's is 100). `has_more` is always right; `total_count` is
  always there. Filters count before paging.
- `starting_after` with an id that is not in the list (deleted, or filtered away) silently starts over at the
  first row, with 200. So a walk whose last row is deleted under it repeats itself.
- `GET /v1/customers` takes `email`, `limit`, `starting_after`; `GET /v1/events` takes `type`, `created[gt|gte|lt|lte]`
  (seconds), `limit`, `starting_after`. Anything else answers 400, `ending_before` among it; `expand[]` is taken everywhere.
- A customer has `created` (seconds) but nothing that says when it was changed. Its JSON is the same in a list,
  on its own and as the answer to the POST that changed it.
- Every create, update and delete of a customer writes one event, `customer.created|updated|deleted`, whose
  `created` is the second it happened in and whose `data.object` is the customer as it was then. Events never change.
- No key, or one that does not begin with `sk_`, answers 401; only the basic user name counts.
- On its own it keeps all data in one fixed file under /tmp, rewritten at each change, and listens on every
  address of the machine. Here its application is served as it is, but on loopback and without that file, so that
  two stories can run beside one another; a restart begins empty.
"""

import base64
import json
import urllib.error
import urllib.parse
import urllib.request

from processes import Program, StoryError, free_port, wait_for

KEY = "sk_test_12345"

# Both jobs read all they may again at each poll: the customers by walking them whole, since Stripe does not say
# when one was changed, and the events by a window that reaches back over what was read before.
JOBS = """\
version: 1
{store}
accounts:
  local:
    connector: stripe
    auth: {{type: basic, username: "{key}", password: ""}}
    with: {{base_url: "http://127.0.0.1:{source_port}/v1"}}
destinations:
  n8n:
    url: http://127.0.0.1:{destination_port}/webhook/onlynew-changes
    timeout: {timeout}
jobs:
  customers:
    account: local
    stream: customers
    every: 2s
    first_run: emit
    destination: n8n
  events:
    account: local
    stream: events
    every: 3s
    window: {{lookback: 30s}}
    first_run: baseline
    destination: n8n
"""

SERVE = """
import logging, sys
from aiohttp import web
from localstripe import resources, server
resources.Store.dump_to_disk = lambda self: None
logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(asctime)s %(message)s")
web.run_app(server.app, host="127.0.0.1", port=int(sys.argv[1]), print=None)
"""


class Localstripe:
    def __init__(self, cache, logs):
        self.port = free_port()
        python = cache / "localstripe-1.15.10" / "bin" / "python"
        self.program = Program(
            "localstripe", [python, "-I", "-c", SERVE, self.port], logs / "localstripe.log"
        )
        wait_for("localstripe to answer", self._answers, 60, self.program)

    def _answers(self):
        try:
            return self.get("/v1/customers", limit=1) is not None
        except (OSError, StoryError):
            return False

    def create_customer(self, **fields):
        return self._request("POST", "/v1/customers", fields)

    def update_customer(self, customer_id, **fields):
        return self._request("POST", f"/v1/customers/{customer_id}", fields)

    def customers(self):
        return self._list("/v1/customers")

    def events(self):
        return self._list("/v1/events")

    def get(self, path, **query):
        return self._request("GET", f"{path}?{urllib.parse.urlencode(query)}")

    def _list(self, path):
        # One request, so that what is seen is of one moment.
        listing = self.get(path, limit=100_000)
        if listing["has_more"]:
            raise StoryError(f"localstripe did not give the whole of {path}")
        return listing["data"]

    def _request(self, method, path, body=None):
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={
                "Authorization": "Basic " + base64.b64encode(f"{KEY}:".encode()).decode(),
                "Content-Type": "application/json",
            },
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            answer = error.read().decode(errors="replace")
            raise StoryError(f"localstripe answered {error.code} to {method} {path}: {answer}") from None
