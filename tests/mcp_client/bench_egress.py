"""Measures the cost of egress: a connection, a large transfer, and a call with rules, and the same without Ringfence.

    python bench_egress.py --server PATH --python PYTHON --scratch DIR [--runs 100] [--uid UID] > samples.json

It is started in an empty network namespace, and starts there a host (`bench_hosts.py`), a Ringfence server, and one client,
which is the same program in the same interpreter inside a sandbox and outside. Lines are measured in turn (A B C A B C ...),
so that other load on the machine affects all of them alike.
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
from pathlib import Path
from typing import Any

from bench import Raw, rounded
from bench_hosts import CONTENT, DIGEST, SIZE
from mcp import StdioServerParameters

NAME, ADDRESS = "good.test", "93.184.216.34"
RULES = [NAME, f"{NAME}:9000"]
#: Connections of one kind per turn, and the number of transfers.
IN_A_ROW, CARRIED = 10, 10
#: Seconds before a call, so that the next sandbox is ready, as for an agent that thinks meanwhile.
PAUSE = 0.03
#: Limits: added milliseconds of a connection or a call at most, and the share of the direct throughput at least.
ADDED_MS_MAX, THROUGHPUT_MIN = 1.0, 0.7
PORTS = {"HTTP": 80, "TLS": 443, "bytes": 9000}
Figure = tuple[str, str]

#: The client. `host` is the address of the host outside of the sandbox, and the resolved address inside.
CLIENT = """
import hashlib, random, socket, ssl, time
CONTEXT = ssl._create_unverified_context()
SIZE = 64 << 20
CONTENT = random.Random(7).randbytes(SIZE)
HEAD = '%s %s HTTP/1.1\\r\\nHost: good.test\\r\\nContent-Length: %d\\r\\n\\r\\n'

def connect(host, port):
    sock = socket.create_connection((host, port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return CONTEXT.wrap_socket(sock, server_hostname='good.test') if port == 443 else sock

def read(sock, keep=None):
    '''The body, where it is a word; a long one is dropped, or goes into the digest.'''
    head = b''
    while b'\\r\\n\\r\\n' not in head:
        more = sock.recv(4096)
        if not more: raise OSError('it ended before its answer did')
        head += more
    said, _, word = head.partition(b'\\r\\n\\r\\n')
    length = int(said.lower().split(b'content-length:')[1].split()[0])
    if keep is not None: keep.update(word)
    got, buffer = len(word), bytearray(1 << 20)
    while got < length:
        count = sock.recv_into(buffer)
        if not count: raise OSError('it ended after %d of %d' % (got, length))
        if keep is not None: keep.update(memoryview(buffer)[:count])
        if length < 4096: word += buffer[:count]
        got += count
    return word

def one(host, port):
    begun = time.perf_counter()
    with connect(host, port) as sock:
        sock.sendall((HEAD % ('GET', '/', 0)).encode())
        said = read(sock)
    assert said == b'hello', said
    return (time.perf_counter() - begun) * 1000

def many(host, port, count):
    return [one(host, port) for _ in range(count)]

def down(host, port, keep=None):
    begun = time.perf_counter()
    with connect(host, port) as sock:
        sock.sendall((HEAD % ('GET', '/down', 0)).encode())
        read(sock, keep)
    return (time.perf_counter() - begun) * 1000

def up(host, port, path='/up'):
    begun = time.perf_counter()
    with connect(host, port) as sock:
        sock.sendall((HEAD % ('PUT', path, SIZE)).encode())
        sock.sendall(CONTENT)
        said = read(sock)
    return (time.perf_counter() - begun) * 1000, said.decode()

def digests(host, port):
    keep = hashlib.sha256()
    down(host, port, keep)
    return keep.hexdigest(), up(host, port, '/hash')[1]
"""


class Direct:
    """The client outside of a sandbox, on a pipe: it reads one expression per line and prints its value."""

    host = ADDRESS

    def __init__(self, python: str) -> None:
        loop = "\nimport json, sys\nfor line in sys.stdin: print(json.dumps(eval(line)), flush=True)"
        words = [python, "-c", CLIENT + loop]
        self._python = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, expression: str) -> Any:
        assert self._python.stdin and self._python.stdout
        self._python.stdin.write(expression + "\n")
        self._python.stdin.flush()
        return json.loads(self._python.stdout.readline())

    def close(self) -> None:
        self._python.communicate()


class Server(Raw):
    """A `ringfence serve` as this user or another, whose sandboxes may reach the host."""

    def __init__(self, options: argparse.Namespace, uid: int | None) -> None:
        self.home = Path(tempfile.mkdtemp(prefix="ringfence-bench-"))
        command, words = options.server, ["serve"]
        if uid is not None:
            # Another user cannot read the build directory.
            copy = self.home / "ringfence"
            shutil.copy(options.server, copy)
            os.chown(self.home, uid, uid)
            user = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--", str(copy)]
            command, words = "setpriv", user + words
        environment = {
            "PATH": "/usr/bin:/bin",
            "HOME": str(self.home),
            "RINGFENCE_LOG": "error",
            "RINGFENCE_STATE_DIR": str(self.home / "state"),
            "RINGFENCE_RUNTIMES_PYTHON": options.python,
            "RINGFENCE_EGRESS_RESOLVERS": "127.0.0.1:5353",
            "RINGFENCE_EGRESS_ALLOW": ";".join(RULES),
            "RINGFENCE_EGRESS_SENT_MB": "100000",
            "RINGFENCE_EGRESS_RECEIVED_MB": "100000",
        }
        super().__init__(StdioServerParameters(command=command, args=words, env=environment), None)

    def tool(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Calls a tool and returns its result; a failed program is an error here."""
        result = self.ask("tools/call", {"name": name, "arguments": arguments})
        told = result.get("structuredContent") or {}
        if result.get("isError") or not told.get("success", True):
            raise RuntimeError(f"{name}: {result}")
        return told

    def until_warm(self) -> None:
        deadline = time.monotonic() + 60
        while not all(r["warm"] for r in self.tool("list_runtimes")["runtimes"] if r["language"] == "python"):
            if time.monotonic() > deadline:
                raise RuntimeError("the server does not get warm")
            time.sleep(0.1)

    def close(self) -> None:
        super().close()
        shutil.rmtree(self.home, ignore_errors=True)


class Inside:
    """The client in a session of a server. It resolves the name once, because the direct client has the address."""

    def __init__(self, server: Server) -> None:
        self._server = server
        asked = server.tool("create_session", language="python", allowed_domains=RULES)
        self._session = asked["session_id"]
        self._run(CLIENT)
        self.host = self.ask(f"socket.gethostbyname('{NAME}')")

    def _run(self, code: str) -> dict[str, Any]:
        return self._server.tool("execute_code", session_id=self._session, code=code, timeout_seconds=60)

    def ask(self, expression: str) -> Any:
        return json.loads(self._run(f"import json\nprint(json.dumps({expression}))")["stdout"])


class Line:
    """One line of the table."""

    def __init__(self, name: str, reference: str | None = None) -> None:
        self.name, self.reference = name, reference
        self.samples: list[float] = []

    @property
    def p50(self) -> float:
        return statistics.median(self.samples)

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "reference": self.reference, "samples_ms": rounded(self.samples)}


class Table:
    """Lines of several clients, which are compared with a reference, such as the direct client."""

    def __init__(self) -> None:
        self.lines: dict[str, Line] = {}

    def add(self, what: str, who: str, reference: str, *samples: float) -> None:
        name = f"{what}, {who}"
        line = self.lines.setdefault(name, Line(name, f"{what}, {reference}"))
        line.samples.extend(samples)

    def pairs(self) -> list[tuple[Line, Line]]:
        """Each line with its reference, without the references themselves."""
        lines = self.lines
        return [(line, lines[line.reference]) for line in lines.values() if line.reference not in (None, line.name)]


def connections(clients: dict[str, Any], runs: int) -> Table:
    """Times from connect until the answer has been read."""
    table = Table()
    for turn in range(max(1, runs // IN_A_ROW) + 1):
        for kind, port in PORTS.items():
            for who, client in clients.items():
                samples = client.ask(f"many('{client.host}', {port}, {IN_A_ROW})")
                if turn:
                    table.add(f"a connection, {kind}", who, "direct", *samples)
    return table


def carried(clients: dict[str, Any]) -> Table:
    """Times from connect until the last byte has been read."""
    table = Table()
    for turn in range(CARRIED + 1):
        for kind, port in PORTS.items():
            for way in ("down", "up"):
                for who, client in clients.items():
                    took = client.ask(f"{way}('{client.host}', {port})")
                    if way == "up":
                        took, said = took
                        if said != str(SIZE):
                            raise RuntimeError(f"{kind}, {who}: {said} bytes came")
                    if turn:
                        table.add(f"64 MiB {way}, {kind}", who, "direct", took)
    return table


def calls(servers: dict[str, Server], runs: int) -> Table:
    """Times of a warm call, with rules and without."""
    table = Table()
    for turn in range(runs + 1):
        for who, server in servers.items():
            for words, domains in (("without rules", []), ("with rules", RULES)):
                time.sleep(PAUSE)
                begun = time.perf_counter()
                server.tool("execute_code", code="print(1)", allowed_domains=domains)
                took = (time.perf_counter() - begun) * 1000
                if turn:
                    table.add(f"execute_code print(1) {who}", words, "without rules", took)
    return table


def same(clients: dict[str, Any]) -> Figure:
    """Compares the digests of the transferred content at both ends."""
    sent, differ = DIGEST, []
    assert len(CONTENT) == SIZE
    for who, client in clients.items():
        for kind, port in PORTS.items():
            ways = zip(("down", "up"), client.ask(f"digests('{client.host}', {port})"))
            differ += [f"{kind} {way} {who}" for way, digest in ways if digest != sent]
    count = 2 * len(PORTS) * len(clients)
    return "64 MiB, SHA-256 at both ends", f"differs: {', '.join(differ)}" if differ else f"the same, {count} of {count}"


def verdict(holds: bool) -> str:
    return "holds" if holds else "**does not hold**"


def added(table: Table) -> list[Figure]:
    found = []
    for line, reference in table.pairs():
        more = line.p50 - reference.p50
        bound = f"at most {ADDED_MS_MAX:g} ms: {verdict(more <= ADDED_MS_MAX)}"
        found.append((f"{line.name}: longer, p50", f"{more:.2f} ms ({bound})"))
    return found


def throughput(table: Table) -> list[Figure]:
    found = []
    for line, reference in table.pairs():
        part, speed = reference.p50 / line.p50, SIZE / 1e3 / line.p50
        bound = f"at least {THROUGHPUT_MIN:g}: {verdict(part >= THROUGHPUT_MIN)}"
        found.append((f"{line.name}: throughput", f"{speed:.0f} MB/s, {part:.2f} of direct ({bound})"))
    return found


def measure(options: argparse.Namespace) -> dict[str, Any]:
    users: dict[str, int | None] = {"as this user" if options.uid is None else "as root": None}
    if options.uid is not None:
        users[f"as uid {options.uid}"] = options.uid
    servers = {who: Server(options, uid) for who, uid in users.items()}
    direct = Direct(options.python)
    try:
        for server in servers.values():
            server.until_warm()
        clients: dict[str, Any] = {"direct": direct, **{who: Inside(server) for who, server in servers.items()}}
        content = same(clients)
        load = [os.getloadavg()[0]]
        connecting = connections(clients, options.runs)
        load.append(os.getloadavg()[0])
        carrying = carried(clients)
        load.append(os.getloadavg()[0])
        calling = calls(servers, options.runs)
    finally:
        direct.close()
        for server in servers.values():
            server.close()
    tables = (connecting, carrying, calling)
    figures = [content, *added(connecting), *throughput(carrying), *added(calling)]
    figures.append(("load of the machine before each part", ", ".join(f"{part:.1f}" for part in load)))
    return {
        "lines": [line.as_json() for table in tables for line in table.lines.values()],
        "figures": [{"what": what, "figure": figure} for what, figure in figures],
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--python", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--uid", type=int, help="of a second server; needs root")
    options = parser.parse_args()
    words = [sys.executable, str(Path(__file__).with_name("bench_hosts.py")), options.scratch, NAME, ADDRESS]
    hosts = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert hosts.stdout and hosts.stdout.readline() == "ready\n", "the hosts did not come up"
        print(json.dumps(measure(options)))
    finally:
        hosts.communicate()


if __name__ == "__main__":
    main()
