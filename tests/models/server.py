"""A provider that answers as it is told: a real HTTP server on this machine, for tests of connections."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Provider:
    """What it will answer, in order (the last again and again), and what it was asked."""

    def __init__(self, answers):
        self.answers = list(answers)
        self.requests = []
        self.url = ""

    def next(self):
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def answer(body, status=200, **headers):
    """An answer in one piece."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return {"status": status, "content": content, "type": "application/json", "headers": headers}


def stream(content, *, cut=None):
    """An answer as a stream; `cut` ends the connection after so many bytes."""
    return {"status": 200, "content": content, "type": "text/event-stream", "headers": {}, "cut": cut}


HANG_UP = {"cut": 0}


@contextmanager
def provider(*answers):
    known = Provider(answers)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self):
            size = int(self.headers["content-length"])
            known.requests.append((self.path, dict(self.headers), json.loads(self.rfile.read(size))))
            told = known.next()
            if told.get("cut") == 0:
                self.close_connection = True
                self.connection.close()
                return
            self.send_response(told["status"])
            self.send_header("content-type", told["type"])
            self.send_header("content-length", str(len(told["content"])))
            for name, value in told["headers"].items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(told["content"][: told.get("cut")])
            if told.get("cut"):
                self.wfile.flush()
                self.close_connection = True

        def log_message(self, *args):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
