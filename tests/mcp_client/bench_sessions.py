"""Measures the cost of sessions: a call in a live one, its memory, 500 sessions at once, and snapshots of their files.

    python bench_sessions.py --server PATH --python PYTHON --scratch DIR [--runs 100] > samples.json

Lines are measured in turn (A B C A B C ...), so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from bench import Raw, below, memory, rounded, started_by
from mcp import StdioServerParameters

WARM_UP = 5
#: Calls in a live session per turn that follow the first, without a pause.
IN_A_ROW = 5
#: Seconds before each line, so that the next sandbox is ready, as for an agent that thinks meanwhile. The processor
#: caches are cold by then.
PAUSE = 0.02
IDLE, MANY, SNAPSHOTS = 50, 500, 5
#: Per language of a session: the first code, the measured code, and its expected value.
LIVE = {"python": ("x = 1", "x + 1", "2"), "node": ("var x = 1", "x + 1", "2"), "shell": ("x=1", "echo $((x + 1))", "2")}
MIB = 1 << 20
Figure = tuple[str, str]
#: 9,000 files of 12 KiB, 900 of 300 KiB, 100 of 6 MiB; half of each is noise, half compresses well.
FILL = """
import os
for number in range(10_000):
    part = number % 100
    size = 6 << 20 if part == 0 else 300 << 10 if part < 10 else 12 << 10
    directory = '%d/%d' % (number % 10, number // 100)
    os.makedirs(directory, exist_ok=True)
    with open('%s/%d' % (directory, number), 'wb') as file:
        line = b'%d the quick brown fox jumps over the lazy dog\\n' % number
        file.write(os.urandom(size) if number % 2 == number // 100 % 2 else (line * (size // len(line) + 1))[:size])
os.sync()
"""
CHANGE = "for n in (0, 5, 50, 51, 52, 53, 54, 55, 56, 57):\n    open('%d/%d/%d' % (n % 10, n // 100, n), 'w').write('changed')"


class Server(Raw):
    """A `ringfence serve` for the measurements."""

    def __init__(self, options: argparse.Namespace, state: str, **settings: str) -> None:
        environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "RINGFENCE_LOG": "error"}
        environment |= {"RINGFENCE_STATE_DIR": state, "RINGFENCE_RUNTIMES_PYTHON": options.python, **settings}
        super().__init__(StdioServerParameters(command=options.server, args=["serve"], env=environment), None)
        self.pid, self.state = self._server.pid, state

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Calls a tool and returns its result; a failed program is an error here."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        told = result.get("structuredContent") or {}
        if result.get("isError") or not told.get("success", True):
            raise RuntimeError(f"{name}: {result}")
        return told

    def session(self, language: str = "python", **wishes: Any) -> str:
        return self.tool("create_session", language=language, **wishes)["session_id"]

    def run(self, session: str, language: str, code: str) -> dict[str, Any]:
        return self.tool("execute_code", session_id=session, language=language, code=code)

    def until_warm(self) -> None:
        deadline = time.monotonic() + 120
        while any(not told["warm"] for told in self.tool("list_runtimes")["runtimes"] if told["language"] in LIVE):
            if time.monotonic() > deadline:
                raise RuntimeError("the server does not get warm")
            time.sleep(0.1)


@contextmanager
def serving(options: argparse.Namespace, **settings: str) -> Iterator[Server]:
    """A server with a temporary state directory."""
    with tempfile.TemporaryDirectory(dir=options.scratch) as state:
        server = Server(options, state, **settings)
        try:
            server.until_warm()
            yield server
        finally:
            server.close()


def timed(act: Callable[[], Any]) -> tuple[float, Any]:
    """Returns the milliseconds and the result of a function."""
    begun = time.perf_counter()
    given = act()
    return (time.perf_counter() - begun) * 1000, given


class Bare:
    """The alternative without a sandbox: an interpreter on a pipe."""

    def __init__(self, python: str) -> None:
        words = [python, "-i", "-q", "-u"]
        self._python = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self._ask("x = 1\nprint(x)")

    def _ask(self, code: str) -> bytes:
        assert self._python.stdin and self._python.stdout
        self._python.stdin.write(code.encode() + b"\n")
        self._python.stdin.flush()
        return self._python.stdout.readline().strip()

    def evaluate(self) -> None:
        if self._ask("x + 1") != b"2":
            raise RuntimeError("the bare interpreter says something else than 2")

    def close(self) -> None:
        self._python.communicate(b"exit()\n")


class Calls:
    """Times of the same call, measured by the client and by the server."""

    def __init__(self, name: str, act: Callable[[], Any], then: Callable[[Any], Any] | None = None, in_a_row: int = 0) -> None:
        self.name, self._act, self._then, self._in_a_row = name, act, then, in_a_row
        self.seen: list[float] = []
        self.counted: list[float] = []

    @classmethod
    def both(cls, name: str, act: Callable[[], Any]) -> list[Calls]:
        """The call after a pause, and several in a row after that."""
        return [cls(f"{name}, after a pause", act), cls(f"{name}, in a row", act, in_a_row=IN_A_ROW)]

    def measure(self, counts: bool) -> None:
        if not self._in_a_row:
            time.sleep(PAUSE)
        for _ in range(self._in_a_row or 1):
            self._measure_one(counts)

    def _measure_one(self, counts: bool) -> None:
        took, told = timed(self._act)
        if self._then:
            self._then(told)
        if counts:
            self.seen.append(took)
            if isinstance(told, dict):
                self.counted.append(told["duration_ms"])

    def lines(self, reference: str) -> list[dict[str, Any]]:
        named = [(self.name, self.seen)] if not self.counted else [
            (f"{self.name}, server side", self.counted),
            (f"{self.name}, client", self.seen),
        ]
        return [{"name": name, "reference": reference, "samples_ms": rounded(taken)} for name, taken in named]


def evaluations(server: Server, options: argparse.Namespace) -> list[dict[str, Any]]:
    bare = Bare(options.python)
    calls = Calls.both("bare python3 -i on a pipe, `x + 1`", bare.evaluate)
    for language, (first, code, expect) in LIVE.items():
        session = server.session(language)
        server.run(session, language, first)

        def call(session: str = session, language: str = language, code: str = code, expect: str = expect) -> dict[str, Any]:
            told = server.run(session, language, code)
            if expect not in (str(told.get("result")), told["stdout"].strip()):
                raise RuntimeError(f"{code}: {told}")
            return told

        calls += Calls.both(f"{language} session, `{code}`", call)
    calls.append(Calls("fresh sandbox, `print(1)`", lambda: server.tool("execute_code", code="print(1)")))
    calls.append(Calls("create_session, Python, client", server.session, lambda session: end_all(server, [session])))
    for turn in range(options.runs + WARM_UP):
        for call in calls:
            call.measure(turn >= WARM_UP)
    bare.close()
    reference = calls[0].name
    return [line for call in calls for line in call.lines(reference)]


#: The processes of a sandbox, by their command names.
KINDS = {"ringfence-super": "supervisor", "ringfence-init": "pid 1", "python": "interpreter"}


def status(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def sandboxed(server: int) -> dict[str, list[int]]:
    """The processes of Python sandboxes below a server, by kind, without templates, which are children of pid 1."""
    found: dict[str, list[int]] = {kind: [] for kind in KINDS.values()}
    for pid in below(server):
        with suppress(FileNotFoundError, ProcessLookupError):
            told = status(pid)
            if started_by(pid, b"_ringfence_template"):
                is_fork = started_by(int(told["PPid"]), b"_ringfence_template")
                if is_fork:
                    found["interpreter"].append(pid)
            elif told["Name"] in KINDS:
                found[KINDS[told["Name"]]].append(pid)
    return found


def cgroups(pid: int) -> list[Path]:
    """The cgroups that limit or count the memory or the processes of a process."""
    found = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if path != "/" and controllers in ("", "memory", "pids"):
            found.append(Path(f"/sys/fs/cgroup/{controllers}{path}"))
    return [path for path in found if path.is_dir()]


def cgroup_mib(pid: int) -> float | None:
    """The memory of its cgroup as the kernel counts it, kernel structures included."""
    files = [group / name for group in cgroups(pid) for name in ("memory.current", "memory.usage_in_bytes")]
    return next((int(file.read_text()) / MIB for file in files if file.exists()), None)


def settled(server: int) -> dict[str, list[int]]:
    """The processes, once the pools are stable."""
    last: dict[str, list[int]] = {}
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        now = sandboxed(server)
        if now == last:
            return now
        last = now
        time.sleep(1)
    raise RuntimeError("the pools do not settle")


def end_all(server: Server, sessions: list[str]) -> None:
    for session in sessions:
        if not server.tool("terminate_session", session_id=session)["killed"]:
            raise RuntimeError(f"{session} had ended before")


def is_alive(pid: int) -> bool:
    return os.path.exists(f"/proc/{pid}")


def gone(held: dict[str, list[int]], sessions: int) -> dict[str, list[int]]:
    """The processes of the sessions that have just ended; the others are ready for the next ones."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        own = {kind: [pid for pid in pids if not is_alive(pid)] for kind, pids in held.items()}
        if all(len(pids) >= sessions for pids in own.values()):
            return own
        time.sleep(0.01)
    raise RuntimeError(f"the processes of {sessions} sessions do not end: { {kind: len(pids) for kind, pids in own.items()} }")


def idle_memory(options: argparse.Namespace) -> list[Figure]:
    """Memory of one idle session, in MiB."""
    with serving(options) as server:
        sessions = [server.session() for _ in range(IDLE)]
        for session in sessions:
            server.run(session, "python", "x = 1")
        held = settled(server.pid)
        told = {pid: memory(pid) for pids in held.values() for pid in pids}
        counted = {pid: cgroup_mib(pid) for pid in held["interpreter"]}
        end_all(server, sessions)
        own = gone(held, IDLE)
    figures: list[Figure] = []
    unique, proportional = 0.0, 0.0
    for kind, pids in own.items():
        alone = statistics.fmean(told[pid]["Private_Clean"] + told[pid]["Private_Dirty"] for pid in pids)
        shared = statistics.fmean(told[pid]["Pss"] for pid in pids)
        unique, proportional = unique + alone, proportional + shared
        figures.append((f"idle Python session: its {kind}, unique (PSS)", f"{alone:.2f} MiB ({shared:.2f} MiB)"))
    figures.insert(0, ("idle Python session: all its processes, unique (PSS)", f"{unique:.2f} MiB ({proportional:.2f} MiB)"))
    groups = [mib for pid in own["interpreter"] if (mib := counted[pid]) is not None]
    if groups:
        figures.insert(1, ("idle Python session: its cgroup", f"{statistics.median(groups):.2f} MiB"))
    return figures


def many(options: argparse.Namespace) -> list[Figure]:
    """`MANY` sessions at once: created, used and ended, with nothing left behind."""
    name = f"{MANY} idle Python sessions"
    with serving(options, RINGFENCE_SESSIONS_PER_NAMESPACE=str(MANY)) as server:
        before = memory(server.pid)["Rss"]
        free = available_mib()
        took, sessions = timed(lambda: [server.session() for _ in range(MANY)])
        held = settled(server.pid)
        groups = {group for pid in held["supervisor"] + held["pid 1"] + held["interpreter"] for group in cgroups(pid)}
        pss = sum(memory(pid)["Pss"] for pids in held.values() for pid in pids)
        resident, descriptors = memory(server.pid)["Rss"], len(os.listdir(f"/proc/{server.pid}/fd"))
        used = free - available_mib()
        evaluating, values = timed(lambda: [server.run(session, "python", "6 * 7")["result"] for session in sessions])
        if values != [42] * MANY:
            raise RuntimeError(f"some say something else than 42: {values}")
        ending, _ = timed(lambda: end_all(server, sessions))
        gone(held, MANY)
        if server.tool("list_sessions")["sessions"]:
            raise RuntimeError("the server still lists sessions")
        if runs := list(Path(server.state).glob("runs/*")):
            raise RuntimeError(f"directories are left: {runs}")
        pids = [pid for pids in held.values() for pid in pids]
    if alive := [pid for pid in pids if is_alive(pid)]:
        raise RuntimeError(f"processes are left: {alive}")
    if remain := [str(group) for group in groups if group.exists() and group.name.startswith("ringfence-")]:
        raise RuntimeError(f"cgroups are left: {remain}")
    return [
        (f"{name}: made in", f"{took / 1000:.1f} s, {took / MANY:.1f} ms each"),
        (f"{name}: all their processes (PSS)", f"{pss:.0f} MiB"),
        (f"{name}: what the machine has less, the kernel's own included", f"{used:.0f} MiB"),
        (f"{name}: server, resident", f"{resident:.1f} MiB (before: {before:.1f} MiB)"),
        (f"{name}: descriptors of the server", str(descriptors)),
        (f"{name}: an evaluation in each of them", f"{evaluating / MANY:.2f} ms each"),
        (f"{name}: ended, and nothing left, in", f"{ending / 1000:.1f} s, {ending / MANY:.1f} ms each"),
    ]


def available_mib() -> float:
    line = next(line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("MemAvailable:"))
    return int(line.split()[1]) / 1024


def snapshots(options: argparse.Namespace) -> list[Figure]:
    """10,000 files of 1 GB in all in a namespace's workspace, through the tools."""
    room = {"RINGFENCE_LIMITS_DISK_MB": "4096", "RINGFENCE_LIMITS_RAM_MB": "2048"}
    with serving(options, **room) as server:
        session = server.session(workspace="namespace", resource_limits={"max_disk_mb": 4096})
        server.tool("execute_code", session_id=session, code=FILL, timeout_seconds=600)
        os.sync()  # so that pending writes of the files are not measured
        first, made = timed(lambda: server.tool("create_state_snapshot", description="first"))
        if made["files"] != 10_000:
            raise RuntimeError(f"the snapshot has {made['files']} files")
        seconds = [timed(lambda: server.tool("create_state_snapshot", description="again"))[0] for _ in range(SNAPSHOTS)]
        restores = []
        for _ in range(SNAPSHOTS):
            server.run(session, "python", CHANGE)
            took, told = timed(lambda: server.tool("restore_state_snapshot", snapshot_id=made["snapshot_id"]))
            if told["written"] != 10:
                raise RuntimeError(f"the restore wrote something else than ten files: {told}")
            restores.append(took)
    size = f"10,000 files, {made['size_bytes'] / MIB:.0f} MiB"
    return [
        (f"{size}: first snapshot", f"{first / 1000:.2f} s, {made['stored_bytes'] / MIB:.0f} MiB stored"),
        (f"{size}: second snapshot, nothing changed, p50 of {SNAPSHOTS}", f"{statistics.median(seconds):.0f} ms"),
        (f"{size}: restore of ten changed files, p50 of {SNAPSHOTS}", f"{statistics.median(restores):.0f} ms"),
    ]


def packages(options: argparse.Namespace) -> list[Figure]:
    """The same packages for the first time and again. Needs a reachable index."""
    with serving(options, **{name: value for name, value in os.environ.items() if name.startswith("PIP_")}) as server:
        code = "import numpy\nint(numpy.arange(4).sum())"
        run = lambda: server.tool("execute_code", code=code, packages=["numpy"])  # noqa: E731
        first, _ = timed(run)
        again = statistics.median(timed(run)[0] for _ in range(SNAPSHOTS))
        making, session = timed(lambda: server.session(packages=["numpy"]))
        using, told = timed(lambda: server.run(session, "python", code))
        if told["result"] != 6:
            raise RuntimeError(f"numpy says {told['result']}")
    return [
        ("numpy from the index, first run", f"{first / 1000:.1f} s"),
        (f"numpy again, single run, p50 of {SNAPSHOTS}", f"{again:.0f} ms"),
        ("numpy again, a session with it", f"{making:.0f} ms"),
        ("numpy again, its import in that session", f"{using:.0f} ms"),
    ]


def measure(options: argparse.Namespace) -> dict[str, Any]:
    load = [os.getloadavg()[0]]
    with serving(options) as server:
        lines = evaluations(server, options)
    figures = []
    for part in (idle_memory, many, snapshots, packages):
        load.append(os.getloadavg()[0])
        figures += part(options)
    figures.append(("load of the machine before each part", ", ".join(f"{one:.1f}" for one in load)))
    return {"lines": lines, "figures": [{"what": what, "figure": figure} for what, figure in figures]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the ringfence binary")
    parser.add_argument("--python", required=True, help="the interpreter that both sides start")
    parser.add_argument("--scratch", required=True, help="where the servers keep what they keep")
    parser.add_argument("--runs", type=int, default=100)
    json.dump(measure(parser.parse_args()), sys.stdout)


if __name__ == "__main__":
    main()
