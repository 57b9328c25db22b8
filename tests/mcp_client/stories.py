"""Typical work of an agent with the server, through the official client. Every public coroutine is a test."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any

import anyio
from connection import Answer, Connection, connected
from server import Server, alive, children, descendants, until, with_word, within_a_second

TOOLS = {
    "execute_code", "get_sandbox_info", "install_package", "list_runtimes", "run_sandbox_code",
    "cancel_execution", "get_execution", "list_executions", "edit_file",
    "bridge_data", "create_session", "get_file", "interrupt_session", "list_files", "list_sessions", "put_file", "terminate_session",
    "create_state_snapshot", "delete_state_snapshot", "diff_workspace", "list_state_snapshots", "restore_state_snapshot",
    "audit_execution", "get_artifacts", "get_sandbox_metrics", "inspect_state", "sandbox_stats", "set_resource_limits",
    "vault_delete", "vault_list",
    "request_egress",
    "browser_fetch", "fetch_webpage", "web_search",
    "validate_code", "validate_csv_data", "validate_json_data",
}
SECRET = "hunter2-of-the-official-client"
OUTPUT_BYTES_MAX = 1_000_000
FOREVER = "import time\nprint('begun', flush=True)\nwhile True:\n    time.sleep(60)\n"
# The arguments of a program in a ready sandbox are on no command line; those of its children are.
MARKED = "import subprocess, sys; subprocess.run(['sh', '-c', 'sleep 1000; :', sys.argv[1]])"


def equal(found: Any, wanted: Any) -> None:
    assert found == wanted, f"{found!r} is not {wanted!r}"


def holds(whole: Any, part: Any) -> None:
    assert part in whole, f"{part!r} is not in {whole!r}"


async def run(server: Connection, code: str, language: str = "python", **arguments: Any) -> dict[str, Any]:
    """Returns the result of a program, also of a failed one."""
    answer = await server.call("execute_code", {"code": code, "language": language, **arguments})
    assert not answer.is_error, answer.texts
    assert answer.structured is not None and answer.texts, "a result has structured content and a text"
    return answer.structured


async def refusal(server: Connection, arguments: dict[str, Any], tool: str = "execute_code") -> dict[str, Any]:
    """Returns the refusal of a call: an error with a code, a message and a hint."""
    answer: Answer = await server.call(tool, arguments)
    assert answer.is_error, answer.structured
    error = answer.structured or json.loads(answer.texts[0])
    error = error.get("error", error)
    assert error["message"] and error["hint"], error
    return error


async def the_tools_are_those_of_this_version(server: Connection) -> None:
    tools = await server.tools()
    equal({tool.name for tool in tools}, TOOLS)
    for tool in tools:
        equal(tool.input_schema.get("additionalProperties"), False)
        assert tool.output_schema is not None and len(tool.description) > 40, tool.name
        holds(tool.annotations, "readOnlyHint")


async def python_runs(server: Connection) -> None:
    result = await run(server, "print('hello')")
    equal((result["success"], result["stdout"], result["stderr"], result["exit_code"]), (True, "hello\n", "", 0))
    equal(result["exit"]["kind"], "code")
    equal(result["request_id"], result["execution_id"])


async def node_runs(server: Connection) -> None:
    result = await run(server, "const [a, b] = [40, 2];\nconsole.log('hello', a + b)", "node")
    equal((result["success"], result["stdout"]), (True, "hello 42\n"))


async def modules_of_node_may_await_at_top_level(server: Connection) -> None:
    result = await run(server, "import os from 'node:os';\nconsole.log(await Promise.resolve(os.EOL.length))", "node")
    equal((result["success"], result["stdout"]), (True, "1\n"))


async def typescript_runs(server: Connection) -> None:
    code = "interface P { n: number }\nconst p: P = { n: 42 };\nconsole.log(p.n as number)"
    result = await run(server, code, "typescript")
    equal((result["success"], result["stdout"]), (True, "42\n"))


async def shell_runs(server: Connection) -> None:
    result = await run(server, "for n in 1 2 3; do echo $n; done | tail -1; exit 7", "shell")
    equal((result["success"], result["stdout"], result["exit_code"]), (False, "3\n", 7))


async def the_last_expression_is_the_result(server: Connection) -> None:
    result = await run(server, "x = 40\ny = {'n': 2}\n[x + y['n'], y]")
    equal(result["result"], [42, {"n": 2}])
    assert {"x", "y"} <= set(result["variables"]), result["variables"]


async def an_error_names_the_callers_line(server: Connection) -> None:
    result = await run(server, "a = 1\n\nraise ValueError('no')\n")
    error = result["error"]
    equal((result["success"], error["type"], error["message"], error["line"]), (False, "ValueError", "no", 3))
    holds(error["traceback"], "raise ValueError('no')")
    holds(error["traceback"], "line 3")


# claim: [TIER-1]
async def every_layer_is_in_the_result(server: Connection) -> None:
    result = await run(server, "pass")
    equal(result["isolation"]["tier"], "full")
    for name in ["user_namespace", "mount_namespace", "pid_namespace", "network_namespace", "landlock", "seccomp"]:
        assert name not in result["isolation"]["inactive"], name


# claim: [ENV-2]
async def stdin_arguments_environment_and_files_arrive(server: Connection) -> None:
    code = (
        "import os, sys\n"
        "print(sys.stdin.read(), sys.argv[1:], os.environ['WHO'], 'CANARY' in os.environ)\n"
        "print(open('a/b.txt').read(), open('c.bin', 'rb').read())\n"
    )
    files = [{"path": "a/b.txt", "text": "text"}, {"path": "c.bin", "base64": base64.b64encode(b"\xff\0").decode()}]
    result = await run(server, code, stdin="in", args=["x", "y z"], env={"WHO": "me"}, files=files)
    equal(result["stdout"], "in ['x', 'y z'] me False\ntext b'\\xff\\x00'\n")


async def files_left_by_a_program_are_returned(server: Connection) -> None:
    result = await run(server, "open('left.txt', 'w').write('left')")
    (artifact,) = result["artifacts"]
    equal((artifact["name"], artifact["size_bytes"]), ("left.txt", 4))
    equal(artifact["sha256"], hashlib.sha256(b"left").hexdigest())
    equal(base64.b64decode(artifact["content_b64"]), b"left")


async def output_is_streamed_while_the_program_runs(server: Connection) -> None:
    # The program never ends by itself, so all progress arrives before its end.
    async with server.begun("execute_code", {"code": FOREVER, "timeout_seconds": 25}) as call:
        with anyio.fail_after(15):
            while not any("begun" in text for text in call.progress):
                await call.heard.wait()
                call.heard = anyio.Event()
        await call.cancel()


# claim: [PROC-6]
async def cancelling_kills_within_a_second(server: Connection) -> None:
    async def a_round() -> float:
        mark = f"mark-{uuid.uuid4().hex}"
        async with server.begun("execute_code", {"code": MARKED, "args": [mark], "timeout_seconds": 60}) as call:
            await until(lambda: with_word(mark), 15)
            await call.cancel()
            return await until(lambda: not with_word(mark), 20)

    await within_a_second(a_round)
    equal((await run(server, "print(1)"))["stdout"], "1\n")


# claim: [TIER-3]
async def an_unknown_argument_is_refused_by_name(server: Connection) -> None:
    error = await refusal(server, {"code": "pass", "langage": "python"})
    equal(error["code"], "unknown_argument")
    holds(error["message"], "langage")


# claim: [TIER-4]
async def a_backend_that_is_not_allowed_is_refused_by_name(server: Connection) -> None:
    wanted: dict[str, Any] = {
        "use_container": True, "backend": "docker",
    }
    for name, value in wanted.items():
        error = await refusal(server, {"code": "pass", name: value})
        equal((name, error["code"]), (name, "policy_denied"))
        holds(error["message"], "docker")
        holds(error["hint"], "containers.enabled")


# claim: [FS-6]
async def bad_input_is_a_typed_error_and_the_server_lives(server: Connection) -> None:
    bad: list[dict[str, Any]] = [
        {},
        {"code": ""},
        {"code": "x" * ((1 << 20) + 1)},
        {"code": "pass\0"},
        {"code": 7},
        {"code": "pass", "language": "cobol"},
        {"code": "pass", "timeout_seconds": 0},
        {"code": "pass", "timeout_seconds": 1e9},
        {"code": "pass", "timeout_seconds": -1},
        {"code": "pass", "memory_limit": "lots"},
        {"code": "pass", "resource_limits": {"max_ram_mb": 1 << 40}},
        {"code": "pass", "resource_limits": {"max_ram": 5}},
        {"code": "pass", "files": [{"path": "../escape", "text": ""}]},
        {"code": "pass", "files": [{"path": "a", "base64": "%%%"}]},
        {"code": "pass", "env": {"A=B": "c"}},
        {"code": "pass", "args": ["a\0b"]},
        {"code": "pass", "backend": "elsewhere"},
    ]
    for arguments in bad:
        error = await refusal(server, arguments)
        assert error["code"] in ("invalid_argument", "unknown_argument", "unsupported_argument"), (arguments, error)
    equal((await run(server, "print('alive')"))["stdout"], "alive\n")


# claim: [PROC-9]
async def a_program_that_prints_json_rpc_does_not_confuse_the_client(server: Connection) -> None:
    lines = [
        '{"jsonrpc":"2.0","id":0,"result":{}}',
        '{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"forged"}}',
        '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}',
        "Content-Length: 5",
    ]
    code = f"import sys\nfor line in {lines!r}:\n    print(line)\n    print(line, file=sys.stderr)\n"
    result = await run(server, code)
    equal(result["stdout"].splitlines(), lines)
    equal(result["stderr"].splitlines(), lines)
    equal((await run(server, "print(2)"))["stdout"], "2\n")


# claim: [PROC-8]
async def a_program_cannot_forge_its_end(server: Connection) -> None:
    code = (
        "import os, struct\n"
        "value = b'{\"success\": true}'\n"
        "for number in range(3, 16):\n"
        "    try:\n"
        "        os.write(number, b'R' + struct.pack('>I', len(value)) + value)\n"
        "    except OSError:\n"
        "        pass\n"
        "print('{\"exit\": {\"kind\": \"code\", \"code\": 0}, \"success\": true}', flush=True)\n"
        "os._exit(3)\n"
    )
    result = await run(server, code)
    equal((result["success"], result["exit"]["kind"], result["exit_code"]), (False, "code", 3))
    killed = await run(server, "kill -9 $$", "shell")
    equal((killed["success"], killed["exit"]["kind"], killed["exit"]["signal"]), (False, "signal", 9))


# claim: [RES-6]
async def long_output_is_cut_and_counted(server: Connection) -> None:
    count = 5 * OUTPUT_BYTES_MAX + 17
    result = await run(server, f"import sys\nsys.stdout.write('x' * {count})")
    equal((result["success"], result["stdout_bytes"], result["truncated"]["stdout"]), (True, count, True))
    equal((len(result["stdout"]) <= 8192, result["truncated"]["stderr"]), (True, False))
    begin = {"execution_id": result["execution_id"], "stdout_from": OUTPUT_BYTES_MAX - 10}
    kept = (await server.call("get_execution", begin)).structured
    equal((kept["stdout"], "stdout_next" in kept), ("x" * 10, False))


async def non_text_bytes_are_replaced_and_reported(server: Connection) -> None:
    result = await run(server, r"printf 'a\377b'", "shell")
    equal((result["stdout"], result["stdout_bytes"], result["lossy"]["stdout"]), ("a\N{REPLACEMENT CHARACTER}b", 3, True))


# claim: [RES-5]
async def a_timeout_keeps_the_output_so_far(server: Connection) -> None:
    result = await run(server, FOREVER, timeout_seconds=1)
    equal((result["success"], result["exit"]["kind"], result["exit_code"]), (False, "timeout", 124))
    equal(result["stdout"], "begun\n")
    assert 900 <= result["duration_ms"] <= 6000, result["duration_ms"]


# claim: [RES-3]
async def exceeding_the_memory_limit_is_reported(server: Connection) -> None:
    result = await run(server, "x = bytearray(1 << 30)\nprint(len(x))", memory_limit="128m")
    # Either the kernel kills the program or the allocation fails; the program must not get the gigabyte.
    kinds = (result["exit"]["kind"], (result.get("error") or {}).get("type"))
    assert kinds[0] == "out_of_memory" or kinds[1] == "MemoryError", kinds
    equal((result["success"], result["stdout"]), (False, ""))


# claim: [PROC-4]
async def concurrent_calls_do_not_mix(server: Connection) -> None:
    results: dict[int, str] = {}

    async def one(number: int) -> None:
        code = f"import os\nprint('{number} ' * 3, os.listdir('.'))\nopen('{number}', 'w').close()"
        results[number] = (await run(server, code))["stdout"]

    async with anyio.create_task_group() as tasks:
        for number in range(8):
            tasks.start_soon(one, number)
    equal(results, {number: f"{number} {number} {number}  []\n" for number in range(8)})


async def a_secret_is_used_by_name_and_never_seen(server: Connection) -> None:
    listed = await server.call("vault_list", {})
    equal([secret["key"] for secret in listed.structured["secrets"]], ["API_KEY"])
    code = (
        "import base64, os\nkey = os.environ['API_KEY']\nprint(key, len(key), base64.b64encode(key.encode()).decode())\n"
        "open(key + '.txt', 'w').write(key)\nraise ValueError(key)"
    )
    heard: list[str] = []

    async def listen(progress: float, total: float | None, message: str | None) -> None:
        heard.append(message or "")

    answer = await server.call("execute_code", {"code": code, "secrets": ["API_KEY"]}, listen)
    result = answer.structured
    equal(result["stdout"], f"***REDACTED*** {len(SECRET)} ***REDACTED***\n")
    equal(result["error"]["message"], "***REDACTED***")
    equal(result["artifacts"][0]["name"], "***REDACTED***.txt")
    told = json.dumps([result, answer.texts, heard])
    assert SECRET not in told and base64.b64encode(SECRET.encode()).decode() not in told, told
    equal((await refusal(server, {"code": "pass", "secrets": ["OTHER"]}))["code"], "secret_unavailable")


async def files_of_a_program_can_be_read_again(server: Connection) -> None:
    code = "open('small.txt', 'w').write('words')\nopen('large.bin', 'wb').write(bytes(range(256)) * 1024)"
    result = await run(server, code)
    large, small = sorted(result["artifacts"], key=lambda artifact: artifact["name"])
    assert "content_b64" not in large and large["signature"] and small["content_b64"], result["artifacts"]
    listed = await server.call("get_artifacts", {"execution_id": result["execution_id"]})
    equal([artifact["sha256"] for artifact in listed.structured["artifacts"]], [large["sha256"], small["sha256"]])
    equal(await server.read(small["uri"]), b"words")
    content = await server.read(large["uri"])
    equal((len(content), hashlib.sha256(content).hexdigest()), (256 << 10, large["sha256"]))
    other = await refusal(server, {"execution_id": result["execution_id"], "namespace": "other"}, "get_artifacts")
    equal(other["code"], "not_found")


async def calls_are_recorded(server: Connection) -> None:
    namespace = uuid.uuid4().hex
    result = await run(server, "raise SystemExit(3)", namespace=namespace)
    answer = await server.call("audit_execution", {"namespace": namespace, "action": "execution.", "detail": True})
    records = answer.structured["records"]
    equal([record["action"] for record in records], ["execution.failed", "execution.started"])
    equal({record["execution_id"] for record in records}, {result["execution_id"]})
    equal(records[0]["details"]["exit_code"], 3)
    equal(records[1]["details"]["code_sha256"], hashlib.sha256(b"raise SystemExit(3)").hexdigest())
    resource = json.loads(await server.read(f"sandbox://audit?namespace={namespace}"))
    equal(resource[-1]["hash"], records[-1]["hash"])


async def the_server_reports_its_state(server: Connection) -> None:
    await run(server, "pass", namespace="told")
    stats = (await server.call("sandbox_stats", {})).structured
    assert stats["success"] and stats["queue"]["concurrency"] > 0 and stats["vault"] == "env", stats
    counts = (await server.call("get_sandbox_metrics", {})).structured
    assert counts["executions"]["python"]["completed"] >= 1 and counts["duration_ms"]["python"]["p50"] > 0, counts
    state = (await server.call("inspect_state", {"namespace": "told"})).structured
    equal((state["waiting"], state["is_narrowed"]), (0, False))
    holds([event["event"] for event in state["recent_events"]], "execution.completed")
    for name in ("status", "logs"):
        assert json.loads(await server.read(f"sandbox://{name}")), name


async def limits_are_set_as_defaults_within_the_caps(server: Connection) -> None:
    narrow = uuid.uuid4().hex
    limits = (await server.call("set_resource_limits", {"namespace": narrow, "max_ram_mb": 64, "timeout_seconds": 5})).structured["limits"]
    equal((limits["defaults"]["max_ram_mb"], limits["caps"]["max_ram_mb"]), (64, 8192))
    result = await run(server, "x = bytearray(200 << 20)", namespace=narrow)
    equal(result["exit"]["kind"], "out_of_memory")
    for arguments in ({"max_ram_mb": 10_000}, {"timeout_seconds": 4000}):
        wider = await refusal(server, {"namespace": narrow, **arguments}, "set_resource_limits")
        equal(wider["code"], "invalid_argument")
    equal((await run(server, "x = bytearray(80 << 20)", namespace=narrow, memory_limit="256m"))["success"], True)
    equal((await run(server, "1 + 1"))["result"], 2)


async def the_runtimes_are_listed_with_their_versions(server: Connection) -> None:
    answer = await server.call("list_runtimes", {})
    assert not answer.is_error and answer.structured is not None, answer.texts
    runtimes = answer.structured["runtimes"]
    available = {runtime["language"]: runtime["version"] for runtime in runtimes if runtime["available"]}
    assert {"python", "node", "shell"} <= set(available), runtimes
    assert all(version and version[0].isdigit() for version in available.values()), available


async def the_sandbox_describes_itself(server: Connection) -> None:
    answer = await server.call("get_sandbox_info", {})
    assert not answer.is_error and answer.structured is not None, answer.texts
    info = answer.structured
    equal((info["success"], info["isolation"]["tier"], info["container_mode"]["enabled"]), (True, "full", False))
    assert info["isolation"]["layers"] and info["resource_limits"], info


SHARED = [
    the_tools_are_those_of_this_version,
    python_runs,
    node_runs,
    modules_of_node_may_await_at_top_level,
    a_secret_is_used_by_name_and_never_seen,
    files_of_a_program_can_be_read_again,
    calls_are_recorded,
    the_server_reports_its_state,
    limits_are_set_as_defaults_within_the_caps,
    typescript_runs,
    shell_runs,
    the_last_expression_is_the_result,
    an_error_names_the_callers_line,
    every_layer_is_in_the_result,
    stdin_arguments_environment_and_files_arrive,
    files_left_by_a_program_are_returned,
    output_is_streamed_while_the_program_runs,
    cancelling_kills_within_a_second,
    an_unknown_argument_is_refused_by_name,
    a_backend_that_is_not_allowed_is_refused_by_name,
    bad_input_is_a_typed_error_and_the_server_lives,
    a_program_that_prints_json_rpc_does_not_confuse_the_client,
    a_program_cannot_forge_its_end,
    long_output_is_cut_and_counted,
    non_text_bytes_are_replaced_and_reported,
    a_timeout_keeps_the_output_so_far,
    exceeding_the_memory_limit_is_reported,
    concurrent_calls_do_not_mix,
    the_runtimes_are_listed_with_their_versions,
    the_sandbox_describes_itself,
]


@contextlib.contextmanager
def ended_in_mid_sentence() -> Iterator[None]:
    """Ignores errors of the library about its lost connection, but not failed assertions."""
    try:
        yield
    except* Exception as lost:
        if (ours := lost.subgroup(AssertionError)) is not None:
            raise ours from None


# claim: [PROC-6]
async def a_client_that_hangs_up_leaves_nothing_running(server: Server, era: str) -> None:
    await within_a_second(lambda: hang_up(server, era))


async def hang_up(server: Server, era: str) -> float:
    mark = f"mark-{uuid.uuid4().hex}"
    tree: list[int] = []
    with ended_in_mid_sentence():
        async with connected(server.parameters(), era, server.log) as connection:
            async with connection.begun("execute_code", {"code": MARKED, "args": [mark], "timeout_seconds": 60}):
                await until(lambda: with_word(mark), 15)
                tree = [pid for child in children(os.getpid()) for pid in [child, *descendants(child)]]
                assert set(with_word(mark)) <= set(tree), "the run is below the server"
    assert tree, "the run was never seen"
    return await until(lambda: not with_word(mark) and not any(alive(pid) for pid in tree), 20)


# claim: [PROC-6]
async def a_server_that_is_killed_leaves_nothing_running(server: Server, era: str) -> None:
    await within_a_second(lambda: kill(server, era))


async def kill(server: Server, era: str) -> float:
    took = None
    mark = f"mark-{uuid.uuid4().hex}"
    tree: list[int] = []
    with ended_in_mid_sentence():
        async with connected(server.parameters(), era, server.log) as connection:
            (own,) = children(os.getpid())
            async with connection.begun("execute_code", {"code": MARKED, "args": [mark], "timeout_seconds": 60}):
                await until(lambda: with_word(mark), 15)
                tree = descendants(own)
                os.kill(own, signal.SIGKILL)
                # The client library cancels everything that waits on a lost connection.
                with anyio.CancelScope(shield=True):
                    took = await until(lambda: not with_word(mark) and not any(alive(pid) for pid in tree), 20)
    assert took is not None, "the run was never seen"
    return took


async def the_revision_is_the_newest_of_its_era(server: Server, era: str) -> None:
    async with connected(server.parameters(), era, server.log) as connection:
        equal(connection.revision, "2026-07-28" if era == "stateless" else "2025-11-25")


OWN = [
    the_revision_is_the_newest_of_its_era,
    a_client_that_hangs_up_leaves_nothing_running,
    a_server_that_is_killed_leaves_nothing_running,
]


@contextlib.asynccontextmanager
async def connected_with_pandas(server: Server, era: str) -> AsyncIterator[Connection]:
    """A connection to a server whose sandboxes with pandas are ready."""
    async with connected(server.parameters(), era, server.log) as connection:
        with anyio.fail_after(50):
            while True:
                listed = await connection.call("list_runtimes", {})
                runtimes = listed.structured["runtimes"]
                if any("pandas" in runtime["preloaded"] and runtime["warm"] for runtime in runtimes):
                    break
                await anyio.sleep(0.05)
        yield connection


# claim: [WARM-1]
async def forks_that_use_numpy_draw_different_numbers(server: Server, era: str) -> None:
    code = (
        "import numpy as np, pandas as pd, multiprocessing as mp, os\n"
        "[np.random.rand(), np.random.default_rng().random(), float(pd.Series(range(10**6)).sample(1).iloc[0]), "
        "mp.current_process().authkey.hex(), os.getppid()]"
    )
    seen: set[str] = set()
    async with connected_with_pandas(server, era) as connection:
        for _ in range(4):
            *drawn, parent = (await connection.call("execute_code", {"code": code})).structured["result"]
            equal(parent, 0)  # the parent is outside the pid namespace: the program was forked from its template, not started
            for value in drawn:
                assert str(value) not in seen, f"{value} came twice"
                seen.add(str(value))


# claim: [WARM-4]
async def a_fork_of_the_data_template_has_one_thread_and_may_have_more(server: Server, era: str) -> None:
    code = (
        "import os, threading, numpy as np\n"
        "before = [len(os.listdir('/proc/self/task')), threading.active_count()]\n"
        "a = np.arange(160000.0).reshape(400, 400) % 7\n"
        "print(before, bool(np.allclose(a @ a, np.einsum('ij,jk->ik', a, a))))"
    )
    async with connected_with_pandas(server, era) as connection:
        for _ in range(3):
            done = (await connection.call("execute_code", {"code": code, "resource_limits": {"max_cpu_cores": 2}})).structured
            equal(done["stdout"], "[1, 1] True\n")


async def a_plot_comes_back_as_a_picture(server: Server, era: str) -> None:
    code = (
        "import matplotlib.pyplot as plt, pandas as pd\n"
        "pd.DataFrame({'x': [1, 2, 3], 'y': [2, 4, 8]}).plot(x='x', y='y')\n"
        "plt.savefig('plot.png')\nplt.close()\nprint(plt.get_backend().lower(), plt.get_fignums())"
    )
    async with connected_with_pandas(server, era) as connection:
        for _ in range(2):
            answer = await connection.call("execute_code", {"code": code})
            done = answer.structured
            equal(done["stdout"], "agg []\n")
            (picture,) = done["artifacts"]
            equal((picture["name"], picture["mime"], done.get("display")), ("plot.png", "image/png", None))
            ((mime, content),) = answer.images
            equal((mime, content[:8]), ("image/png", b"\x89PNG\r\n\x1a\n"))


async def a_plot_that_is_left_open_is_shown(server: Server, era: str) -> None:
    code = (
        "import matplotlib.pyplot as plt, pandas as pd\n"
        "frame = pd.DataFrame({'x': [1, 2, 3], 'y': [2, 4, 8]})\n"
        "frame.plot(x='x', y='y')\n{save}plt.show()\nframe"
    )
    async with connected_with_pandas(server, era) as connection:
        # A figure that the program has saved itself appears only once.
        for save, shown in [("", "output/figure-1.png"), ("plt.savefig('plot.png')\n", "plot.png")]:
            answer = await connection.call("execute_code", {"code": code.replace("{save}", save)})
            done = answer.structured
            equal((done["success"], done["stderr"]), (True, ""))
            table, figure = done["display"]
            equal((table["mime"], figure), ("text/html", {"mime": "image/png", "artifact": shown}))
            assert "<table" in table["text"], table
            equal({artifact["name"] for artifact in done["artifacts"]}, {shown})
            ((mime, content),) = answer.images
            equal(mime, "image/png")
            assert b"matplotlib" not in content, "the file's metadata came through"


async def numbers_of_numpy_are_numbers(server: Server, era: str) -> None:
    code = "import numpy as np, pandas as pd\n"
    async with connected_with_pandas(server, era) as connection:
        for value, result in [
            ("np.float64(1.5)", 1.5),
            ("pd.Series([1, 2]).sum()", 3),
            ("np.array([[1, 2], [3, 4]]) > 2", [[False, False], [True, True]]),
            ("{'mean': np.mean([1, 2]), 'n': np.int64(2)}", {"mean": 1.5, "n": 2}),
            ("np.array([1.0, np.nan])", None),
            ("np.sin", None),
        ]:
            done = (await connection.call("execute_code", {"code": code + value})).structured
            equal((done["success"], done.get("result")), (True, result))


SALES = "region,units,price\nnorth,3,2.5\nsouth,5,4.0\nnorth,2,10.0\n"


async def a_session_works_like_a_notebook(server: Server, era: str) -> None:
    async with connected_with_pandas(server, era) as connection:
        python = await begin_session(connection, "python")
        await facts(connection, "put_file", session_id=python, path="data/sales.csv", text=SALES)
        loaded = await run_in(connection, python, "import pandas as pd\nsales = pd.read_csv('data/sales.csv')\nsales")
        holds(loaded["display"][0]["text"], "<table")
        defined = (
            "def total(frame):\n    return (frame.units * frame.price).groupby(frame.region).sum().to_dict()\n"
            "totals = total(sales)\ntotals"
        )
        equal((await run_in(connection, python, defined))["result"], {"north": 27.5, "south": 20.0})

        # An endless loop is interrupted by another call, and the state of the session stays.
        endless: dict[str, Any] = {}

        async def loop() -> None:
            endless.update(await run_in(connection, python, "n = 0\nwhile True:\n    n += 1"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(loop)
            with anyio.fail_after(20):
                while not (await facts(connection, "interrupt_session", session_id=python))["interrupted"]:
                    await anyio.sleep(0.01)
        equal((endless["success"], endless["error"]["type"], endless.get("session_ended")), (False, "KeyboardInterrupt", None))
        equal((await run_in(connection, python, "len(sales), total(sales) == totals"))["result"], [3, True])

        node = await begin_session(connection, "node")
        await facts(connection, "bridge_data", from_session=python, to_session=node, name="totals")
        sorted_there = "const best = Object.entries(totals).sort((a, b) => b[1] - a[1])[0]; best"
        equal((await run_in(connection, node, sorted_there))["result"], ["north", 27.5])

        plot = "import matplotlib.pyplot as plt\nplt.bar(list(totals), list(totals.values()))\nplt.savefig('totals.png')\nplt.close()"
        answer = await connection.call("execute_code", {"session_id": python, "code": plot})
        (picture,) = answer.structured["artifacts"]
        equal((picture["name"], picture["mime"]), ("totals.png", "image/png"))
        content = await connection.read(picture["uri"])
        equal((content[:8], hashlib.sha256(content).hexdigest()), (b"\x89PNG\r\n\x1a\n", picture["sha256"]))
        ((mime, shown),) = answer.images
        equal((mime, shown[:8]), ("image/png", content[:8]))  # the shown picture was encoded again, without metadata

        snapshot = await facts(connection, "create_state_snapshot", session_id=python, description="before")
        ruin = "import shutil\nshutil.rmtree('data')\nopen('totals.png', 'w').write('no picture')\nopen('left.txt', 'w').write('x')"
        await run_in(connection, python, ruin)
        named = {"session_id": python, "snapshot_id": snapshot["snapshot_id"]}
        changes = await facts(connection, "diff_workspace", **named)
        for path in ("data/sales.csv", "totals.png", "left.txt"):
            holds(json.dumps(changes), path)
        await facts(connection, "restore_state_snapshot", **named)
        check = "import hashlib, os\n[open('data/sales.csv').read(), hashlib.sha256(open('totals.png', 'rb').read()).hexdigest(), sorted(os.listdir('.'))]"
        equal((await run_in(connection, python, check))["result"], [SALES, picture["sha256"], ["data", "totals.png"]])
        equal((await run_in(connection, python, "total(pd.read_csv('data/sales.csv'))"))["result"], {"north": 27.5, "south": 20.0})

        for session in (python, node):
            equal((await facts(connection, "terminate_session", session_id=session))["killed"], True)
        ended = await refusal(connection, {"session_id": python, "code": "1"})
        equal(ended["code"], "session_ended")
        holds(ended["message"], "was terminated")
        equal((await facts(connection, "list_sessions"))["sessions"], [])


async def begin_session(connection: Connection, language: str) -> str:
    return (await facts(connection, "create_session", language=language))["session_id"]


async def facts(connection: Connection, tool: str, **arguments: Any) -> dict[str, Any]:
    """Returns the fields of a successful call."""
    answer = await connection.call(tool, arguments)
    assert not answer.is_error and answer.structured is not None, answer.texts
    equal(answer.structured["success"], True)
    return answer.structured


async def run_in(connection: Connection, session: str, code: str) -> dict[str, Any]:
    answer = await connection.call("execute_code", {"session_id": session, "code": code})
    assert not answer.is_error and answer.structured is not None, answer.texts
    equal(answer.structured["session_id"], session)
    return answer.structured


#: Stories that need an interpreter with numpy, pandas and matplotlib.
DATA = [
    a_session_works_like_a_notebook,
    forks_that_use_numpy_draw_different_numbers,
    a_fork_of_the_data_template_has_one_thread_and_may_have_more,
    a_plot_comes_back_as_a_picture,
    a_plot_that_is_left_open_is_shown,
    numbers_of_numpy_are_numbers,
]
