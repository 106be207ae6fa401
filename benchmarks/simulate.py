"""Carry the measured service times to 10,000 calls/s with a queueing model: `python benchmarks/simulate.py`.

Reads `service_times.json` (made by `service_times.py`). Calls arrive at random (Poisson). Each passes one or two
stations with a queue: processes, of which each does one thing at a time, and a journal: the writer of a SQLite file,
or the cores of a PostgreSQL server. Service times are exponential with the measured mean; waiting for disks and the
network is a delay without a queue. A Ray node has as many actors as cores: what a call takes beyond the CPU time of the
process is the work of an actor. Prints where each deployment saturates, and draws `docs/images/scale.svg`.
"""

import heapq
import json
import math
import random
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from plots import draw_lines
from service_times import FILE

PLOT = Path(__file__).parents[1] / "docs" / "images" / "scale.svg"
RATES = (10, 30, 100, 300, 1000, 2000, 3000, 5000, 7000, 10_000)
TARGET = 10_000
ARRIVALS = 20_000
TOOL_MS = 10.0
"""CPU time of a tool for which a cluster is worth its cost."""
SHARE = 0.7
"""Load up to which a queue is short; above it, the slowest calls wait for many others."""


@dataclass(frozen=True)
class Station:
    """Servers with one queue: how many there are, and the mean milliseconds for a call."""

    servers: int
    ms: float

    @property
    def limit(self) -> float:
        """Calls per second at which every server is busy."""
        return self.servers / self.ms * 1e3


@dataclass(frozen=True)
class Deployment:
    """Stations that a call passes, and milliseconds that it waits without a queue."""

    name: str
    stations: Sequence[Station]
    delay_ms: float = 0.0

    @property
    def limit(self) -> float:
        """Calls per second at which the first station saturates."""
        return min(station.limit for station in self.stations)

    def simulate(self, rate: float) -> list[float]:
        """Return the milliseconds of each call, shortest first."""
        chance = random.Random(1)  # noqa: S311 - the same figures each time
        now, arrivals = 0.0, []
        for _ in range(ARRIVALS):
            now += chance.expovariate(rate / 1e3)
            arrivals.append((now, now))
        for station in self.stations:
            arrivals = sorted(_pass(station, arrivals, chance))
        return sorted(left - came + self.delay_ms for left, came in arrivals)


Passage = tuple[float, float]
"""When a call comes to a station or leaves it, and when it came to the first one, in milliseconds."""


def _pass(station: Station, arrivals: Sequence[Passage], chance: random.Random) -> Iterator[Passage]:
    """Yield when each call leaves a station, and when it came to the first one."""
    free = [0.0] * station.servers
    for at, came in arrivals:
        left = max(at, heapq.heappop(free)) + chance.expovariate(1 / station.ms)
        heapq.heappush(free, left)
        yield left, came


def make_deployments(subjects: Mapping[str, Mapping[str, float]]) -> list[Deployment]:
    """Return the deployments that are compared."""
    request, session = (subjects[f"replica, {era} era"]["cpu_ms"] for era in ("stateless", "session"))
    sqlite, postgres = subjects["journal, SQLite"], subjects["journal, PostgreSQL"]
    of_server, journalled = postgres["server_cpu_ms"], request + postgres["cpu_ms"]
    waits = max(0.0, postgres["ms"] - postgres["cpu_ms"] - of_server)
    ray = subjects["Ray, actor"]
    in_actor = max(0.01, ray["ms"] - ray["cpu_ms"])
    return [
        Deployment("1 process", [Station(1, request)]),
        Deployment("3 replicas", [Station(3, request)]),
        Deployment("3 replicas, session era", [Station(3, session)]),
        Deployment("1 process, 1 Ray node, 4 cores", [Station(1, request + ray["cpu_ms"]), Station(4, in_actor)]),
        Deployment(
            "1 process, 1 Ray node, 4 cores, tools of 10 ms",
            [Station(1, request + ray["cpu_ms"]), Station(4, in_actor + TOOL_MS)],
        ),
        Deployment("1 process, SQLite journal", [Station(1, request + sqlite["cpu_ms"]), Station(1, sqlite["ms"])]),
        Deployment("3 replicas, PostgreSQL, 4 cores", [Station(3, journalled), Station(4, of_server)], waits),
        Deployment("20 replicas, PostgreSQL, 16 cores", [Station(20, journalled), Station(16, of_server)], waits),
    ]


def main() -> int:
    """Print the table, and draw the plot."""
    if not FILE.exists():
        print(f"{FILE.name} does not exist. Run `python benchmarks/service_times.py` first.", file=sys.stderr)
        return 1
    data = json.loads(FILE.read_text("utf-8"))
    deployments = make_deployments(data["subjects"])
    print(f"Service times of {data['cores']} cores at load {data['load']}.")
    print("| deployment | saturates at, calls/s | at 70 %: p50 ms | p99 ms | breaks first |")
    print("|---|---|---|---|---|")
    series = {}
    for each in deployments:
        times = each.simulate(SHARE * each.limit)
        first = min(range(len(each.stations)), key=lambda index, each=each: each.stations[index].limit)
        part = ("the processes", "the actors" if "Ray" in each.name else "the journal")[first]
        p50, p99 = statistics.median(times), times[int(len(times) * 0.99)]
        print(f"| {each.name} | {each.limit:,.0f} | {p50:.2g} | {p99:.2g} | {part} |")
        rates = [rate for rate in RATES if rate < 0.98 * each.limit]
        series[each.name] = [(rate, statistics.median(each.simulate(rate))) for rate in rates]
    subjects = data["subjects"]
    request, postgres = subjects["replica, stateless era"]["cpu_ms"], subjects["journal, PostgreSQL"]
    plain, journalled = (_count(TARGET, ms) for ms in (request, request + postgres["cpu_ms"]))
    print(
        f"\nFor {TARGET:,} calls/s at {SHARE:.0%}: {plain} replicas without a journal; with PostgreSQL {journalled} "
        f"replicas and {_count(TARGET, postgres['server_cpu_ms'])} cores of the database."
    )
    PLOT.write_text(draw_lines("median milliseconds of a call by calls per second", series), "utf-8")
    return 0


def _count(rate: float, ms: float) -> int:
    return math.ceil(rate * ms / 1e3 / SHARE)


if __name__ == "__main__":
    sys.exit(main())
