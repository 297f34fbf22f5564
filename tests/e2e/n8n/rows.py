"""A source of our own: lists of rows that only grow, as JSON."""

import datetime
import http.server
import json
import threading


class Rows:
    """`GET /NAME` answers {"rows": [...]}, all rows of that list, oldest first."""

    def __init__(self):
        self._lock = threading.Lock()
        self._lists = {}
        rows = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                answer = json.dumps({"rows": rows.of(self.path.strip("/"))}).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format, *args):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

        self._server = Server(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="rows", daemon=True).start()

    def close(self):
        self._server.shutdown()
        self._server.server_close()

    def add(self, name, key, **fields):
        now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
        with self._lock:
            self._lists.setdefault(name, []).append({"id": key, "updated_at": now, **fields})

    def of(self, name):
        with self._lock:
            return list(self._lists.get(name, []))
