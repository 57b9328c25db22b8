"""The server under test: its start, and its processes."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
from connection import Url
from mcp import StdioServerParameters

PLAIN_PATH = "/usr/local/bin:/usr/bin:/bin"


class Server:
    """A binary and its user. The home directory is empty, so that no configuration of this machine is read."""

    def __init__(self, binary: Path, uid: int | None, data_python: Path | None = None) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="ringfence-client-"))
        self.log = self._home.joinpath("server.log").open("w+", errors="replace")
        self.uid = uid
        if uid is None:
            self._command, self._arguments = str(binary), ["serve"]
            path = os.environ.get("PATH", PLAIN_PATH)
        else:
            # Another user cannot read the build directory, nor a home directory with interpreters.
            copy = self._home / "ringfence"
            shutil.copy(binary, copy)
            copy.chmod(0o755)
            os.chown(self._home, uid, uid)
            user = ["--reuid", str(uid), "--regid", str(uid), "--clear-groups", "--", str(copy), "serve"]
            self._command, self._arguments, path = "setpriv", user, PLAIN_PATH
        self._environment = {"HOME": str(self._home), "PATH": path, "CANARY": "of the server"}
        self._environment |= {
            "RINGFENCE_STATE_DIR": str(self._home / "state"),
            "RINGFENCE_VAULT_STORE": "env",
            "RINGFENCE_SECRET_DEFAULT_API_KEY": "hunter2-of-the-official-client",
        }
        self.has_data = data_python is not None
        if data_python is not None:
            self._environment["RINGFENCE_RUNTIMES_PYTHON"] = str(data_python.absolute())

    def parameters(self, **settings: str) -> StdioServerParameters:
        """The parameters of the server, with additional settings."""
        more = {f"RINGFENCE_{name.upper()}": value for name, value in settings.items()}
        return StdioServerParameters(
            command=self._command, args=self._arguments, env=self._environment | more, cwd=str(self._home)
        )

    @contextlib.contextmanager
    def over_http(self) -> Iterator[Url]:
        """The same server over HTTP, with an operator's token for all namespaces."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            place = free.getsockname()
        words = [self._command, *self._arguments]
        create = [*words[:-1], "token", "create", f"client-{place[1]}", "--namespace", "*", "--role", "operator"]
        made = subprocess.run(create, env=self._environment, check=True, capture_output=True, text=True)
        serve = [*words, "--transport", "http", "--port", str(place[1])]
        child = subprocess.Popen(serve, env=self._environment, cwd=self._home, stderr=self.log)
        try:
            for _ in range(1000):
                with contextlib.suppress(ConnectionRefusedError), socket.create_connection(place):
                    break
                time.sleep(0.02)
            yield Url(f"http://127.0.0.1:{place[1]}/mcp", made.stdout.strip())
        finally:
            child.terminate()
            child.wait()

    def close(self) -> None:
        self.log.close()
        shutil.rmtree(self._home, ignore_errors=True)


def command_lines() -> dict[int, str]:
    """Command lines of all visible processes; that of a process that has just ended is empty."""
    found: dict[int, str] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = entry.joinpath("cmdline").read_bytes()
            except OSError:
                continue
            found[int(entry.name)] = words.replace(b"\0", b" ").decode(errors="replace")
    return found


def with_word(word: str) -> list[int]:
    own = os.getpid()
    return [pid for pid, words in command_lines().items() if word in words and pid != own]


def children(parent: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                stat = entry.joinpath("stat").read_text(errors="replace")
            except OSError:
                continue
            if int(stat.rpartition(")")[2].split()[1]) == parent:
                found.append(int(entry.name))
    return found


def descendants(parent: int) -> list[int]:
    found = children(parent)
    for pid in found:
        found.extend(descendants(pid))
    return found


def alive(pid: int) -> bool:
    """True if the process runs; a zombie has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


async def until(condition, seconds: float) -> float:
    """Waits for a condition and returns the seconds that it took."""
    begun = time.monotonic()
    while not condition():
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"still not so after {seconds} s")
        await anyio.sleep(0.005)
    return time.monotonic() - begun


async def within_a_second(a_round) -> None:
    took = await a_round()
    assert took <= 1, f"{took} s"
