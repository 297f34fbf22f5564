"""An HTTP pass-through that can stop the world at one chosen request.

The story puts one between onlynew and the source and one between onlynew and n8n. A trap holds the requests it
matches, either before they are passed on or after they were answered, so that onlynew can be killed at a
moment that is known instead of a moment that is hoped for. Every exchange is recorded as it crossed the wire.
"""

import http.client
import http.server
import json
import socket
import struct
import threading
import time
import urllib.parse

# Headers that speak of one connection only (RFC 9110, section 7.6.1) and are made anew on the other side.
HOP_BY_HOP = {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}

# The longest a trap holds anything, so that a story that went wrong does not leave threads behind.
HOLD_SECONDS = 300


class Exchange:
    """One request and what became of it."""

    def __init__(self, method, target, headers, body):
        parts = urllib.parse.urlsplit(target)
        self.started = time.monotonic()
        self.method = method
        self.target = target
        self.path = parts.path
        self.query = dict(urllib.parse.parse_qsl(parts.query))
        self.headers = headers
        self.body = body
        # What the other side answered; None while it has not, or where the request was never passed on.
        self.status = None
        self.answer = None
        # When the answer was handed to onlynew; None where it was not.
        self.answered = None


class Trap:
    """Holds the exchanges it matches until it is released or dropped."""

    def __init__(self, matches, before_passing):
        self.matches = matches
        self.before_passing = before_passing
        self.caught = []
        self.dropped = False
        self.holding = 0
        self._lock = threading.Lock()
        self._opened = threading.Event()

    def hold(self, exchange):
        with self._lock:
            self.caught.append(exchange)
            self.holding += 1
        self._opened.wait(HOLD_SECONDS)
        with self._lock:
            self.holding -= 1

    def release(self):
        """Lets what is held go on, and catches nothing more."""
        self._opened.set()

    def drop(self):
        """Cuts the connections of what is held: a request is never passed on, an answer is never handed over."""
        self.dropped = True
        self._opened.set()

    def active(self):
        return not self._opened.is_set()


class Countdown:
    """take() is true this many times."""

    def __init__(self, count):
        self._left = iter(range(count))

    def take(self):
        return next(self._left, None) is not None


class Once:
    """True for the first exchange that matches, and never again."""

    def __init__(self, matches):
        self._matches = matches
        self._left = Countdown(1)

    def __call__(self, exchange):
        return self._matches(exchange) and self._left.take()


class Cut(Exception):
    """The connection to onlynew is to be cut."""


class Proxy:
    def __init__(self, name, upstream_port):
        self.name = name
        self.upstream_port = upstream_port
        self._lock = threading.Lock()
        self._exchanges = []
        self._traps = []
        self._handling = 0
        # While it is shut, no request is passed on: each connection is cut at once.
        self.shut = False
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            # Without it a status line and its body can wait for one another's acknowledgement for 40 ms.
            disable_nagle_algorithm = True
            wbufsize = -1

            def handle_any(self):
                with proxy._lock:
                    proxy._handling += 1
                try:
                    proxy._handle(self)
                except Cut:
                    # RST instead of FIN: it cannot be mistaken for an empty answer.
                    linger = struct.pack("ii", 1, 0)
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                    self.close_connection = True
                except OSError:
                    # onlynew, or the other side, went away; the exchange stays recorded without an answer.
                    self.close_connection = True
                finally:
                    with proxy._lock:
                        proxy._handling -= 1

            do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = handle_any

            def log_message(self, format, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, request, client_address):
                pass

            def shutdown_request(self, request):
                # Plain close(): shutdown() would send FIN and defeat the RST above.
                self.close_request(request)

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name=f"proxy {name}", daemon=True).start()

    def close(self):
        for trap in self._traps:
            trap.drop()
        self._server.shutdown()
        self._server.server_close()

    # Traps.

    def hold_requests(self, matches):
        """From now on, requests for which `matches(exchange)` is true stop before they are passed on."""
        return self._add(Trap(matches, before_passing=True))

    def hold_answers(self, matches):
        """From now on, matching requests are passed on, and their answers stop here."""
        return self._add(Trap(matches, before_passing=False))

    def _add(self, trap):
        with self._lock:
            self._traps.append(trap)
        return trap

    # What has crossed so far.

    def exchanges(self, matches=lambda exchange: True):
        with self._lock:
            return [exchange for exchange in self._exchanges if matches(exchange)]

    def quiet(self):
        """Whether nothing is under way but what a trap holds."""
        with self._lock:
            return self._handling == sum(trap.holding for trap in self._traps)

    def idle(self):
        """Whether nothing is under way at all."""
        with self._lock:
            return self._handling == 0

    # One exchange.

    def _handle(self, handler):
        body = self._read_body(handler)
        # Names in lower case, as n8n shows them too; onlynew sends no header twice.
        headers = {name.lower(): value for name, value in handler.headers.items()}
        exchange = Exchange(handler.command, handler.path, headers, body)
        with self._lock:
            self._exchanges.append(exchange)
        if self.shut:
            raise Cut
        self._spring(exchange, before_passing=True)
        response_headers = self._pass_on(exchange)
        self._spring(exchange, before_passing=False)
        handler.send_response_only(exchange.status)
        for name, value in response_headers:
            if name.lower() not in HOP_BY_HOP | {"content-length"}:
                handler.send_header(name, value)
        handler.send_header("Content-Length", str(len(exchange.answer)))
        handler.end_headers()
        if exchange.method != "HEAD":
            handler.wfile.write(exchange.answer)
        handler.wfile.flush()
        exchange.answered = time.monotonic()

    def _read_body(self, handler):
        if "chunked" in handler.headers.get("Transfer-Encoding", "").lower():
            chunks = []
            while size := int(handler.rfile.readline().split(b";")[0], 16):
                chunks.append(handler.rfile.read(size))
                handler.rfile.readline()
            while handler.rfile.readline().strip():
                pass
            return b"".join(chunks)
        return handler.rfile.read(int(handler.headers.get("Content-Length", 0)))

    def _spring(self, exchange, before_passing):
        with self._lock:
            traps = [t for t in self._traps if t.before_passing == before_passing and t.active()]
        for trap in traps:
            if trap.matches(exchange):
                trap.hold(exchange)
                if trap.dropped:
                    raise Cut

    def _pass_on(self, exchange):
        headers = {name: value for name, value in exchange.headers.items() if name not in HOP_BY_HOP}
        connection = http.client.HTTPConnection("127.0.0.1", self.upstream_port, timeout=60)
        try:
            connection.request(exchange.method, exchange.target, exchange.body or None, headers)
            response = connection.getresponse()
            exchange.answer = response.read()
            exchange.status = response.status
            return response.getheaders()
        except (http.client.HTTPException, OSError) as error:
            raise Cut from error
        finally:
            connection.close()


def identity(exchange):
    """(job, key, sequence) of a delivery."""
    body = json.loads(exchange.body)
    return body["job"], body["key"], body["sequence"]


def delivered(exchange):
    return exchange.answered is not None and 200 <= exchange.status < 300
