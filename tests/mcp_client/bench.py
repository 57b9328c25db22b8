"""Measures the cost of a call for an agent, through the official client, and of the same without Ringfence.

    python bench.py --server PATH --python PYTHON [--data-python PYTHON] [--runs 100] > samples.json

Lines are measured in turn (A B C A B C ...), so that other load on the machine affects all of them alike.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
from connection import ERAS, Connection, connected
from mcp import StdioServerParameters

WARM_UP = 10
#: Seconds between two calls of one client, so that the next sandbox is ready, as for an agent that thinks meanwhile.
PAUSE = 0.03
THROUGHPUT = (1, 4, 16)
DESCRIBE = (
    "import pandas as pd\n"
    "frame = pd.DataFrame({'a': range(1000), 'b': [x * .5 for x in range(1000)]})\n"
    "print(frame.describe())"
)
#: The computation alone: the same in a process that has imported pandas and has run it before.
DESCRIBE_BARE = (
    "import time\n" + DESCRIBE + "\nfor _ in range(20):\n    begun = time.perf_counter()\n"
    "    frame = pd.DataFrame({'a': range(1000), 'b': [x * .5 for x in range(1000)]})\n"
    "    str(frame.describe())\n    print('TOOK', (time.perf_counter() - begun) * 1000)"
)


def rounded(samples: list[float]) -> list[float]:
    return [round(sample, 4) for sample in samples]


class Line:
    """One line of the table."""

    def __init__(self, name: str, measure: Callable[[], Awaitable[None]], reference: str | None = None) -> None:
        self.name, self.measure, self.reference = name, measure, reference
        self.samples: list[float] = []

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "reference": self.reference, "samples_ms": rounded(self.samples)}


def process(*command: str) -> Callable[[], Awaitable[None]]:
    """Runs a whole process, from start to end."""

    async def run() -> None:
        subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, check=True)

    return run


def bubblewrap(python: str) -> list[str]:
    words = ["bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if os.path.islink(name):
            words += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            words += ["--ro-bind", name, name]
    real = Path(python).resolve()
    if not real.is_relative_to("/usr"):
        words += ["--ro-bind", str(real.parent.parent), str(real.parent.parent)]
        python = str(real)
    return [*words, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--", python, "-c", "print(1)"]


def call(connection: Connection, tool: str, phases: list[dict[str, float]] | None = None, **arguments: Any) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        answer = await connection.call(tool, arguments)
        if answer.is_error or answer.structured is None or not answer.structured.get("success"):
            raise RuntimeError(f"{tool}: {answer.structured or answer.texts}")
        if phases is not None:
            phases.append(answer.structured["phases"])

    return run


async def in_turn(lines: list[Line], runs: int) -> None:
    for turn in range(runs + WARM_UP):
        for line in lines:
            await anyio.sleep(PAUSE)
            begun = time.perf_counter()
            await line.measure()
            if turn >= WARM_UP:
                line.samples.append((time.perf_counter() - begun) * 1000)


async def until_warm(connection: Connection, languages: set[str], module: str | None) -> None:
    with anyio.fail_after(120):
        while True:
            answer = await connection.call("list_runtimes", {})
            runtimes = (answer.structured or {})["runtimes"]
            cold = [r["language"] for r in runtimes if r["language"] in languages and not r["warm"]]
            loaded = [name for r in runtimes for name in r["preloaded"]]
            if not cold and (module is None or module in loaded):
                return
            await anyio.sleep(0.1)


class Raw:
    """A client that only writes and reads lines, so that almost all of the time is the server's."""

    def __init__(self, parameters: StdioServerParameters, log: Any) -> None:
        command = [parameters.command, *parameters.args]
        self._server = subprocess.Popen(command, env=parameters.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        self._number = 0
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", hello)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._server.stdin
        self._server.stdin.write(json.dumps(message).encode() + b"\n")
        self._server.stdin.flush()

    def ask(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        assert self._server.stdout
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        while True:
            answer = json.loads(self._server.stdout.readline())
            if answer.get("id") == self._number:
                return answer["result"]

    def call(self, tool: str, **arguments: Any) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            result = self.ask("tools/call", {"name": tool, "arguments": arguments})
            if result.get("isError") or not result["structuredContent"]["success"]:
                raise RuntimeError(f"{tool}: {result}")

        return run

    def _begin(self) -> int:
        self._number += 1
        params = {"name": "execute_code", "arguments": {"code": "print(1)"}}
        self._send({"jsonrpc": "2.0", "id": self._number, "method": "tools/call", "params": params})
        return self._number

    def _ended(self) -> int:
        """Waits for the next successful call and returns its number."""
        assert self._server.stdout
        while True:
            answer = json.loads(self._server.stdout.readline())
            if "result" in answer:
                if not answer["result"]["structuredContent"]["success"]:
                    raise RuntimeError(str(answer))
                return answer["id"]

    def throughput(self, concurrency: int, calls: int) -> dict[str, Any]:
        """Keeps `concurrency` calls in flight until all are done."""
        begun = time.perf_counter()
        for number in range(calls + concurrency):
            if number >= concurrency:
                self._ended()
            if number < calls:
                self._begin()
        return {"concurrency": concurrency, "calls_per_second": calls / (time.perf_counter() - begun)}

    def steady(self, per_second: float, seconds: float) -> list[float]:
        """Starts calls at a fixed rate, independent of the end of others."""
        began: dict[int, float] = {}
        taken: list[float] = []
        calls = int(per_second * seconds)

        def listen() -> None:
            for _ in range(calls):
                ended = self._ended()
                taken.append((time.perf_counter() - began[ended]) * 1000)

        listener = threading.Thread(target=listen)
        listener.start()
        begun = time.perf_counter()
        for number in range(calls):
            time.sleep(max(0.0, begun + number / per_second - time.perf_counter()))
            began[self._number + 1] = time.perf_counter()
            self._begin()
        listener.join()
        return taken

    def close(self) -> None:
        assert self._server.stdin
        self._server.stdin.close()
        self._server.wait()


def below(pid: int) -> list[int]:
    """All descendants of a process."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for word in (task / "children").read_text().split():
            found += [int(word), *below(int(word))]
    return found


def memory(pid: int) -> dict[str, float]:
    fields = (line.split() for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return {words[0].rstrip(":"): float(words[1]) / 1024 for words in fields}


def unique_mib(pids: list[int]) -> float:
    """Private memory of the processes, in MiB."""
    return sum(m["Private_Clean"] + m["Private_Dirty"] for m in map(memory, pids))


def started_by(pid: int, word: bytes) -> bool:
    return word in Path(f"/proc/{pid}/cmdline").read_bytes()


def sandboxes(server: int) -> dict[str, list[int]]:
    """Forks and templates of Python below the server, and all its descendants."""
    all_below = below(server)
    python = [pid for pid in all_below if started_by(pid, b"_ringfence_template")]
    children = {pid: Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[1] for pid in python}
    forks = [pid for pid in python if int(children[pid]) in python]
    return {"forks": forks, "templates": [pid for pid in python if pid not in forks], "all": all_below}


async def memories(connection: Connection, server: int) -> dict[str, float]:
    """MiB of a parked fork, a running fork, a template and the server."""
    await anyio.sleep(1)
    parked = sandboxes(server)
    figures = {
        "parked_python": max(map(lambda pid: unique_mib([pid]), parked["forks"])),
        "template_python": min(map(lambda pid: memory(pid)["Pss"], parked["templates"])),
        "server_resident": memory(server)["Rss"],
    }
    answer = await connection.call("execute_code", {"code": "print(open('/proc/self/smaps_rollup').read())"})
    told = {line.split()[0]: float(line.split()[1]) for line in answer.structured["stdout"].splitlines()[1:] if line}
    figures["running_python"] = (told["Private_Clean:"] + told["Private_Dirty:"]) / 1024
    return figures


def time_to_initialized(parameters: StdioServerParameters, log: Any, runs: int) -> list[float]:
    """From the start of the process to the answer to `initialize`."""
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        raw = Raw(parameters, log)
        taken.append((time.perf_counter() - begun) * 1000)
        raw.close()
    return taken


def data_compute(python: str) -> list[float]:
    said = subprocess.run([python, "-c", DESCRIBE_BARE], capture_output=True, text=True, check=True).stdout
    return [float(line.split()[1]) for line in said.splitlines() if line.startswith("TOOK")]


def server_pid(command: str) -> int:
    mine = os.getpid()
    return next(pid for pid in below(mine) if started_by(pid, b"serve") and os.readlink(f"/proc/{pid}/exe") == os.path.realpath(command))


async def measure(options: argparse.Namespace) -> dict[str, Any]:
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "RINGFENCE_LOG": "error"}
    plain = StdioServerParameters(command=options.server, args=["serve"], env={**environment, "RINGFENCE_RUNTIMES_PYTHON": options.python})
    document: dict[str, Any] = {"lines": [], "throughput": [], "figures": {}}
    with open(os.devnull, "w") as log:
        async with connected(plain, ERAS[0], log) as connection:
            await until_warm(connection, {"python", "node", "shell"}, None)
            phases: list[dict[str, float]] = []
            bare = Line("bare python3 -c 'print(1)'", process(options.python, "-c", "print(1)"))
            lines = [bare]
            if shutil.which("bwrap"):
                lines.append(Line("bubblewrap + python3 -c 'print(1)'", process(*bubblewrap(options.python)), bare.name))
            raw = Raw(plain, log)
            await anyio.sleep(3)
            run = lambda **arguments: call(connection, "execute_code", **arguments)  # noqa: E731
            lines += [
                Line("JSON lines: empty call", raw.call("get_sandbox_info"), bare.name),
                Line("JSON lines: execute_code print(1)", raw.call("execute_code", code="print(1)"), bare.name),
                Line("client: empty call", call(connection, "get_sandbox_info"), bare.name),
                Line("client: execute_code print(1)", run(phases=phases, code="print(1)"), bare.name),
                Line("client: execute_code console.log(1)", run(code="console.log(1)", language="node"), bare.name),
                Line("client: execute_code echo 1", run(code="echo 1", language="shell"), bare.name),
            ]
            await in_turn(lines, options.runs)
            raw.close()
            document["lines"] += [line.as_json() for line in lines]
            document["phases"] = phases[WARM_UP:]
            document["figures"]["memory_mib"] = await memories(connection, server_pid(options.server))
        raw = Raw(plain, log)
        time.sleep(3)
        for concurrency in THROUGHPUT:
            raw.throughput(concurrency, 100)
            document["throughput"].append(raw.throughput(concurrency, options.runs * 10))
        capacity = next(t["calls_per_second"] for t in document["throughput"] if t["concurrency"] == 4)
        begun = time.perf_counter()
        raw.throughput(1, 1000)
        document["figures"]["thousand_calls_seconds"] = time.perf_counter() - begun
        time.sleep(2)
        document["steady"] = {"calls_per_second": capacity / 2, "samples_ms": rounded(raw.steady(capacity / 2, 6))}
        raw.close()
        if options.data_python:
            data = StdioServerParameters(command=options.server, args=["serve"], env={**environment, "RINGFENCE_RUNTIMES_PYTHON": options.data_python})
            async with connected(data, ERAS[0], log) as connection:
                await until_warm(connection, {"python"}, "pandas")
                bare = Line("bare python3, import pandas, describe()", process(options.data_python, "-c", DESCRIBE))
                lines = [bare, Line("client: execute_code pandas describe()", call(connection, "execute_code", code=DESCRIBE), bare.name)]
                await in_turn(lines, max(20, options.runs // 4))
                document["lines"] += [line.as_json() for line in lines]
            document["figures"]["describe_compute_ms"] = data_compute(options.data_python)
        document["lines"].append({"name": "start of the server to `initialized`", "reference": None, "samples_ms": time_to_initialized(plain, log, 20)})
    return document


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True, help="the ringfence binary")
    parser.add_argument("--python", required=True, help="the interpreter that both sides start")
    parser.add_argument("--data-python", help="one that has pandas")
    parser.add_argument("--runs", type=int, default=100)
    json.dump(anyio.run(measure, parser.parse_args()), sys.stdout)


if __name__ == "__main__":
    main()
