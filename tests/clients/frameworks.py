"""Tests one Python client against the server: `frameworks.py CLIENT -- SERVER WORDS...`, or over HTTP
`frameworks.py CLIENT -- URL TOKEN`, prints a JSON line per cell.

There is no model: the converters of the client run, and tools are called as a model would call them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

CLIENT, SERVER = sys.argv[1], sys.argv[3:]
CALLS = json.loads(Path(os.environ.get("RINGFENCE_CALLS", Path(__file__).with_name("calls.json"))).read_text())
#: Timeout in seconds for clients without a timeout of their own.
PATIENCE = 60
HOME = tempfile.TemporaryDirectory(prefix="ringfence-client-")
ENVIRONMENT = {"HOME": HOME.name, "PATH": os.environ["PATH"], "RINGFENCE_STATE_DIR": f"{HOME.name}/state"}
ENVIRONMENT["RINGFENCE_LOG"] = "error"
TOOL = "execute_code"
IS_HTTP = SERVER[0].startswith("http")
HEADERS = {"Authorization": f"Bearer {SERVER[1]}"} if IS_HTTP else {}

#: Returns the tools as the client passes them to a model; calls a tool and returns the result for the model.
List = Callable[[], Awaitable[Any]]
Call = Callable[[dict[str, Any]], Awaitable[Any]]


def plain(value: Any) -> Any:
    """Converts a pydantic model, or any other class, for JSON."""
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else str(value)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, default=plain)


def official_transport() -> Any:
    from mcp import StdioServerParameters, stdio_client

    if not IS_HTTP:
        return stdio_client(StdioServerParameters(command=SERVER[0], args=SERVER[1:], env=ENVIRONMENT))
    import mcp.client.streamable_http as http

    # Since 2.0, the HTTP client's library has another name.
    library = getattr(http, "httpx2", None) or http.httpx
    return http.streamable_http_client(SERVER[0], http_client=library.AsyncClient(headers=HEADERS, timeout=60))


@contextlib.asynccontextmanager
async def official() -> AsyncIterator[tuple[List, Call]]:
    from mcp import ClientSession

    # The unit of the timeout changed in version 2.
    patience = PATIENCE if version("mcp").startswith("2.") else timedelta(seconds=PATIENCE)
    async with official_transport() as (read, write, *_), ClientSession(read, write, patience) as session:
        await session.initialize()

        async def call(arguments: dict[str, Any]) -> Any:
            return await session.call_tool(TOOL, arguments)

        yield session.list_tools, call


#: Runs until it is cancelled.
ENDLESS = "import time\nprint('first', flush=True)\nwhile True: time.sleep(0.02)"
#: Features of a client beside calls, and the expected words of their results.
FEATURES: dict[str, tuple[Callable[[], Awaitable[Any]], list[str]]] = {}


@contextlib.asynccontextmanager
async def fastmcp() -> AsyncIterator[tuple[List, Call]]:
    from fastmcp import Client
    from fastmcp.client.elicitation import ElicitResult
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    stdio = lambda: StdioTransport(SERVER[0], SERVER[1:], env=ENVIRONMENT)  # noqa: E731
    http = lambda: StreamableHttpTransport(SERVER[0], headers=HEADERS)  # noqa: E731
    questions: list[str] = []

    async def answer(message: str, *_: Any) -> Any:
        questions.append(message)
        return ElicitResult(action="accept", content={"decision": "once"})

    async with Client(http() if IS_HTTP else stdio(), timeout=PATIENCE, elicitation_handler=answer) as client:

        async def call(arguments: dict[str, Any]) -> Any:
            result = await client.call_tool(TOOL, arguments, raise_on_error=False)
            return {"content": result.content, "data": result.data, "structured": result.structured_content}

        async def facts(name: str, **arguments: Any) -> dict[str, Any]:
            return (await client.call_tool(name, arguments)).structured_content

        async def cancelled() -> Any:
            heard: list[str] = []
            first = asyncio.Event()

            async def listen(_progress: float, _total: float | None, message: str | None) -> None:
                heard.append(message or "")
                if "first" in heard[-1]:
                    first.set()

            task = asyncio.create_task(client.call_tool(TOOL, {"code": ENDLESS}, progress_handler=listen))
            await asyncio.wait_for(first.wait(), PATIENCE)
            task.cancel()
            await asyncio.wait([task])
            # The server receives the cancellation in a separate message.
            until = time.monotonic() + PATIENCE
            while time.monotonic() < until:
                (latest,) = (await facts("list_executions", limit=1))["executions"]
                if latest["verdict"] != "running":
                    return [heard, latest["verdict"]]
            raise RuntimeError("the program still runs")

        async def asked() -> Any:
            told = await facts("request_egress", domain="docs.example.com", reason="to read")
            return [f"approved: {told['approved']}", questions]

        FEATURES["resource"] = (lambda: client.read_resource("sandbox://status"), ["queue"])
        FEATURES["progress, cancel"] = (cancelled, ["first", "cancelled"])
        FEATURES["question"] = (asked, ["approved: True", "docs.example.com"])
        yield client.list_tools, call


@contextlib.asynccontextmanager
async def langchain() -> AsyncIterator[tuple[List, Call]]:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    def model() -> Any:
        if CLIENT == "langchain-openai":
            from langchain_openai import ChatOpenAI

            return ChatOpenAI(model="gpt-5", api_key="none")
        if CLIENT == "langchain-anthropic":
            from langchain_anthropic import ChatAnthropic

            return ChatAnthropic(model="claude-sonnet-4-5", api_key="none")
        from langchain_google_genai import ChatGoogleGenerativeAI

        return ChatGoogleGenerativeAI(model="gemini-2.5-pro", api_key="none")

    server = {"transport": "stdio", "command": SERVER[0], "args": SERVER[1:], "env": ENVIRONMENT}
    async with MultiServerMCPClient({"ringfence": server}).session("ringfence") as session:
        tools = await load_mcp_tools(session)

        async def convert() -> Any:
            converted = model().bind_tools(tools).kwargs["tools"]
            if CLIENT == "langchain-gemini":
                # This client converts only when it calls its model.
                from langchain_google_genai._function_utils import convert_to_genai_function_declarations

                return [plain(tool) for tool in convert_to_genai_function_declarations(converted)]
            return converted

        async def call(arguments: dict[str, Any]) -> Any:
            tool = next(tool for tool in tools if tool.name == TOOL)
            message = await tool.ainvoke({"name": TOOL, "args": arguments, "id": "1", "type": "tool_call"})
            return message.content

        yield convert, call


@contextlib.asynccontextmanager
async def openai_agents() -> AsyncIterator[tuple[List, Call]]:
    from agents import Agent, RunContextWrapper
    from agents.mcp import MCPServerStdio
    from agents.tool_context import ToolContext

    parameters = {"command": SERVER[0], "args": SERVER[1:], "env": ENVIRONMENT}
    async with MCPServerStdio(params=parameters) as server:
        context: RunContextWrapper[Any] = RunContextWrapper(context=None)
        agent = Agent(name="none", mcp_servers=[server], mcp_config={"convert_schemas_to_strict": True})
        tools = await agent.get_mcp_tools(context)

        async def convert() -> Any:
            return [[tool.name, tool.description, tool.params_json_schema] for tool in tools]

        async def call(arguments: dict[str, Any]) -> Any:
            tool = next(tool for tool in tools if tool.name == TOOL)
            words = json.dumps(arguments)
            inside = ToolContext(context=None, tool_name=TOOL, tool_call_id="1", tool_arguments=words)
            return await tool.on_invoke_tool(inside, words)

        yield convert, call


@contextlib.asynccontextmanager
async def pydantic_ai() -> AsyncIterator[tuple[List, Call]]:
    from fastmcp.client.transports import StdioTransport
    from pydantic_ai.exceptions import ModelRetry
    from pydantic_ai.mcp import MCPToolset
    from pydantic_ai.profiles.google import GoogleJsonSchemaTransformer
    from pydantic_ai.profiles.openai import OpenAIJsonSchemaTransformer

    transport = StdioTransport(SERVER[0], SERVER[1:], env=ENVIRONMENT)
    async with MCPToolset(transport) as toolset:

        async def convert() -> Any:
            tools = await toolset.list_tools()
            kinds = [OpenAIJsonSchemaTransformer, GoogleJsonSchemaTransformer]
            return [[tool.name, *(kind(tool.input_schema).walk() for kind in kinds)] for tool in tools]

        async def call(arguments: dict[str, Any]) -> Any:
            try:
                return await toolset.direct_call_tool(TOOL, arguments)
            except ModelRetry as told:
                return told.message

        yield convert, call


#: Messages of all loggers at level WARNING or above.
SAID: list[str] = []


def record(*words: Any, original: Any = logging.getLogRecordFactory(), **named: Any) -> logging.LogRecord:
    made = original(*words, **named)
    if made.levelno >= logging.WARNING:
        text = made.getMessage()
        # Google's converter warns about every closed object; the contract and OpenAI's strict mode need them closed.
        if text != "Key 'additionalProperties' is not supported in schema, ignoring":
            SAID.append(f"{made.name}: {text}")
    return made


async def cell(name: str, act: Callable[[], Awaitable[Any]], expected: list[str]) -> None:
    SAID.clear()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            text = text_of(await act())
            missing = [word for word in expected if word not in text and json.dumps(word)[1:-1] not in text]
            outcome = f"lacks {missing}: {text[:300]}" if missing else "ok"
        except Exception as error:  # noqa: BLE001: any exception of a client is a result
            text, outcome = "", f"{type(error).__name__}: {error}"[:500]
    said = SAID + [f"{warning.category.__name__}: {warning.message}" for warning in warned]
    print(json.dumps({"cell": name, "outcome": outcome, "bytes": len(text.encode()), "warnings": said}), flush=True)


async def main() -> None:
    connected = {"fastmcp": fastmcp, "openai-agents": openai_agents, "pydantic-ai": pydantic_ai, "mcp": official}
    async with connected.get(CLIENT, langchain)() as (tools, call):
        await cell("list", tools, [TOOL, "get_execution"])
        for name, (given, expected) in CALLS.items():
            several = given if isinstance(given, list) else [given]

            async def all_of(several: list[dict[str, Any]] = several) -> Any:
                return [await call(arguments) for arguments in several]

            await cell(name, all_of, expected)
        # Calls from RINGFENCE_CALLS run without the features.
        features = {} if "RINGFENCE_CALLS" in os.environ else FEATURES
        for name, (act, expected) in features.items():
            await cell(name, act, expected)


logging.setLogRecordFactory(record)
asyncio.run(main())
HOME.cleanup()
