"""Programs that outlive a call or client, with real clients over HTTP: `long_calls.py --server BINARY --node DIRECTORY
--seconds N --client NAME=WORD=INTERPRETER...` prints a line per check.

Each client makes a call of 75 s and times out after 60. Two jobs of N seconds lose their client soon after the start,
one of them as a task; another process reads all of their output.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

from gateway import check, free_port, request, results, running, token_of

CLIENTS = pathlib.Path(__file__).parent.parent / "clients"
CALL_SECONDS, PATIENCE = 75, 60
REVISION = "2026-07-28"


class Stateless:
    """A client of the stateless revision that supports tasks."""

    def __init__(self, url, token):
        self.url, self.token = url, token

    def ask(self, method, **params):
        meta = {
            "io.modelcontextprotocol/protocolVersion": REVISION,
            "io.modelcontextprotocol/clientInfo": {"name": "another", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}},
        }
        headers = {"authorization": f"Bearer {self.token}", "accept": "application/json, text/event-stream"}
        headers |= {"mcp-protocol-version": REVISION, "mcp-method": method}
        headers["mcp-name"] = params.get("name") or params["taskId"]
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}
        text = request(self.url, message, headers)[2]
        lines = [line[5:] for line in text.splitlines() if line.startswith("data:")] or [text]
        answer = next(found for line in lines if line.strip() for found in [json.loads(line)] if found.get("id") == 1)
        return answer.get("result") or answer

    def tool(self, name, **arguments):
        return self.ask("tools/call", name=name, arguments=arguments)["structuredContent"]

    def executions(self):
        return self.tool("list_executions")["executions"]


def until(found, seconds=PATIENCE):
    deadline = time.monotonic() + seconds
    while not (what := found()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return what


def to_the_end(client, identity, read=""):
    """Reads all output of an execution, each time from the end of the last answer."""
    while True:
        found = client.tool("get_execution", execution_id=identity, wait_seconds=25, stdout_from=len(read))
        read += found["stdout"]
        if found.get("running") is not True:
            return read


def begun(words, calls, home, log):
    path = home / f"{log}.json"
    path.write_text(json.dumps(calls))
    with open(home / f"{log}.log", "wb") as said:
        return subprocess.Popen(words, stdout=said, stderr=said, env={**os.environ, "RINGFENCE_CALLS": str(path)})


class LongCall:
    """A call whose client times out before the program has ended."""

    def __init__(self, name, words, served, home):
        self.name, self.log = name, home / f"{name}.log"
        token = served.token()
        code = f"echo first; sleep {CALL_SECONDS}; echo last"
        call = {"language": "shell", "code": code, "timeout_seconds": 2 * CALL_SECONDS}
        self.client = Stateless(served.url, token)
        self.started, self.answered = time.monotonic(), None
        calls = {"long call": [call, ["execution_id", "running"]]}
        self.child = begun([*words, "--", served.url, token], calls, home, name)

    def is_answered(self):
        if self.answered is None and self.child.poll() is not None:
            self.answered = time.monotonic() - self.started
        return self.answered is not None

    def judge(self):
        cells = [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]
        outcome = next((cell["outcome"] for cell in cells if cell["cell"] == "long call"), self.log.read_text()[-500:])
        (kept,) = self.client.executions() or [{"execution_id": ""}]
        whole = to_the_end(self.client, kept["execution_id"])
        answered = self.answered or 2 * CALL_SECONDS
        is_good = outcome == "ok" and answered < PATIENCE and whole == "first\nlast\n"
        title = f"{self.name}: {CALL_SECONDS} s, answered after {answered:.0f} s, all of it later"
        check(title, is_good, "" if is_good else [outcome, whole])


class Job:
    """A program that continues after its client was killed."""

    def __init__(self, words, served, home, seconds):
        token = served.token()
        self.client, self.seconds = Stateless(served.url, token), seconds
        self.expected = "".join(f"line {number}\n" for number in range(1, seconds + 1))
        code = f"for n in $(seq {seconds}); do echo line $n; sleep 1; done"
        job = {"language": "shell", "code": code, "timeout_seconds": seconds + 300, "background": True}
        # With tasks, the client waits for the end of the job, otherwise for that of a second call.
        waits = {"language": "shell", "code": "sleep 3600", "timeout_seconds": 3600}
        calls = {"job": [job, []], "wait": [waits, []]}
        child = begun([*words, "--", served.url, token], calls, home, f"job-{token[-8:]}")
        *_, found = until(self.client.executions) or [{"execution_id": ""}]
        self.id = found["execution_id"]
        child.kill()
        child.wait()

    def task(self):
        """Returns the task if it has ended."""
        state = self.client.ask("tasks/get", taskId=self.id)
        return None if state.get("status") == "working" else state

    def judge(self, title, said):
        is_good = said == self.expected
        title += f" of {self.seconds} s whose client is dead: {len(said)} bytes"
        check(title, is_good, "" if is_good else said[-200:])


class Served:
    """The address of the server, and tokens for it, each with a namespace of its own."""

    def __init__(self, binary, home, port):
        self.binary, self.url, self.tokens = binary, f"http://127.0.0.1:{port}/mcp", 0
        self.env = {"PATH": os.environ["PATH"], "HOME": str(home), "RINGFENCE_STATE_DIR": str(home / "state")}

    def token(self):
        self.tokens += 1
        return token_of(self.binary, self.env, f"client-{self.tokens}")


def stories(arguments, served, home):
    clients = [client.split("=", 2) for client in arguments.client]
    node, script = ["node", f"{arguments.node}/node.mjs"], str(CLIENTS / "frameworks.py")
    words = {name: [python, script, word] if python else [*node, word] for name, word, python in clients}
    official = next(words[name] for name, word, _ in clients if word == "mcp")
    job = Job(official, served, home, arguments.seconds)
    task = Job([*node, "inspector-modern"], served, home, arguments.seconds)
    calls = [LongCall(name, words[name], served, home) for name in words]
    until(lambda: all([call.is_answered() for call in calls]), CALL_SECONDS + PATIENCE)
    for call in calls:
        call.judge()
    job.judge("a job", to_the_end(job.client, job.id))
    ended = until(task.task, arguments.seconds + PATIENCE) or {}
    result = ended.get("result", {}).get("structuredContent", {})
    task.judge(f"a task ({ended.get('status')})", result.get("stdout", ""))


def main():
    parser = argparse.ArgumentParser()
    for name in ("--server", "--node"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seconds", type=int, required=True)
    parser.add_argument("--client", action="append", default=[])
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringfence-long-") as directory:
        home, port = pathlib.Path(directory), free_port()
        served = Served(arguments.server, home, port)
        # With a token created before its start, the server requires tokens.
        served.token()
        words = [arguments.server, "serve", "--transport", "http", "--listen", f"127.0.0.1:{port}"]
        with running(words, home / "server.log", served.env, f"http://127.0.0.1:{port}/readyz"):
            stories(arguments, served, home)
    print(f"{results.count(True)} passed, {results.count(False)} failed")
    sys.exit(not all(results))


main()
