"""One interface to the two versions of the client library.

`mcp` 1.30 speaks the handshake revisions of the protocol with `ClientSession`; 2.3 has `Client`, which speaks those and
the stateless revision of 2026. The stories are written once, against this module.
"""

from __future__ import annotations

import base64
import contextlib
import importlib.metadata
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TextIO

import anyio
import mcp.types
from mcp import ClientSession, StdioServerParameters, stdio_client
from pydantic import AnyUrl

VERSION = importlib.metadata.version("mcp")
STATELESS = "2026-07-28"
#: The protocol eras that the installed version supports.
ERAS = ["handshake"] if VERSION.startswith("1.") else ["handshake", "stateless"]

OnProgress = Callable[[float, "float | None", "str | None"], Awaitable[None]]


@dataclass
class Answer:
    """The answer of a tool."""

    is_error: bool
    structured: dict[str, Any] | None
    texts: list[str]
    #: MIME type and content of each image.
    images: list[tuple[str, bytes]]


@dataclass
class Tool:
    """A tool as listed by `tools/list`."""

    name: str
    description: str
    input_schema: dict[str, Any]
    output_schema: dict[str, Any] | None
    annotations: dict[str, Any]


@dataclass
class Call:
    """A sent call, which can be cancelled."""

    progress: list[str] = field(default_factory=list)
    heard: anyio.Event = field(default_factory=anyio.Event)
    _scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    _cancel: Callable[[], Awaitable[None]] | None = None

    async def listen(self, _progress: float, _total: float | None, message: str | None) -> None:
        self.progress.append(message or "")
        self.heard.set()

    async def cancel(self) -> None:
        if self._cancel is not None:
            await self._cancel()
        self._scope.cancel()


class Connection:
    """A client that is connected to a server."""

    def __init__(self, client: Any, session: ClientSession, revision: str) -> None:
        self._client = client
        self._session = session
        self.revision = revision

    async def tools(self) -> list[Tool]:
        listed = await self._client.list_tools()
        return [
            Tool(
                name=tool["name"],
                description=tool.get("description", ""),
                input_schema=tool["inputSchema"],
                output_schema=tool.get("outputSchema"),
                annotations=tool.get("annotations", {}),
            )
            for tool in (tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listed.tools)
        ]

    async def call(self, name: str, arguments: dict[str, Any], on_progress: OnProgress | None = None) -> Answer:
        """Calls a tool. The library itself checks the structured content against the tool's output schema."""
        result = await self._client.call_tool(name, arguments, progress_callback=on_progress)
        plain = result.model_dump(mode="json", by_alias=True, exclude_none=False)
        texts = [block["text"] for block in plain["content"] if block["type"] == "text"]
        images = [
            (block["mimeType"], base64.b64decode(block["data"], validate=True))
            for block in plain["content"]
            if block["type"] == "image"
        ]
        structured = plain.get("structuredContent")
        if plain["isError"]:
            # A refusal is not a result of the tool, so its fields are in `_meta`.
            assert structured is None, structured
            structured = plain["_meta"]["io.ringfence/error"]
        return Answer(bool(plain["isError"]), structured, texts, images)

    async def read(self, uri: str) -> bytes:
        """Returns the content of a resource."""
        address = AnyUrl(uri) if VERSION.startswith("1.") else uri
        result = (await self._client.read_resource(address)).model_dump(mode="json", by_alias=True)
        content = result["contents"][0]
        return content["text"].encode() if content.get("text") is not None else base64.b64decode(content["blob"])

    @contextlib.asynccontextmanager
    async def begun(self, name: str, arguments: dict[str, Any]) -> AsyncIterator[Call]:
        """A call in the background; leaving the block abandons it."""
        call = Call()
        if VERSION.startswith("1."):
            call._cancel = self._cancellation(self._session._request_id)

        async def run() -> None:
            with call._scope:
                await self.call(name, arguments, call.listen)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run)
            await anyio.lowlevel.checkpoint()
            try:
                yield call
            finally:
                tasks.cancel_scope.cancel()

    def _cancellation(self, request: int) -> Callable[[], Awaitable[None]]:
        """With 1.30, the caller sends the cancellation; 2.3 sends it when a call is abandoned."""

        async def cancel() -> None:
            params = mcp.types.CancelledNotificationParams(requestId=request)
            notice = mcp.types.CancelledNotification(method="notifications/cancelled", params=params)
            await self._session.send_notification(mcp.types.ClientNotification(notice))

        return cancel


@dataclass(frozen=True)
class Url:
    """The address of a server, and the token for it."""

    url: str
    token: str


def transport(server: StdioServerParameters | Url, log: TextIO) -> Any:
    if isinstance(server, StdioServerParameters):
        return stdio_client(server, errlog=log)
    import mcp.client.streamable_http as http

    # Since 2.0, the HTTP client's library has another name.
    library = getattr(http, "httpx2", None) or http.httpx
    client = library.AsyncClient(headers={"Authorization": f"Bearer {server.token}"}, timeout=60)
    return http.streamable_http_client(server.url, http_client=client)


@contextlib.asynccontextmanager
async def connected(
    parameters: StdioServerParameters | Url, era: str, log: TextIO, user: Any = None
) -> AsyncIterator[Connection]:
    """Starts the server or connects to it, with or without a handshake, depending on the era. `user` answers
    elicitations."""
    if VERSION.startswith("1."):
        async with (
            transport(parameters, log) as (read, write, *_),
            ClientSession(read, write, elicitation_callback=user) as session,
        ):
            hello = await session.initialize()
            yield Connection(session, session, hello.protocolVersion)
        return
    from mcp import Client

    mode = "auto" if era == "stateless" else "legacy"
    async with Client(transport(parameters, log), mode=mode, elicitation_callback=user) as client:
        yield Connection(client, client.session, client.protocol_version)
