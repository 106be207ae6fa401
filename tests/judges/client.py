"""Judge our client by the official suite: `python tests/judges/client.py [SCENARIO...]`.

One process for each scenario, and its exit code counts: run all at once, the suite looks at neither.
"""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from suite import installed, required

FIXTURE = Path(__file__).with_name("client_fixture.py")
VERSIONS = ("2025-11-25", "2026-07-28")
SECONDS = 120
EXTENSIONS = (
    "auth/client-credentials-basic",
    "auth/client-credentials-jwt",
    "auth/enterprise-managed-authorization",
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
)
"""Scenarios of the extensions for authorization, which no version of the protocol requires."""


def passes(version: str | None, scenario: str) -> str:
    """Play one scenario; return nothing where it went well, else what was said."""
    command = [*installed(), "client", "--command", f"{sys.executable} {FIXTURE}", "--scenario", scenario]
    command += ["--timeout", "60000", *(["--spec-version", version] if version else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
    except subprocess.TimeoutExpired:
        return f"not done after {SECONDS} s"
    return "" if done.returncode == 0 else (done.stdout + done.stderr)[-2000:]


def main() -> int:
    """Play every required scenario and print the table."""
    only = set(sys.argv[1:])
    installed()
    failed = 0
    for version in (*VERSIONS, None):
        known = EXTENSIONS if version is None else required("client", version)
        scenarios = [name for name in known if not only or name in only]
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(lambda name, version=version: passes(version, name), scenarios))
        for name, said in zip(scenarios, outcomes, strict=True):
            print(f"{'ok' if not said else 'FAILED':7} {version or 'extension '}  {name}")
            if said:
                print(said)
        good = outcomes.count("")
        failed += len(outcomes) - good
        kind = "scenarios of extensions" if version is None else f"required scenarios of {version}"
        print(f"client: {good}/{len(outcomes)} {kind}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
