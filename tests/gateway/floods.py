"""Floods against the server over HTTP, while the calls of another client are timed.

    python floods.py --server PATH

Each flood runs in a process of its own, at a bounded rate, until it is stopped; it counts its actions, and a flood with
fewer than 20 is a failure. The median time of a call may be at most twice that without a flood, and the server is
unchanged afterwards.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import resource
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path

CALLS = 60
SLOWER_MAX = 2.0
PATIENCE = 30
#: Maximum number of open connections.
OPEN_MAX = 10_000
TOKENS: dict[str, str] = {}
PLACE = ("127.0.0.1", 0)

HEAD = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
REVISION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": REVISION,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "floods", "version": "1"},
}


def connected() -> socket.socket:
    return socket.create_connection(PLACE, timeout=PATIENCE)


def request(name: str, method: str, params: dict[str, object]) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}).encode()
    tool = f"Mcp-Name: {params['name']}\r\n" if "name" in params else ""
    head = f"{HEAD}Authorization: Bearer {TOKENS[name]}\r\nMCP-Protocol-Version: {REVISION}\r\nMcp-Method: {method}\r\n{tool}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else 0


class Caller:
    """Another client, on a connection of its own."""

    def __init__(self) -> None:
        self.socket = connected()
        self.words = request("somebody", "tools/call", {"name": "execute_code", "arguments": {"code": "print(1)"}})

    def call(self) -> float:
        begun = time.perf_counter()
        self.socket.sendall(self.words)
        answer = b""
        while b'"stdout":"1\\n"' not in answer:
            received = self.socket.recv(1 << 16)
            answer += received
            if not received or status_of(answer) not in (0, 200):
                raise RuntimeError(f"no result: {answer!r}")
        return (time.perf_counter() - begun) * 1000

    def median(self) -> float:
        times = []
        for _ in range(CALLS):
            # Time for the next sandbox to become ready.
            time.sleep(0.03)
            times.append(self.call())
        return statistics.median(times)


# Floods. Each step acts once and yields the number of successful actions.


def half_open() -> Iterator[int]:
    """Connections with no request or half a head, up to `OPEN_MAX` at a time; the oldest are closed."""
    halves = [b"", b"P", HEAD.encode(), b"PRI * HTTP/2.0\r\n\r\nSM"]
    there: list[socket.socket] = []
    while True:
        with contextlib.suppress(OSError):
            one = connected()
            one.sendall(halves[len(there) % len(halves)])
            there.append(one)
        if len(there) > OPEN_MAX:
            there.pop(0).close()
        yield 1


def wrong_tokens() -> Iterator[int]:
    one = connected()
    wrong = f"{HEAD}Authorization: Bearer {'x' * 43}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    while True:
        one.sendall(wrong)
        answer = one.recv(1 << 16)
        if status_of(answer) != 401:
            one = connected()
        yield int(status_of(answer) == 401)


def large_bodies() -> Iterator[int]:
    """Announces a body of 1 GB and sends up to 4 MiB of it, as long as the server reads."""
    head = f"{HEAD}Authorization: Bearer {TOKENS['flood']}\r\nContent-Length: {1 << 30}\r\n\r\n".encode()
    while True:
        with contextlib.suppress(OSError), connected() as one:
            one.settimeout(1)
            one.sendall(head)
            for _ in range(64):
                one.sendall(bytes(1 << 16))
        yield 1


def deep_bodies() -> Iterator[int]:
    one = connected()
    body = b"[" * 500_000
    words = f"{HEAD}Authorization: Bearer {TOKENS['flood']}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body
    while True:
        with contextlib.suppress(OSError):
            one.sendall(words)
            refused = 400 <= status_of(one.recv(1 << 16)) < 500
            yield int(refused)
            if refused:
                continue
        one = connected()


def silent_readers() -> Iterator[int]:
    """Requests many large answers and reads none of them."""
    there: list[socket.socket] = []
    words = request("flood", "tools/list", {}) * 20
    while True:
        with contextlib.suppress(OSError):
            one = connected()
            one.settimeout(0.2)
            there.append(one)
            one.sendall(words)
        if len(there) > 200:
            there.pop(0).close()
        yield 1


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """An HTTP/2 frame (RFC 9113, section 4.1)."""
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"")
#: POST, http, /mcp and a host, without Huffman coding (RFC 7541, appendix A).
FIELDS = b"\x83\x86\x04\x04/mcp\x01\x09localhost"
DATA, HEADERS, RST_STREAM, CONTINUATION = 0, 1, 3, 9
END_HEADERS, END_STREAM = 4, 1


def rapid_reset() -> Iterator[int]:
    """CVE-2023-44487: streams that are reset as soon as they are opened."""
    while True:
        with contextlib.suppress(OSError), connected() as one:
            one.sendall(PREFACE)
            for stream in range(1, 2001, 2):
                cancelled = frame(HEADERS, END_HEADERS, stream, FIELDS) + frame(RST_STREAM, 0, stream, struct.pack(">I", 8))
                one.sendall(cancelled)
                yield 1


def continuation() -> Iterator[int]:
    """CVE-2024-27316 and others: a header list without an end."""
    while True:
        with contextlib.suppress(OSError), connected() as one:
            one.sendall(PREFACE + frame(HEADERS, END_STREAM, 1, FIELDS))
            for _ in range(1000):
                one.sendall(frame(CONTINUATION, 0, 1, b"\x00\x04more\x7f\x80\x01" + b"x" * 255))
                yield 1


#: The floods, with the maximum actions per second.
FLOODS: dict[str, tuple[Callable[[], Iterator[int]], int]] = {
    "half-open connections": (half_open, 5000),
    "wrong tokens": (wrong_tokens, 500),
    "bodies of 1 GB": (large_bodies, 50),
    "bodies 500,000 deep": (deep_bodies, 50),
    "readers that stop": (silent_readers, 10),
    "HTTP/2 rapid reset": (rapid_reset, 2000),
    "HTTP/2 CONTINUATION": (continuation, 2000),
}


def flood(name: str, done: Synchronized[int]) -> None:
    # A remote attacker would not use the processors of this machine.
    os.nice(10)
    act, rate = FLOODS[name]
    begun = time.monotonic()
    for number, count in enumerate(act()):
        with done.get_lock():
            done.value += count
        ahead = number / rate - (time.monotonic() - begun)
        if ahead > 0:
            time.sleep(ahead)


def tried(name: str) -> str | None:
    """Runs one flood. Returns the failure, or None."""
    done = multiprocessing.Value("q", 0)
    caller = Caller()
    caller.call()
    quiet = caller.median()
    flooding = multiprocessing.Process(target=flood, args=(name, done), daemon=True)
    flooding.start()
    try:
        deadline = time.monotonic() + PATIENCE
        while done.value < 20:
            if time.monotonic() > deadline or not flooding.is_alive():
                return f"the flood did {done.value} times what it does"
            time.sleep(0.01)
        flooded = caller.median()
    finally:
        flooding.kill()
        flooding.join()
    after = Caller().median()
    # The speed of the machine varies, so the slower of the two quiet times is the reference.
    ratio = flooded / max(quiet, after)
    print(f"{name:26} {done.value:8} {quiet:8.1f} {flooded:8.1f} {after:8.1f} {ratio:8.2f}", flush=True)
    return f"calls take {ratio:.2f} times as long" if ratio > SLOWER_MAX else None


def serve(server: str, state: str) -> subprocess.Popen[bytes]:
    env = {"PATH": os.environ["PATH"], "HOME": state, "RINGFENCE_STATE_DIR": f"{state}/state", "RINGFENCE_LOG": "off"}
    for name in ("somebody", "flood"):
        create = [server, "token", "create", name]
        TOKENS[name] = subprocess.run(create, env=env, check=True, capture_output=True, text=True).stdout.strip()
    global PLACE
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        PLACE = free.getsockname()
    child = subprocess.Popen([server, "serve", "--transport", "http", "--port", str(PLACE[1])], env=env)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with contextlib.suppress(ConnectionRefusedError), connected():
            return child
        time.sleep(0.02)
    raise RuntimeError("the server does not listen")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", required=True)
    server = parser.parse_args().server
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 2 * OPEN_MAX), most))
    failed = 0
    print(f"{'':26} {'times':>8} {'quiet':>8} {'flooded':>8} {'after':>8} {'ratio':>8}   (p50 of a call, ms)")
    with tempfile.TemporaryDirectory(prefix="ringfence-floods-") as state:
        child = serve(server, state)
        before = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) >> 8
        try:
            for name in FLOODS:
                if (wrong := tried(name)) is not None:
                    failed += 1
                    print(f"FAILED {name}: {wrong}", flush=True)
            now = int(Path(f"/proc/{child.pid}/statm").read_text().split()[1]) >> 8
            print(f"the server's memory: {before} MiB before, {now} MiB after")
        finally:
            child.terminate()
            child.wait()
    print(f"{len(FLOODS) - failed} passed, {failed} failed")
    return 0 if failed == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
