"""onlynew itself: built from this repository, configured in a folder of its own, run, killed and asked."""

import json
import os
import subprocess

from processes import Program, StoryError, check, say, tail

# How long a delivery may wait for n8n's answer. A claim's lease is at least four times as long, and after a
# SIGKILL what was claimed is only sent again when that lease has run out: short, so that the story is.
DELIVERY_TIMEOUT = "10s"

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
    def __init__(self, binary, folder, logs, jobs):
        """Its folder is made here; `jobs` is the text of its jobs.yaml."""
        self._binary = binary
        self._folder = folder
        self._logs = logs
        self._starts = 0
        self.program = None
        folder.mkdir()
        (folder / "jobs.yaml").write_text(jobs)

    def start(self):
        """`onlynew run`, with a log of its own for each start."""
        self._starts += 1
        log = self._logs / f"{self._folder.name}-run-{self._starts}.log"
        self.program = Program("onlynew run", [self._binary, "run"], log, self._env(), self._folder)

    def call(self, *arguments, seconds=120):
        """Runs a command that ends by itself and must end well; returns its standard output."""
        name = "onlynew " + " ".join(arguments)
        log = self._logs / f"{self._folder.name}-{arguments[0]}.log"
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

    def events(self, **filters):
        """`onlynew outbox list`: all events that fit, oldest first."""
        options = [part for name, value in filters.items() for part in (f"--{name}", value)]
        listed = json.loads(self.call("outbox", "list", *options, "--limit", "100000", "--json"))
        check(not listed["more"], f"`onlynew outbox list {' '.join(options)}` has more than 100000 events")
        return listed["events"]

    def event(self, event_id):
        """`onlynew outbox show`: one event with its body and its attempts."""
        return json.loads(self.call("outbox", "show", event_id, "--json"))

    def destination(self, name):
        """What `onlynew outbox destinations` says of one."""
        told = json.loads(self.call("outbox", "destinations", "--json"))["destinations"]
        return next(one for one in told if one["destination"] == name)

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
