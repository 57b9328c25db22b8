"""Calls longer than the timeout of their clients: no output is lost."""

from __future__ import annotations

import uuid
from typing import Any

import anyio
from connection import Connection, connected
from server import Server
from stories import equal, facts, holds

#: Runs until a file `go` exists in its namespace's workspace.
WAITING = (
    "import os, time\n"
    "print('first', flush=True)\n"
    "while not os.path.exists('go'):\n"
    "    time.sleep(0.02)\n"
    "print('last')\n"
    "6 * 7"
)


def waiting(namespace: str) -> dict[str, Any]:
    return {"code": WAITING, "workspace": "namespace", "namespace": namespace}


async def ended(connection: Connection, namespace: str, **named: Any) -> dict[str, Any]:
    with anyio.fail_after(50):
        while True:
            told = await facts(connection, "get_execution", namespace=namespace, wait_seconds=25, **named)
            if told.get("running") is not True:
                return told


async def a_long_call_is_answered_before_its_client_times_out(server: Server, era: str) -> None:
    namespace = uuid.uuid4().hex
    async with connected(server.parameters(calls_detach_after_seconds="1"), era, server.log) as connection:
        # The library checks each answer against the tool's output schema.
        answer = await connection.call("execute_code", waiting(namespace))
        begun = answer.structured
        equal((begun["running"], begun["stdout_next"]), (True, len(begun["stdout"])))
        holds("".join(answer.texts), f'get_execution {{"execution_id": "{begun["execution_id"]}"')
        await facts(connection, "put_file", path="go", text="", namespace=namespace)
        offsets = {"stdout_from": begun["stdout_next"], "stderr_from": begun["stderr_next"]}
        rest = await ended(connection, namespace, execution_id=begun["execution_id"], **offsets)
        equal((begun["stdout"] + rest["stdout"], rest["result"], rest["running"]), ("first\nlast\n", 42, False))
        whole = await ended(connection, namespace, execution_id=begun["execution_id"])
        equal((whole["stdout"], whole["result"], whole["exit_code"]), ("first\nlast\n", 42, 0))


async def an_abandoned_call_runs_on_if_the_operator_allows_it(server: Server, era: str) -> None:
    namespace = uuid.uuid4().hex
    async with connected(server.parameters(calls_on_cancel="detach"), era, server.log) as connection:

        async def listed() -> list[dict[str, Any]]:
            return (await facts(connection, "list_executions", namespace=namespace))["executions"]

        async with connection.begun("execute_code", waiting(namespace)) as call:
            with anyio.fail_after(20):
                while not any("first" in text for text in call.progress):
                    await call.heard.wait()
                    call.heard = anyio.Event()
            await call.cancel()
        (kept,) = await listed()
        equal(kept["verdict"], "running")
        await facts(connection, "put_file", path="go", text="", namespace=namespace)
        result = await ended(connection, namespace, execution_id=kept["execution_id"])
        equal((result["stdout"], result["result"]), ("first\nlast\n", 42))


OWN = [
    a_long_call_is_answered_before_its_client_times_out,
    an_abandoned_call_runs_on_if_the_operator_allows_it,
]
