"""onlynew itself: built from this repository, configured in a folder of its own, run, killed and asked."""

import json
import os
import subprocess

from localstripe import KEY
from processes import Program, StoryError, check, say, tail

# How long a delivery may wait for n8n's answer. A claim's lease is at least four times as long, and after a
# SIGKILL what was claimed is only sent again when that lease has run out: short, so that the story is.
DELIVERY_TIMEOUT = "10s"

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


def build(repository):
    """Builds the release binary and returns its path, wherever this machine's cargo puts it.

    ONLYNEW_BIN names a binary that was built before.
    """
    if ready := os.environ.get("ONLYNEW_BIN"):
        return os.path.abspath(ready)
    say("building onlynew (cargo build --release)")
    command = ["cargo", "build", "--release", "--bin", "onlynew", "--message-format", "json-render-diagnostics"]
    built = subprocess.run(command, cwd=repository, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    check(built.returncode == 0, f"{' '.join(command)} ended with {built.returncode}")
    for line in built.stdout.splitlines():
        message = json.loads(line)
        if message.get("reason") == "compiler-artifact" and message.get("executable"):
            if message["target"]["name"] == "onlynew":
                return message["executable"]
    raise StoryError("cargo built no binary named onlynew")


class Engine:
    def __init__(self, binary, folder, logs, source_port, destination_port, store_url=None):
        self._binary = binary
        self._folder = folder
        self._logs = logs
        self._starts = 0
        self.program = None
        folder.mkdir()
        (folder / "jobs.yaml").write_text(
            JOBS.format(
                # Without a word the store is SQLite, in the folder that onlynew is started in.
                store=f"store: {store_url}" if store_url else "",
                key=KEY,
                source_port=source_port,
                destination_port=destination_port,
                timeout=DELIVERY_TIMEOUT,
            )
        )

    def start(self):
        """`onlynew run`, with a log of its own for each start."""
        self._starts += 1
        log = self._logs / f"onlynew-run-{self._starts}.log"
        self.program = Program("onlynew run", [self._binary, "run"], log, self._env(), self._folder)

    def call(self, *arguments, seconds=120):
        """Runs a command that ends by itself and must end well; returns its standard output."""
        name = "onlynew " + " ".join(arguments)
        log = self._logs / f"onlynew-{arguments[0]}.log"
        with log.open("ab") as errors:
            try:
                done = subprocess.run(
                    [self._binary, *arguments],
                    cwd=self._folder,
                    env=self._env(),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    timeout=seconds,
                )
            except subprocess.TimeoutExpired:
                raise StoryError(f"`{name}` did not end within {seconds} s\n{tail(log)}") from None
        output = done.stdout.decode(errors="replace")
        check(done.returncode == 0, f"`{name}` ended with {done.returncode}\n{output}\n{tail(log)}")
        return output

    def sync(self, job):
        """`onlynew sync JOB --json`: its summary is the last line it prints."""
        lines = self.call("sync", job, "--json").strip().splitlines()
        try:
            return json.loads(lines[-1])
        except (IndexError, ValueError):
            raise StoryError(f"the last line of `onlynew sync {job} --json` is not JSON: {lines[-1:]}") from None

    def _env(self):
        # A proxy that the machine speaks through is not for loopback.
        return {**os.environ, "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
