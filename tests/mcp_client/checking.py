"""Checks of code and data before anything runs. Every public coroutine is a test."""

from __future__ import annotations

from typing import Any

from connection import Connection
from server import Server
from stories import connected_with_pandas, equal, holds, refusal, run

#: Ordinary first programs, for the narrowest profile.
ORDINARY = {
    "fibonacci": "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)\nprint(fib(15))",
    "a class": "class Account:\n    def __init__(self):\n        self.total = 0\n    def put(self, amount):\n        self.total += amount\n"
    "        return self\nprint(Account().put(600).put(10).total)",
    "bubble sort": "items = [5, 2, 9, 1]\nfor i in range(len(items)):\n    for j in range(len(items) - 1 - i):\n"
    "        if items[j] > items[j + 1]:\n            items[j], items[j + 1] = items[j + 1], items[j]\nprint(items == sorted(items) and 610)",
    "pi": "print(int(610 * (4 * sum((-1) ** k / (2 * k + 1) for k in range(100_000))) / 3.1415))",
    "statistics": "import statistics\nprint(int(statistics.mean([600, 610, 620]) + statistics.pstdev([1, 1])))",
}
#: Programs that `strict` refuses, with the rule and the line.
REFUSED = [
    ("x = 1\nimport os", "profile.import", 2),
    ("import uuid\nprint(uuid.os.popen('id').read())", "profile.module_attribute", 2),
    ("print(().__class__.__mro__)", "python.reflection", 1),
    ("\nprint('{0.__class__}'.format(1))", "python.format_attribute", 2),
    ("print(eval('1 + 1'))", "python.dynamic_execution", 1),
]


async def ordinary_programs_run_under_the_strict_profile(server: Connection) -> None:
    for name, code in ORDINARY.items():
        result = await run(server, code, profile="strict")
        equal((name, result["stdout"], result["validation"]["verdict"]), (name, "610\n", "pass"))


async def code_forbidden_by_the_strict_profile_is_refused_by_rule_and_line(server: Connection) -> None:
    for code, rule, line in REFUSED:
        error = await refusal(server, {"code": code, "profile": "strict"})
        equal((code, error["code"]), (code, "code_rejected"))
        holds(error["message"], f"line {line}")
        issues = [issue for issue in error["validation"]["issues"] if issue["severity"] == "error"]
        equal((code, issues[0]["rule"], issues[0]["line"]), (code, rule, line))


async def forbidden_code_with_checks_off_runs_and_reaches_nothing(server: Connection) -> None:
    for code, _, _ in REFUSED:
        result = await run(server, code, validate="off")
        equal((code, result["success"], result.get("validation")), (code, True, None))
        equal(result["isolation"]["tier"], "full")
        assert "uid=0" not in result["stdout"], result["stdout"]
    held = await run(server, "import os", validate="off", profile="basic")
    equal((held["success"], held["security_events"][0]["rule"]), (False, "blocked_import"))


async def a_warning_comes_with_the_result(server: Connection) -> None:
    result = await run(server, "import subprocess\nprint(subprocess.run(['echo', 'hi'], capture_output=True).stdout)")
    equal(result["stdout"], "b'hi\\n'\n")
    holds([issue["rule"] for issue in result["validation"]["issues"]], "python.process")


async def a_missing_import_is_added_on_request(server: Connection) -> None:
    result = await run(server, "print(json.dumps({'a': 1}))", validate="fix")
    equal((result["stdout"], result["validation"]["fixes_applied"]), ('{"a": 1}\n', ["import json"]))
    answer = await server.call("validate_code", {"code": "print(json.dumps({}))"})
    equal(answer.structured["fixed_code"], "import json\nprint(json.dumps({}))")


async def data_is_validated_against_a_schema_and_types(server: Connection) -> None:
    async def told(tool: str, **arguments: Any) -> Any:
        answer = await server.call(tool, arguments)
        assert not answer.is_error, answer.texts
        return answer.structured

    schema = {"type": "object", "properties": {"age": {"type": "integer", "minimum": 0}}, "required": ["name"]}
    report = await told("validate_json_data", data={"age": -1}, schema_name_or_dict=schema)
    equal([error["path"] for error in report["errors"]], ["", "/age"])
    csv = "id,day\n1,2024-02-29\nx,2023-02-29\n"
    report = await told("validate_csv_data", csv_content=csv, type_constraints={"id": "integer", "day": "date"})
    equal([(error["row"], error["column"]) for error in report["errors"]], [(2, "id"), (2, "day")])


async def numpy_runs_under_the_profile_that_allows_it(server: Server, era: str) -> None:
    async with connected_with_pandas(server, era) as connection:
        code = "import numpy as np\nimport pandas as pd\nprint(int(pd.Series(np.arange(11)).sum()))"
        result = await run(connection, code, profile="data_science")
        equal((result["stdout"], result.get("security_events")), ("55\n", None))
        error = await refusal(connection, {"code": code, "profile": "basic"})
        equal(error["code"], "code_rejected")
        code = "import pandas as pd\nprint(pd.io.common.os.getcwd())"
        result = await run(connection, code, profile="data_science", validate="off")
        equal((result["success"], result["security_events"][0]["rule"]), (False, "blocked_import"))


SHARED = [
    ordinary_programs_run_under_the_strict_profile,
    code_forbidden_by_the_strict_profile_is_refused_by_rule_and_line,
    forbidden_code_with_checks_off_runs_and_reaches_nothing,
    a_warning_comes_with_the_result,
    a_missing_import_is_added_on_request,
    data_is_validated_against_a_schema_and_types,
]
DATA = [numpy_runs_under_the_profile_that_allows_it]
