"""Measures the web tools: a fetched page, and a scripted page in the browser.

    python bench_web.py --server PATH --scratch DIRECTORY [--runs 100] > samples.json

This process serves the pages and the names of their hosts, on loopback.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from bench_http import Lines, pss_mib

HOST = "bench.test"
BROWSER_RUNS_MAX = 30
WORDS = "The harbour was quiet in the morning, and the boats lay side by side along the old wall. "
ARTICLE = f"<html lang=en><head><title>Harbour</title></head><body><article><h1>Harbour</h1>{f'<p>{WORDS * 5}</p>' * 20}</article></body></html>"
SCRIPTED = """<html lang=en><head><title>Made</title></head><body><main id=app></main><script>
fetch('/held').then(() => { document.getElementById('app').innerHTML = '<p id=done>' + 'Written by a script. '.repeat(30) + '</p>' })
</script></body></html>"""


class Pages(BaseHTTPRequestHandler):
    """The pages. `held` is called while the scripted page waits for the request of its script."""

    held: Callable[[], None] = staticmethod(lambda: None)
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:  # noqa: N802
        if self.path == "/held":
            Pages.held()
        body = (SCRIPTED if self.path == "/app" else ARTICLE).encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def name_server() -> int:
    """Starts a DNS server that resolves every name to loopback, and returns its port."""
    names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    names.bind(("127.0.0.1", 0))

    def answer() -> None:
        while True:
            query, who = names.recvfrom(4096)
            end = query.index(b"\0", 12) + 5
            found = query[end - 4 : end - 2] == b"\0\1"
            head = query[:2] + struct.pack(">HHHHH", 0x8180, 1, int(found), 0, 0)
            record = b"\xc0\x0c" + struct.pack(">HHIH4B", 1, 1, 0, 4, 127, 0, 0, 1)
            names.sendto(head + query[12:end] + (record if found else b""), who)

    threading.Thread(target=answer, daemon=True).start()
    return int(names.getsockname()[1])


def called(server: Lines, name: str, arguments: dict[str, Any], text: str) -> None:
    server.begin({"name": name, "arguments": arguments})
    said = json.loads(server.answer())["result"]
    if text not in said.get("structuredContent", {}).get("text", ""):
        raise RuntimeError(json.dumps(said)[:2000])


def samples(runs: int, act: Callable[[], Any]) -> list[float]:
    taken = []
    for _ in range(runs):
        begun = time.perf_counter()
        act()
        taken.append(round((time.perf_counter() - begun) * 1000, 4))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--runs", type=int, default=100)
    arguments = parser.parse_args()
    pages = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    threading.Thread(target=pages.serve_forever, daemon=True).start()
    port = pages.server_address[1]
    chromium = shutil.which("chromium-headless-shell")
    if chromium is None:
        raise RuntimeError("chromium-headless-shell is not on this machine")
    env = {
        "PATH": os.environ["PATH"],
        "HOME": arguments.scratch,
        "RINGFENCE_STATE_DIR": str(Path(arguments.scratch, "state")),
        "RINGFENCE_WEB_ALLOW": f"*.{HOST}:{port}",
        "RINGFENCE_EGRESS_PRIVATE": f"*.{HOST}:{port}",
        "RINGFENCE_EGRESS_RESOLVERS": f"127.0.0.1:{name_server()}",
        "RINGFENCE_WEB_ROBOTS": "false",
        "RINGFENCE_WARM_READY": "0",
    }
    server = Lines([arguments.server, "serve", "--toolsets", "web"], env)
    number = 0

    def fetch() -> None:
        nonlocal number
        number += 1
        # Pages are cached, and a host gets at most four requests per second, so each fetch uses another host.
        called(server, "fetch_webpage", {"url": f"http://h{number}.{HOST}:{port}/"}, "harbour")

    def browse() -> None:
        called(server, "browser_fetch", {"url": f"http://h.{HOST}:{port}/app", "wait_for_selector": "#done", "screenshot": True}, "Written by a script")

    def bare() -> None:
        words = [chromium, "--no-sandbox", "--disable-gpu", "--dump-dom", f"http://127.0.0.1:{port}/app"]
        # The dump may be taken before the script has written.
        subprocess.run(words, env=env, check=True, capture_output=True)

    fetch()
    browse()
    runs = min(arguments.runs, BROWSER_RUNS_MAX)
    fetched, browsed, alone = samples(arguments.runs, fetch), [], []
    for _ in range(runs):
        alone += samples(1, bare)
        browsed += samples(1, browse)
    before, while_held = pss_mib([server.server.pid]), []
    Pages.held = staticmethod(lambda: while_held.append(pss_mib([server.server.pid])))
    browse()
    server.close()
    print(
        json.dumps(
            {
                "lines": [
                    {"name": "`fetch_webpage`, 10 kB", "reference": None, "samples_ms": fetched},
                    {"name": "bare `chromium-headless-shell --dump-dom`", "reference": None, "samples_ms": alone},
                    {
                        "name": "`browser_fetch`, script and screenshot, cold",
                        "reference": "bare `chromium-headless-shell --dump-dom`",
                        "samples_ms": browsed,
                    },
                ],
                "figures": [{"what": "memory of a browser with its page (PSS)", "figure": f"{max(while_held) - before:.0f} MiB"}],
            }
        )
    )


if __name__ == "__main__":
    main()
