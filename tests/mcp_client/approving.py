"""Approvals of hosts, through the official client and its user."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from typing import Any

import mcp.types
from connection import Url, connected
from mcp import StdioServerParameters
from server import Server
from stories import equal, holds


class User:
    """The user of the client: records each dialogue and gives the next answer."""

    def __init__(self, *answers: tuple[str, dict[str, Any] | None]) -> None:
        self._answers = list(answers)
        self.seen: list[str] = []
        self.offered: list[list[str]] = []

    async def __call__(self, _context: Any, params: Any) -> mcp.types.ElicitResult:
        plain = params.model_dump(mode="json", by_alias=True)
        self.seen.append(plain["message"])
        self.offered.append(plain["requestedSchema"]["properties"]["decision"]["enum"])
        action, content = self._answers.pop(0)
        return mcp.types.ElicitResult(action=action, content=content)


async def a_user_approves_or_denies_an_elicitation(server: Server, era: str) -> None:
    await asked(server.parameters(), server, era)


async def an_operator_decides_an_elicitation_over_http(server: Server, era: str) -> None:
    with server.over_http() as url:
        await asked(url, server, era)


async def asked(where: StdioServerParameters | Url, server: Server, era: str) -> None:
    user = User(("accept", {"decision": "namespace"}), ("decline", None), ("accept", {"decision": "deny"}), ("cancel", None))
    async with connected(where, era, server.log, user) as connection:
        asked = {"domain": "docs.example.com", "reason": "to read\nthem"}
        answer = await connection.call("request_egress", asked)
        assert answer.structured is not None and not answer.is_error, answer.texts
        equal(answer.structured["approved"], True)
        equal(answer.structured["scope"], "namespace")
        holds(answer.structured["decided_by"], "a person, asked by ")
        holds(user.seen[0], "\n  host: docs.example.com\n  ports: 80, 443\n")
        holds(user.seen[0], 'reason: "to read\\u{a}them"')
        equal(user.offered[0], ["deny", "once", "namespace"])
        again = await connection.call("request_egress", asked)
        equal(again.structured["approved"], True)
        equal(len(user.seen), 1)
        for number in range(3):
            answer = await connection.call("request_egress", {"domain": f"h{number}.example.com"})
            equal((answer.is_error, answer.structured["approved"]), (False, False))
        equal(len(user.seen), 4)


async def a_user_can_approve_a_host_for_the_session(server: Server, era: str) -> None:
    user = User(("accept", {"decision": "session"}))
    async with connected(server.parameters(), era, server.log, user) as connection:
        session = (await connection.call("create_session", {"language": "shell"})).structured["session_id"]
        answer = await connection.call("request_egress", {"domain": "a.example.com", "session_id": session})
        equal((answer.structured["approved"], answer.structured["scope"]), (True, "session"))
        equal(user.offered[0], ["deny", "once", "session", "namespace"])


@contextlib.contextmanager
def a_host_of_ours() -> Iterator[tuple[int, int]]:
    """Starts a DNS server that resolves every name to loopback, and a TCP server that greets; yields their ports."""
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 0))
    greeter = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                query, who = names.recvfrom(4096)
                if not query:
                    return  # the socket is shut down
                end = query.index(b"\0", 12) + 5
                found = query[end - 4 : end - 2] == b"\0\1"
                head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, int(found), 0, 0)
                record = b"\xc0\x0c" + struct.pack(">HHIH4B", 1, 1, 0, 4, 127, 0, 0, 1)
                names.sendto(head + query[12:end] + (record if found else b""), who)

    def greet() -> None:
        with contextlib.suppress(OSError):
            while True:
                with greeter.accept()[0] as guest:
                    guest.sendall(b"hello " + guest.recv(4096))

    for serve in (answer, greet):
        threading.Thread(target=serve, daemon=True).start()
    try:
        yield names.getsockname()[1], greeter.getsockname()[1]
    finally:
        for served in (names, greeter):
            with contextlib.suppress(OSError):
                served.shutdown(socket.SHUT_RDWR)
            served.close()


async def a_connection_held_for_approval_continues_after_approval(server: Server, era: str) -> None:
    user = User(("accept", {"decision": "once"}))
    with a_host_of_ours() as (names, port):
        # The rule is for another host; it opens a listener for the port.
        settings = {
            "egress_on_denied": "ask",
            "egress_ask_seconds": "20" if era == "handshake" else "1",
            "egress_allow": f"other.test:{port}",
            "egress_private": f"asked.test:{port}",
            "egress_resolvers": f"127.0.0.1:{names}",
        }
        code = f"""
import socket
connection = socket.create_connection(("asked.test", {port}), timeout=30)
connection.sendall(b"over one connection")
connection.recv(100).decode()
"""
        async with connected(server.parameters(**settings), era, server.log, user) as connection:
            answer = await connection.call("execute_code", {"code": code})
            if era == "handshake":
                equal(answer.structured["result"], "hello over one connection")
                equal((answer.structured["denials"], len(user.seen)), ([], 1))
                holds(user.seen[0], f"\n  host: asked.test\n  ports: {port}\n")
            else:
                # In this era, a question would be the result of the call, so the request goes to the operator,
                # who does not answer here.
                equal((answer.structured["success"], user.seen), (False, []))
                holds(answer.structured["denials"][0]["what"], "asked, and not answered within 1 s")


OWN = [
    a_connection_held_for_approval_continues_after_approval,
    a_user_approves_or_denies_an_elicitation,
    an_operator_decides_an_elicitation_over_http,
    a_user_can_approve_a_host_for_the_session,
]
