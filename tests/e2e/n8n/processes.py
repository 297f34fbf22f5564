"""Programs the story starts, and waiting for things to become true.

Every program writes into a log file of its own, and only programs started here are ever signalled, by the
handle they were started with. Every wait has a deadline; when it passes, the error says what was waited for and
shows the end of the log that matters.
"""

import os
import pathlib
import signal
import socket
import subprocess
import time


class StoryError(Exception):
    """Something did not happen as it must; the message is for a person."""


def say(text):
    print(f"[{time.strftime('%H:%M:%S', time.gmtime())}] {text}", flush=True)


def check(condition, message):
    """Like assert, but never optimised away and always with a message."""
    if not condition:
        raise StoryError(message)


def free_port():
    """A port nobody listens on now, below the range that outgoing connections take theirs from."""
    for _ in range(200):
        port = 30000 + int.from_bytes(os.urandom(2), "big") % 2500
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise StoryError("found no free port on 127.0.0.1 between 30000 and 32500")


def tail(path, lines=30):
    try:
        text = pathlib.Path(path).read_text(errors="replace")
    except FileNotFoundError:
        return f"({path} was not written)"
    return "\n".join(text.splitlines()[-lines:]) or f"({path} is empty)"


def wait_for(what, condition, seconds, *programs, every=0.1):
    """Calls `condition` until it returns something true, and returns that.

    Gives up after `seconds`, or at once when one of `programs` has ended, since then it will not come true.
    """
    deadline = time.monotonic() + seconds
    while True:
        result = condition()
        if result:
            return result
        for program in programs:
            if not program.alive():
                raise StoryError(f"waiting for {what}: {program.describe()}")
        if time.monotonic() >= deadline:
            reports = "".join(f"\n{program.describe()}" for program in programs)
            raise StoryError(f"waited {seconds} s in vain for {what}{reports}")
        time.sleep(every)


class Program:
    """One running program and its log."""

    def __init__(self, name, command, log, env=None, cwd=None):
        self.name = name
        self.log = pathlib.Path(log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as out:
            # A session of its own: a ^C at the terminal reaches the story, which then ends its programs in order.
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=env,
                cwd=cwd,
                start_new_session=True,
            )

    @property
    def pid(self):
        return self._process.pid

    def alive(self):
        return self._process.poll() is None

    def exit_code(self):
        return self._process.poll()

    def describe(self):
        state = f"runs (pid {self.pid})" if self.alive() else f"ended with {self.exit_code()}"
        return f"{self.name} {state}; the end of {self.log}:\n{tail(self.log)}"

    def kill(self):
        """SIGKILL: no handler runs, nothing is flushed. Returns when the process is gone."""
        self._process.kill()
        code = self._process.wait(timeout=30)
        check(code == -signal.SIGKILL, f"{self.name} had ended with {code} before it could be killed")

    def terminate(self, seconds):
        """SIGTERM, and the exit code it leads to."""
        self._process.terminate()
        try:
            return self._process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise StoryError(f"{self.name} did not end within {seconds} s of SIGTERM\n{self.describe()}") from None

    def clean_up(self):
        """Ends it one way or the other, whatever state it is in."""
        if not self.alive():
            return
        self._process.terminate()
        try:
            self._process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(timeout=15)
