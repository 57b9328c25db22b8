"""Restarts a container for an agent: requested by the official client, approved once in a terminal, run once.

    python restarting.py --server PATH --socket PATH

The socket is that of a real engine with a running container `web`; the `docker` command is installed.
"""

from __future__ import annotations

import argparse
import os
import pty
import select
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

import anyio
from connection import ERAS, Answer, Connection, connected
from server import Server
from stories import equal, holds

COMMAND = "docker restart web"
RULES = """
programs:
  - program: docker
    why: looks after the containers of this machine
    before: [--config, /nonexistent, --host, 'unix://{socket}']
    effect: {{socket: {socket}, user: root}}
    forms:
      - rule: ps
        words: [ps]
        match: [docker ps]
        refuse: [docker restart web]
"""
PATIENCE = 60
#: Seconds after which the answer is typed again: answers faster than a person can read are ignored (watch.rs).
AGAIN = 0.5


class Terminal:
    """`ringfence approvals watch` in a terminal, and its user."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._process = subprocess.Popen(words, env=environment, stdin=slave, stdout=slave, stderr=slave)
        os.close(slave)
        self.shown = ""

    def read(self, seconds: float) -> None:
        if select.select([self._master], [], [], seconds)[0]:
            self.shown += os.read(self._master, 1 << 16).decode(errors="replace")

    def answer(self, word: str) -> None:
        """Waits for a question, and types the word until it is accepted."""
        deadline = time.monotonic() + PATIENCE
        while "allow it?" not in self.shown:
            assert time.monotonic() < deadline, self.shown
            self.read(1)
        while "approved" not in self.shown.rpartition("allow it?")[2]:
            assert time.monotonic() < deadline, self.shown
            os.write(self._master, f"{word}\n".encode())
            self.read(AGAIN)

    def close(self) -> None:
        self._process.terminate()
        self._process.wait()
        os.close(self._master)


def restarts(socket: str, since: str) -> int:
    """Number of restarts of the container since then, from the events of the engine."""
    docker = ["/usr/bin/docker", "-H", f"unix://{socket}"]
    account = ["events", "--since", since, "--until", f"{time.time():.9f}", "--filter", "event=restart", "--filter", "container=web"]
    told = subprocess.run([*docker, *account], check=True, capture_output=True, text=True).stdout
    return len(told.splitlines())


def refused(answer: Answer) -> dict[str, Any]:
    assert answer.is_error and answer.structured is not None, answer
    equal(answer.structured["code"], "policy_denied")
    return answer.structured


async def restarted_once(connection: Connection, terminal: Terminal, socket: str) -> None:
    since = f"{time.time():.9f}"
    holds(refused(await connection.call("host_exec", {"command": COMMAND}))["hint"], "request_host_access")
    equal(restarts(socket, since), 0)
    answers: list[Answer] = []

    async def ask() -> None:
        answers.append(await connection.call("request_host_access", {"pattern": COMMAND, "reason": "it hangs"}))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await anyio.to_thread.run_sync(terminal.answer, "y")
    (asked,) = answers
    assert asked.structured is not None and not asked.is_error, asked
    assert asked.structured["approved"], (asked.structured, terminal.shown)
    for wanted in (f"command: {COMMAND}", "it hangs", "allow it? [y: once, N: no] "):
        holds(terminal.shown, wanted)
    # The approval alone restarts nothing.
    equal(restarts(socket, since), 0)
    ran = await connection.call("host_exec", {"command": COMMAND})
    assert ran.structured is not None and not ran.is_error, ran
    equal((ran.structured["exit_code"], ran.structured["stdout"]), (0, "web\n"))
    equal(restarts(socket, since), 1)
    refused(await connection.call("host_exec", {"command": COMMAND}))
    equal(restarts(socket, since), 1)


async def story(binary: Path, socket: str, era: str, rules: str) -> None:
    server = Server(binary, None)
    try:
        parameters = server.parameters(host_enabled="true", host_rules=rules, toolsets="all", warm_ready="0")
        terminal = Terminal([str(binary), "approvals", "watch"], {**(parameters.env or {}), "TERM": "xterm"})
        try:
            async with connected(parameters, era, server.log) as connection:
                await restarted_once(connection, terminal, socket)
        finally:
            terminal.close()
    finally:
        server.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", type=Path, required=True)
    parser.add_argument("--socket", required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        rules = Path(directory, "host.yaml")
        rules.write_text(RULES.format(socket=arguments.socket))
        for era in ERAS:
            anyio.run(story, arguments.server, arguments.socket, era, str(rules))
            print(f"ok     {COMMAND}: asked, approved in a terminal, done once ({era})", flush=True)
    print(f"{len(ERAS)} passed, 0 failed")


main()
