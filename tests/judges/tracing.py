"""Have the SDKs of others export the spans of a chat, and check what arrives at an OTLP receiver. `make test-tracing`.

Usage: python tests/judges/tracing.py FOLDER, where FOLDER has the packages of the SDKs.
"""

import gzip
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

PROGRAM = Path(__file__).with_name("otlp_program.py")
KINDS = ("otlp", "logfire", "langfuse", "phoenix")
EXPECTED = {
    "invoke_agent desk": None,
    "chat gpt-5": "invoke_agent desk",
    "execute_tool read_meter": "invoke_agent desk",
    "tools/call read_meter": "execute_tool read_meter",
    "retry read_meter": "execute_tool read_meter",
    "execute_tool reset_meter": "invoke_agent desk",
    "approve reset_meter": "execute_tool reset_meter",
}
"""Spans that must arrive, each with the name of a parent that one of them has."""
METRICS = {
    "toolmason.tool.duration",
    "toolmason.tool.retries",
    "toolmason.approval.duration",
    "toolmason.run.duration",
    "toolmason.run.cost",
    "gen_ai.client.operation.duration",
    "gen_ai.client.token.usage",
    "mcp.client.operation.duration",
    "mcp.server.operation.duration",
}


class Receiver:
    """An OTLP collector over HTTP: parses what it gets, and keeps it."""

    def __init__(self) -> None:
        self.traces, self.metrics, self.bodies = [], [], []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                receiver.take(self.path, body)
                self.send_response(200)
                self.send_header("content-type", "application/x-protobuf")
                self.send_header("content-length", "0")
                self.end_headers()

            def do_GET(self) -> None:
                self.send_response(404)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path: str, body: bytes) -> None:
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
        from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

        self.bodies.append(body)
        if path.endswith("/v1/traces"):
            request = ExportTraceServiceRequest.FromString(body)
            self.traces += [
                (scope.scope, scope.schema_url, span)
                for resource in request.resource_spans
                for scope in resource.scope_spans
                for span in scope.spans
            ]
        elif path.endswith("/v1/metrics"):
            request = ExportMetricsServiceRequest.FromString(body)
            self.metrics += [
                metric.name
                for resource in request.resource_metrics
                for scope in resource.scope_metrics
                for metric in scope.metrics
            ]


def check(kind: str, folder: str) -> tuple[int, list[str]]:
    """Run the program with one SDK. Return the number of spans that arrived, and what is wrong with them."""
    from otlp_program import SECRET

    receiver = Receiver()
    environment = {**os.environ, "PYTHONPATH": folder, "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    command = [sys.executable, str(PROGRAM), kind, receiver.url]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    receiver.server.shutdown()
    problems = [] if done.returncode == 0 else [f"exit code {done.returncode}: {done.stderr[-1500:]}"]
    spans = {span.span_id: span for scope, _, span in receiver.traces if scope.name == "toolmason"}
    for name, parent in EXPECTED.items():
        found = [span for span in spans.values() if span.name == name]
        parents = {spans[span.parent_span_id].name if span.parent_span_id in spans else None for span in found}
        if parent not in parents:
            problems.append(f"{name}: {len(found)} spans, with the parents {sorted(map(str, parents))}")
    runs = [span for span in spans.values() if span.name == "invoke_agent desk"]
    trace_ids = {
        span.trace_id for span in spans.values() if span.name.startswith(("chat", "execute_tool", "tools/call"))
    }
    if trace_ids != {span.trace_id for span in runs}:
        problems.append(f"{len(trace_ids)} traces")
    failed = [span for span in spans.values() if span.name == "execute_tool reset_meter" and span.status.code == 2]
    if len(failed) != 1 or not any(item.key == "toolmason.error.id" for item in failed[0].attributes):
        problems.append("the failed call is not marked")
    turns = [{item.key: item.value for item in span.attributes} for span in spans.values() if span.name == "chat gpt-5"]
    if sorted(turn["gen_ai.usage.input_tokens"].int_value for turn in turns if "gen_ai.usage.input_tokens" in turn) != [
        100
    ]:
        problems.append("the tokens of the turn are missing")
    if {url for scope, url, _ in receiver.traces if scope.name == "toolmason"} != {
        "https://opentelemetry.io/schemas/1.44.0"
    }:
        problems.append("the schema URL is missing")
    if kind == "otlp" and not set(receiver.metrics) >= METRICS:
        problems.append(f"metrics are missing: {sorted(METRICS - set(receiver.metrics))}")
    if any(SECRET.encode() in body for body in receiver.bodies):
        problems.append("a secret arrived")
    return len(spans), problems


def main(folder: str) -> int:
    """Print a table; return 1 if something is wrong."""
    sys.path.insert(0, folder)
    sys.path.insert(0, str(PROGRAM.parent))
    all_problems = []
    for kind in KINDS:
        count, problems = check(kind, folder)
        print(f"{kind:<10} {count:>3} spans  {'ok' if not problems else 'FAILED'}")
        all_problems += [f"{kind}: {problem}" for problem in problems]
    for problem in all_problems:
        print(problem)
    return int(bool(all_problems))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1]))
