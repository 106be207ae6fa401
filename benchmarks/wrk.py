"""Put a server under load with `wrk`, a native load generator that fills a server where one of Python cannot."""

import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HINT = "Not measured: `wrk` is missing. Install it, on Debian with `apt install wrk`, and run this again."

SCRIPT = """
wrk.method = "POST"
wrk.body = %s
%s
done = function(summary, latency, requests)
  local errors = summary.errors
  local failed = errors.connect + errors.read + errors.write + errors.status + errors.timeout
  local format = '\\n{"count": %%d, "micros": %%d, "failed": %%d, "p50": %%f, "p99": %%f}\\n'
  local p50, p99 = latency:percentile(50), latency:percentile(99)
  io.write(string.format(format, summary.requests, summary.duration, failed, p50, p99))
end
"""


@dataclass(frozen=True, slots=True)
class Load:
    """Outcome of one round: answered requests, their rate, and percentiles in milliseconds."""

    count: int
    rate: float
    p50: float
    p99: float


def is_installed() -> bool:
    """Return True if the program is in the path."""
    return shutil.which("wrk") is not None


def load(port: int, request: bytes, connections: int, seconds: float) -> Load:
    """Send one request repeatedly over many connections."""
    head, _, body = request.partition(b"\r\n\r\n")
    pairs = [line.decode().split(": ", 1) for line in head.split(b"\r\n")[1:]]
    # `wrk` writes the host and the length itself.
    headers = [f"wrk.headers[{json.dumps(key)}] = {json.dumps(value)}" for key, value in pairs if key not in _OWN]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "request.lua"
        script.write_text(SCRIPT % (json.dumps(body.decode()), "\n".join(headers)), "utf-8")
        command = ["wrk", "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "--timeout", "10s"]
        command += ["-s", str(script), f"http://127.0.0.1:{port}/mcp"]
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=seconds + 60)
    found = json.loads(done.stdout.strip().splitlines()[-1])
    if found["failed"] or not found["count"]:
        raise SystemExit(f"{found['failed']} of {found['count']} requests failed:\n{done.stdout}")
    rate = found["count"] / found["micros"] * 1e6
    return Load(found["count"], rate, found["p50"] / 1e3, found["p99"] / 1e3)


_OWN = ("host", "content-length")
