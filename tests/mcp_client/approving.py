"""What happens when a model asks for a host, told through the official client and its user."""

from __future__ import annotations

from typing import Any

import mcp.types
from connection import connected
from server import Server
from stories import equal, holds


class User:
    """Whoever sits before the client: sees a dialogue, and gives the next answer."""

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


async def a_user_is_asked_and_says_yes_or_no(server: Server, era: str) -> None:
    user = User(("accept", {"decision": "namespace"}), ("decline", None), ("accept", {"decision": "deny"}), ("cancel", None))
    async with connected(server.parameters(), era, server.log, user) as connection:
        asked = {"domain": "docs.example.com", "reason": "to read\nthem"}
        answer = await connection.call("request_egress", asked)
        assert answer.structured is not None and not answer.is_error, answer.texts
        equal(answer.structured["approved"], True)
        equal(answer.structured["scope"], "namespace")
        holds(answer.structured["decided_by"], "a person, asked by mcp ")
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


async def a_user_who_is_asked_for_a_session_can_choose_it(server: Server, era: str) -> None:
    user = User(("accept", {"decision": "session"}))
    async with connected(server.parameters(), era, server.log, user) as connection:
        session = (await connection.call("create_session", {"language": "shell"})).structured["session_id"]
        answer = await connection.call("request_egress", {"domain": "a.example.com", "session_id": session})
        equal((answer.structured["approved"], answer.structured["scope"]), (True, "session"))
        equal(user.offered[0], ["deny", "once", "session", "namespace"])


OWN = [
    a_user_is_asked_and_says_yes_or_no,
    a_user_who_is_asked_for_a_session_can_choose_it,
]
