"""Measures the cost that HTTP adds to a call compared with stdio, with clients that only write and read.

    python bench_http.py --server PATH --scratch DIRECTORY [--runs 100] > samples.json

Calls of both are measured in turn, so that other load on the machine affects both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import socket
import statistics
import subprocess
import time
from pathlib import Path
from typing import Any

WARM_UP = 10
#: Seconds between two calls, so that the next sandbox is ready, as for an agent that thinks meanwhile.
PAUSE = 0.03
THROUGHPUT = (1, 4, 16)
CALLS = 200
#: Number of rounds. The order alternates, and the result is the median of the ratios of the rounds, because a slow
#: minute of the machine affects both figures of a round.
ROUNDS = 9
CONNECTIONS = 1000
REVISION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
}


def message(number: int, method: str, params: dict[str, Any]) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": {**params, "_meta": META}}).encode()


PRINT = {"name": "execute_code", "arguments": {"code": "print(1)"}}


def checked(text: bytes) -> None:
    result = json.loads(text)["result"]
    if result["structuredContent"].get("stdout") != "1\n":
        raise RuntimeError(text.decode())


class Lines:
    """A server on pipes."""

    def __init__(self, words: list[str], env: dict[str, str]) -> None:
        self.server = subprocess.Popen(words, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.number = 0

    def begin(self, params: dict[str, Any] = PRINT) -> None:
        assert self.server.stdin
        self.number += 1
        self.server.stdin.write(message(self.number, "tools/call", params) + b"\n")
        self.server.stdin.flush()

    def answer(self) -> bytes:
        assert self.server.stdout
        return self.server.stdout.readline()

    def call(self) -> None:
        self.begin()
        checked(self.answer())

    def throughput(self, concurrency: int) -> float:
        begun = time.perf_counter()
        for number in range(CALLS + concurrency):
            if number >= concurrency:
                checked(self.answer())
            if number < CALLS:
                self.begin()
        return CALLS / (time.perf_counter() - begun)

    def close(self) -> None:
        assert self.server.stdin
        self.server.stdin.close()
        self.server.wait()


class Connection:
    """One keep-alive connection, with one request at a time."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.rest = b""

    def begin(self, method: str = "tools/call", params: dict[str, Any] = PRINT) -> None:
        body = message(1, method, params)
        name = f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
        head = (
            f"POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Method: {method}\r\n{name}"
            f"Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: {REVISION}\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self.socket.sendall(head.encode() + body)

    def answer(self) -> bytes | None:
        """The body, if it is complete."""
        head, separator, body = self.rest.partition(b"\r\n\r\n")
        if not separator:
            return None
        lines = head.lower().split(b"\r\n")
        length = next(int(line[15:]) for line in lines if line.startswith(b"content-length:"))
        if len(body) < length:
            return None
        self.rest = body[length:]
        return body[:length]

    def read(self) -> bytes | None:
        received = self.socket.recv(1 << 16)
        if not received:
            raise RuntimeError("the server has closed the connection")
        self.rest += received
        return self.answer()

    def end(self) -> bytes:
        while (body := self.read()) is None:
            pass
        return body

    def call(self) -> None:
        self.begin()
        checked(self.end())


class Http:
    """A server over HTTP."""

    def __init__(self, server: str, env: dict[str, str]) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [server, "serve", "--transport", "http", "--port", str(self.port)]
        self.server = subprocess.Popen(words, env=env, stderr=subprocess.DEVNULL)
        while True:
            try:
                self.connection = Connection(self.port)
                self.connection.call()
                return
            except ConnectionRefusedError:
                time.sleep(0.01)

    def call(self) -> None:
        self.connection.call()

    def throughput(self, concurrency: int) -> float:
        """Keeps `concurrency` calls in flight, each on a connection of its own."""
        waiting = selectors.DefaultSelector()
        connections = [Connection(self.port) for _ in range(concurrency)]
        for connection in connections:
            connection.call()
            waiting.register(connection.socket, selectors.EVENT_READ, connection)
        left, ended, begun = CALLS, 0, time.perf_counter()
        for connection in connections:
            connection.begin()
            left -= 1
        while ended < CALLS:
            for key, _ in waiting.select():
                body = key.data.read()
                if body is None:
                    continue
                checked(body)
                ended += 1
                if left > 0:
                    key.data.begin()
                    left -= 1
        took = time.perf_counter() - begun
        for connection in connections:
            connection.socket.close()
        return CALLS / took

    def resident_kib(self) -> float:
        lines = Path(f"/proc/{self.server.pid}/status").read_text().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith("VmRSS:"))

    def idle_kib(self) -> float:
        """Memory per idle connection, after its first answer, over many connections."""
        # Warms up, so that temporary memory for answers is not counted.
        for _ in range(WARM_UP):
            self.connection.begin("tools/list", {})
            self.connection.end()
        before = self.resident_kib()
        idle = []
        for _ in range(CONNECTIONS):
            # The first request must come soon after the connection.
            connection = Connection(self.port)
            connection.begin("tools/list", {})
            connection.end()
            idle.append(connection)
        each = (self.resident_kib() - before) / CONNECTIONS
        self.call()
        for connection in idle:
            connection.socket.close()
        return each

    def close(self) -> None:
        self.server.terminate()
        self.server.wait()


def pss_mib(processes: list[int]) -> float:
    """Memory of the processes and their descendants, with shared pages divided (PSS, proc_pid_smaps(5))."""
    parents: dict[int, list[int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents.setdefault(int(stat.read_text().rpartition(")")[2].split()[1]), []).append(int(stat.parent.name))
        except OSError:
            pass
    total, waiting = 0.0, list(processes)
    while waiting:
        process = waiting.pop()
        waiting += parents.get(process, [])
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += next((int(line.split()[1]) for line in lines if line.startswith("Pss:")), 0)
    return total / 1024


def settled_mib(processes: list[int]) -> float:
    """The same, once it is stable and the sandboxes are ready."""
    deadline, before = time.monotonic() + 60, 0.0
    while time.monotonic() < deadline:
        time.sleep(1)
        now = pss_mib(processes)
        if abs(now - before) < 1:
            return now
        before = now
    raise RuntimeError("the memory of the servers still changes after a minute")


CLIENTS = 3


def clients(words: list[str], envs: list[dict[str, str]], daemons: list[int]) -> tuple[float, float]:
    """Starts clients one after the other; returns the time to the first result of the last, and the memory of all."""
    begun, lines = 0.0, []
    for env in envs:
        begun = time.perf_counter()
        lines.append(Lines(words, env))
        lines[-1].call()
    last = (time.perf_counter() - begun) * 1000
    taken = settled_mib([*daemons, *(line.server.pid for line in lines)])
    for line in lines:
        line.close()
    return last, taken


def shared(server: str, env: dict[str, str], state: Path) -> list[dict[str, str]]:
    """Compares clients that share a daemon by `connect` with clients that have a server each."""
    envs = [{**env, "RINGFENCE_STATE_DIR": str(state / f"state-{number}")} for number in range(CLIENTS)]
    alone = clients([server, "serve"], envs, [])
    place = f"unix:{state / 'daemon.sock'}"
    daemon_env = {**env, "RINGFENCE_STATE_DIR": str(state / "state-daemon")}
    daemon = subprocess.Popen([server, "serve", "--transport", "http", "--listen", place], env=daemon_env, stderr=subprocess.DEVNULL)
    while not (state / "daemon.sock").exists():
        time.sleep(0.01)
    together = clients([server, "connect", place], [env] * CLIENTS, [daemon.pid])
    daemon.terminate()
    daemon.wait()
    return [
        {"what": f"{CLIENTS} clients, {how}", "figure": f"first result of the last after {last:.0f} ms, {taken:.0f} MiB in all"}
        for how, (last, taken) in {"a server each": alone, "one daemon, `connect`": together}.items()
    ]


def throughputs(servers: dict[str, Lines | Http], concurrency: int) -> list[dict[str, str]]:
    rounds: list[dict[str, float]] = []
    for number in range(ROUNDS):
        order = list(servers) if number % 2 == 0 else list(reversed(servers))
        rounds.append({name: servers[name].throughput(concurrency) for name in order})
    figures = [
        {"what": f"`print(1)`, {concurrency} at once, {name}", "figure": f"{statistics.median(r[name] for r in rounds):.0f} calls/s"}
        for name in servers
    ]
    ratios = sorted(r["HTTP"] / r["stdio"] for r in rounds)
    ratio = f"{statistics.median(ratios):.2f} x (rounds: {ratios[0]:.2f} to {ratios[-1]:.2f})"
    return [*figures, {"what": f"{concurrency} at once, HTTP beside stdio", "figure": ratio}]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--runs", type=int, default=100)
    arguments = parser.parse_args()
    state = Path(arguments.scratch)
    env = {"PATH": os.environ["PATH"], "HOME": str(state)}
    servers = {
        "stdio": Lines([arguments.server, "serve"], {**env, "RINGFENCE_STATE_DIR": str(state / "state-stdio")}),
        "HTTP": Http(arguments.server, {**env, "RINGFENCE_STATE_DIR": str(state / "state-http")}),
    }
    samples: dict[str, list[float]] = {name: [] for name in servers}
    for turn in range(arguments.runs + WARM_UP):
        for name, server in servers.items():
            time.sleep(PAUSE)
            begun = time.perf_counter()
            server.call()
            if turn >= WARM_UP:
                samples[name].append(round((time.perf_counter() - begun) * 1000, 4))
    figures = []
    for concurrency in THROUGHPUT:
        figures += throughputs(servers, concurrency)
    each = servers["HTTP"].idle_kib()
    figures.append({"what": f"each of {CONNECTIONS} idle connections", "figure": f"{each:.1f} KiB"})
    for server in servers.values():
        server.close()
    figures += shared(arguments.server, env, state)
    lines = [
        {"name": f"`print(1)`, {name}", "reference": None if name == "stdio" else "`print(1)`, stdio", "samples_ms": taken}
        for name, taken in samples.items()
    ]
    print(json.dumps({"lines": lines, "figures": figures}))


if __name__ == "__main__":
    main()
