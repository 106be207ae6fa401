"""A server that speaks raw HTTP and misbehaves on purpose, in a thread of the test. Standard library only."""

import contextlib
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL = {
    "name": "echo",
    "description": "Echo.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}},
}
READING = {**TOOL, "name": "look", "annotations": {"readOnlyHint": True}}
MODERN = "2026-07-28"


SILENT = {("silent on initialize", "initialize"), ("silent on probe", "server/discover")}
"""Cases, and the requests that are never answered in them."""


class Raw(ThreadingHTTPServer):
    """What the server was told to do, and what it saw."""

    daemon_threads = True

    def __init__(self, case, port=0):
        self.allow_reuse_address = True
        super().__init__(("127.0.0.1", port), Handler)
        self.case, self.seen, self.bodies, self.tokens = case, [], [], []
        self.once = set()
        self.sessions = 0
        self.tools = [TOOL, READING]
        self.lists = {}
        """What it offers beside tools, by method; it announces what is here."""
        self.states = []
        """What a task is said to be like, poll by poll; the last one stays, and `None` hangs up."""
        self.sockets = []

    def get_request(self):
        found = super().get_request()
        self.sockets.append(found[0])
        return found

    def forget(self):
        """Keep nothing of what was seen: the soak counts what is left."""
        for seen in (self.seen, self.bodies, self.tokens, self.sockets):
            seen.clear()

    def hang_up(self):
        """Close every connection, as a process that ends would."""
        for socket in self.sockets:
            with contextlib.suppress(OSError):
                socket.shutdown(2)

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}/mcp"

    def first(self, what):
        """Tell whether something happens for the first time."""
        if what in self.once:
            return False
        self.once.add(what)
        return True


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *words):
        pass

    def do_GET(self):
        self.server.seen.append(f"GET {self.path}")
        self.plain(405)

    def do_DELETE(self):
        self.plain(200)

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        case, server = self.server.case, self.server
        method = request.get("method")
        server.seen.append(method)
        server.bodies.append(request)
        server.tokens.append(self.headers.get("authorization"))
        if "id" not in request:
            self.plain(202)
            return
        if case == "401":
            self.plain(401, {"WWW-Authenticate": "Bearer"})
            return
        if case == "gone":
            self.plain(404)
            return
        if case == "metadata elsewhere":
            self.plain(401, {"WWW-Authenticate": f'Bearer resource_metadata="{server.elsewhere}"'})
            return
        if case == "redirect":
            self.plain(307, {"Location": server.elsewhere})
            return
        if (case, method) in SILENT:
            threading.Event().wait(20)
            return
        if case == "legacy status" and method == "server/discover":
            self.plain(400)
            return
        legacy = case in ("legacy 400 empty", "legacy 400 json", "legacy 404", "session")
        if method == "server/discover":
            if case == "legacy 400 empty":
                self.plain(400)
            elif case == "legacy 400 json":
                self.reply({"jsonrpc": "2.0", "id": None, "error": {"code": -32600, "message": "no session"}}, 400)
            elif case in ("legacy 404", "session", "silent on initialize"):
                self.plain(404)
            elif case == "500 on probe":
                self.plain(500)
            else:
                known = {method.partition("/")[0]: {} for method in ("tools/list", *server.lists)}
                self.result(
                    request,
                    {"supportedVersions": [MODERN], "capabilities": known, "ttlMs": 0, "cacheScope": "public"},
                )
        elif method == "initialize":
            server.sessions += 1
            self.result(
                request,
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": {"tools": {}},
                    "serverInfo": {"name": "raw", "version": "1"},
                },
                headers={"Mcp-Session-Id": f"s{server.sessions}"} if legacy else {},
            )
        elif method == "tools/list":
            self.result(request, {"tools": server.tools, "ttlMs": 60000, "cacheScope": "public"})
        elif method == "tools/call":
            self.call(request)
        elif method == "tasks/get":
            state = server.states.pop(0) if len(server.states) > 1 else server.states[0]
            if state is None:
                self.close_connection = True
                self.connection.shutdown(2)
                return
            self.result(request, {"taskId": "t1", **state})
        elif method == "ping" and case == "session" and server.first("forgotten"):
            self.plain(404)
        else:
            self.result(request, server.lists.get(method, {}))

    def call(self, request):
        case, server = self.server.case, self.server
        name = request["params"]["name"]
        if case == "session" and server.first("expired"):
            self.plain(404)
        elif case == "503 once" and server.first("busy"):
            self.plain(503, {"Retry-After": "0"})
        elif case == "429 once" and server.first("busy"):
            self.plain(429, {"Retry-After": "0"})
        elif case == "502 once" and server.first("lost"):
            self.plain(502)
        elif case == "cut once" and server.first("cut"):
            self.close_connection = True
            self.connection.close()
        elif case == "half a body":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "1000")
            self.end_headers()
            self.wfile.write(b'{"jsonrpc":')
            self.wfile.flush()
            self.close_connection = True
            self.connection.shutdown(2)
        elif case == "task":
            self.result(request, {"resultType": "task", "taskId": "t1", "status": "working", "pollIntervalMs": 1})
        elif case == "error":
            self.reply({"jsonrpc": "2.0", "id": request["id"], "error": server.states[0]})
        elif case in ("status", "legacy status"):
            self.plain(*server.states[0])
        elif case == "content":
            self.result(request, server.states[0])
        elif case == "unknown result type":
            self.result(request, {"resultType": "surprise", "content": []})
        elif case == "no result type":
            self.reply(
                {"jsonrpc": "2.0", "id": request["id"], "result": {"content": [{"type": "text", "text": "hello"}]}}
            )
        elif case == "another id":
            self.reply({"jsonrpc": "2.0", "id": 999, "result": {"content": []}})
        elif case == "huge body":
            self.reply(
                {
                    "jsonrpc": "2.0",
                    "id": request["id"],
                    "result": {"content": [{"type": "text", "text": "y" * (20 << 20)}]},
                }
            )
        elif case == "not json":
            self.send_response(200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", "5")
            self.end_headers()
            self.wfile.write(b"hello")
        elif case == "never answers":
            threading.Event().wait(20)
        else:
            text = request["params"].get("arguments", {}).get("text", name)
            self.result(request, {"content": [{"type": "text", "text": text}]})

    def result(self, request, result, headers=None):
        self.reply(
            {"jsonrpc": "2.0", "id": request["id"], "result": {"resultType": "complete", **result}}, headers=headers
        )

    def reply(self, message, status=200, headers=None):
        body = json.dumps(message).encode()
        self.plain(status, {"content-type": "application/json", **(headers or {})}, body)

    def plain(self, status, headers=None, body=b""):
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def served(case, port=0):
    server = Raw(case, port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.hang_up()
        server.server_close()
        thread.join()
