"""Runs every story in every era that the installed client speaks; the last line has the counts.

    python run.py --server PATH [--server-uid 65534] [--data-python PYTHON] [--filter TEXT]

Stories that share a connection also run over HTTP, with a token.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import approving
import checking
import detaching
from connection import ERAS, VERSION, connected
from server import Server
from stories import DATA, OWN, SHARED

#: Time limit of a story.
SECONDS = 60


HERE = Path(__file__).parent


def briefly(error: BaseException) -> str:
    """The error, with the frames in these stories only; the frames of the libraries say little."""
    if isinstance(error, BaseExceptionGroup):
        return "\n".join(briefly(one) for one in error.exceptions)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if Path(frame.filename).parent == HERE]
    places = [f"    {Path(frame.filename).name}:{frame.lineno} {frame.line}" for frame in frames]
    return "\n".join([*places, f"    {type(error).__name__}: {str(error)[:2000]}"])


class Score:
    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    async def tell(self, title: str, story: Callable[[], Awaitable[None]]) -> None:
        try:
            with anyio.fail_after(SECONDS):
                await story()
        except Exception as error:  # noqa: BLE001 - any exception of a story is a failure
            self.failed += 1
            print(f"FAILED {title}\n{briefly(error)}", flush=True)
        else:
            self.passed += 1
            print(f"ok     {title}", flush=True)


async def tell_shared(score: Score, era: str, server: Server, wanted: str) -> None:
    for title, place in ((era, contextlib.nullcontext(server.parameters())), (f"{era}, HTTP", server.over_http())):
        titled = lambda story: f"{title}: {story.__name__.replace('_', ' ')}"  # noqa: E731, B023
        shared = [story for story in [*SHARED, *checking.SHARED] if wanted in titled(story)]
        if not shared:
            continue
        try:
            with place as where:
                async with connected(where, era, server.log) as connection:
                    for story in shared:
                        await score.tell(titled(story), lambda: story(connection))  # noqa: B023
        except Exception as error:  # noqa: BLE001 - the server ended, or did not start
            score.failed += 1
            print(f"FAILED {title}: the connection\n{briefly(error)}", flush=True)


async def tell_all(server: Server, wanted: str) -> Score:
    score = Score()
    for era in ERAS:
        await tell_shared(score, era, server, wanted)
        titled = lambda story: f"{era}: {story.__name__.replace('_', ' ')}"  # noqa: E731
        for story in [*OWN, *approving.OWN, *detaching.OWN, *([*DATA, *checking.DATA] if server.has_data else [])]:
            if wanted in titled(story):
                await score.tell(titled(story), lambda: story(server, era))
    return score


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--server", type=Path, required=True, help="the ringfence binary")
    parser.add_argument("--server-uid", type=int, help="run the server as this user (needs root)")
    parser.add_argument("--data-python", type=Path, help="an interpreter with pandas: more stories, about that")
    parser.add_argument("--filter", default="", help="only stories whose title holds this")
    options = parser.parse_args()
    if options.server_uid is not None and os.geteuid() != 0:
        parser.error("--server-uid needs root")
    user = "the same user" if options.server_uid is None else f"uid {options.server_uid}"
    print(f"mcp {VERSION}, eras: {', '.join(ERAS)}, server as {user}", flush=True)
    server = Server(options.server.resolve(), options.server_uid, options.data_python)
    try:
        score = anyio.run(tell_all, server, options.filter)
        if score.failed:
            server.log.seek(0)
            sys.stdout.write("--- the end of the server's log\n" + server.log.read()[-4000:] + "\n")
    finally:
        server.close()
    print(f"{score.passed} passed, {score.failed} failed")
    return 0 if score.failed == 0 and score.passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
