"""OAuth with the official Python client: `oauth.py HOW URL ISSUER [TOKEN]`.

HOW is `credentials`, `code`, or `step-up` from a token with too few scopes. Prints the output of a program, and the
scopes of the token.
"""

from __future__ import annotations

import asyncio
import sys
import urllib.parse
from typing import Any

import mcp.client.streamable_http as http
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.auth.extensions.client_credentials import ClientCredentialsOAuthProvider
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata, OAuthToken

HOW, URL, ISSUER, *TOKEN = sys.argv[1:]
CALLBACK = "http://127.0.0.1:9/callback"
# Since 2.0, the HTTP client's library has another name.
LIBRARY = getattr(http, "httpx2", None) or http.httpx
APP = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": "none", "grant_types": ["authorization_code"]}


class Kept:
    """Storage of the tokens and of the registered client."""

    tokens: Any = None
    client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client: Any) -> None:
        self.client = client


class Browser:
    """A person who consents."""

    answer: dict[str, list[str]]

    async def open(self, url: str) -> None:
        async with LIBRARY.AsyncClient() as browser:
            for _ in range(20):
                if url.startswith(CALLBACK):
                    self.answer = urllib.parse.parse_qs(urllib.parse.urlsplit(url).query)
                    return
                answer = await browser.get(url)
                url = urllib.parse.urljoin(url, answer.headers["location"])
        raise RuntimeError(f"no code, but {url}")

    async def code(self) -> Any:
        code, state = self.answer["code"][0], self.answer["state"][0]
        try:
            from mcp.shared.auth import AuthorizationCodeResult
        except ImportError:
            return code, state
        return AuthorizationCodeResult(code=code, state=state, iss=self.answer["iss"][0])


def provider(kept: Kept) -> Any:
    if HOW == "credentials":
        return ClientCredentialsOAuthProvider(URL, kept, "machine", "machine-secret", issuer=ISSUER)
    kept.client = OAuthClientInformationFull(client_id="app", issuer=ISSUER, **APP)
    if TOKEN:
        kept.tokens = OAuthToken(access_token=TOKEN[0], token_type="Bearer", expires_in=300, scope="ringfence:data")
    browser = Browser()
    return OAuthClientProvider(URL, OAuthClientMetadata(**APP), kept, browser.open, browser.code)


async def main() -> None:
    kept = Kept()
    client = LIBRARY.AsyncClient(auth=provider(kept), timeout=30)
    async with http.streamable_http_client(URL, http_client=client) as (read, write, *_):
        async with ClientSession(read, write) as session:
            await session.initialize()
            result = await session.call_tool("execute_code", {"language": "shell", "code": "echo $((6 * 7))"})
            said = result.model_dump(by_alias=True)["structuredContent"]["stdout"].strip()
            print(said, kept.tokens.scope if kept.tokens else None)


asyncio.run(main())
