"""Programs graded by tests: which part of a response is the program, what passes, and what a remote sandbox may say."""

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from strop.data.errors import SettingError
from strop.errors import DataError
from strop.tasks.choice import ColumnChoice
from strop.tasks.grade_isolated import grade_rows
from strop.tasks.graded import GradedReward
from strop.tasks.grading.code import CodeOptions, grade_code, last_program
from strop.tasks.grading.grade import GoldError, GradeMode
from strop.tasks.grading.table import load_grader
from strop.tasks.isolation.limits import CallLimits
from strop.tasks.sandbox.cases import Case, read_cases
from strop.tasks.sandbox.client import SandboxError
from strop.tasks.sandbox.compare import prints_right, returns_right

STRICT, LENIENT = GradeMode
SUMS = json.dumps({"inputs": ["1 2\n", "30 4\n"], "outputs": ["3\n", "34\n"]})
HALVES = json.dumps({"inputs": ["1\n", "3\n"], "outputs": ["0.5\n", "1.5\n"]})
CALLS = json.dumps({"inputs": [[[3, 1, 2]], [[]]], "outputs": [[1, 2, 3], []], "fn_name": "sort"})
WRAPPED = json.dumps({"inputs": [[2], [3]], "outputs": [[4], [9]], "fn_name": "square"})
LISTED = json.dumps([{"input": "5", "output": "25", "testtype": "stdin"}, {"input": "6", "output": "36"}])
FUNCTIONAL = json.dumps(
    [
        {"input": "[1, 2]\n3", "output": "[4, 5]", "testtype": "functional", "metadata": {"func_name": "add"}},
        {"input": "[]\n1", "output": "[]", "testtype": "functional", "metadata": {"func_name": "add"}},
    ]
)


def fenced(program: str, language: str = "python") -> str:
    return f"I think so:\n```{language}\n{program}\n```\nThat is it."


DIGITS = json.dumps({"inputs": [["abc"], ["x"]], "outputs": ["134", "[1]"], "fn_name": "code"})
DIGIT_LINES = json.dumps({"inputs": ['"abc"'], "outputs": ['"134"'], "fn_name": "code"})
ADD = "a, b = map(int, input().split())\nprint(a + b)"
ROWS = [
    (fenced(ADD), SUMS, STRICT, 1),
    (fenced(ADD, "py"), SUMS, STRICT, 1),
    (fenced(ADD, ""), SUMS, STRICT, 1),
    (fenced(ADD.replace("print(a + b)", "print(a + b, end='  \\n\\n')")), SUMS, STRICT, 1),
    (fenced("def sort(x): return sorted(x)"), CALLS, STRICT, 1),
    (fenced("class Solution:\n    def sort(self, x):\n        x.sort()\n        return x"), CALLS, STRICT, 1),
    (fenced("def sort(x): return tuple(sorted(x))"), CALLS, STRICT, 1),
    (fenced("print(int(input()) ** 2)"), LISTED, STRICT, 1),
    (fenced("def add(x, y): return [a + y for a in x]"), FUNCTIONAL, STRICT, 1),
    (fenced("print(float(input()) / 2 + 1e-9)"), HALVES, LENIENT, 1),
    (fenced("def square(x): return x * x"), WRAPPED, LENIENT, 1),
    (fenced("def code(x): return '134' if x == 'abc' else '[1]'"), DIGITS, STRICT, 1),
    (fenced("def code(x): return 134 if x == 'abc' else [1]"), DIGITS, STRICT, 1),
    (fenced("def code(x): return '134'"), DIGIT_LINES, STRICT, 1),
    (fenced("def code(x): return '135'"), DIGIT_LINES, STRICT, 0),
    (fenced("def code(x): return 134"), DIGIT_LINES, STRICT, 0),
    (fenced("def code(x): return '135' if x == 'abc' else '[1]'"), DIGITS, STRICT, 0),
    (fenced("print(3)") + fenced(ADD), SUMS, STRICT, 1),
    (fenced(ADD) + fenced("$ python solution.py", "bash"), SUMS, STRICT, 1),
    (fenced("print(3)"), SUMS, STRICT, 0),
    (fenced(ADD) + fenced("print(3)"), SUMS, STRICT, 0),
    (fenced(ADD.replace("a + b", "a - b")), SUMS, STRICT, 0),
    (fenced(ADD + "\nraise ValueError"), SUMS, STRICT, 0),
    (fenced(ADD + "\nprint('done')"), SUMS, STRICT, 0),
    (fenced(ADD, "java"), SUMS, STRICT, 0),
    (ADD, SUMS, STRICT, 0),
    (f"```python\n{ADD}\n", SUMS, STRICT, 0),
    (f"<think>{fenced(ADD)}</think>I do not know.", SUMS, STRICT, 0),
    ("", SUMS, STRICT, 0),
    (fenced("def sort(x): return x"), CALLS, STRICT, 0),
    (fenced("def sort(x): return [float(y) for y in sorted(x)]"), CALLS, STRICT, 0),
    (fenced("def sorted_list(x): return sorted(x)"), CALLS, STRICT, 0),
    (fenced("def sort(x, y): return sorted(x)"), CALLS, STRICT, 0),
    (fenced("def sort(x): print(sorted(x))"), CALLS, STRICT, 0),
    (fenced("def square(x): return x * x"), WRAPPED, STRICT, 0),
    (fenced("print(float(input()) / 2 + 1e-9)"), HALVES, STRICT, 0),
    (fenced("print(float(input()) / 2 + 0.01)"), HALVES, LENIENT, 0),
    (fenced("print(1, 2"), SUMS, STRICT, 0),
]


@pytest.mark.parametrize(("response", "gold", "mode", "score"), ROWS)
def test_a_program_scores_where_it_passes_every_test(response: str, gold: str, mode: GradeMode, score: int) -> None:
    grade = grade_code(response, gold, mode)
    assert (grade.score, grade.mode) == (score, mode), grade.reason


@pytest.mark.parametrize(
    ("word", "expected", "is_right"),
    [
        ("1000000007", "1000000007", True),
        ("1000000107", "1000000007", False),
        ("123456790", "123456789", False),
        ("0010", "10", False),
        ("1_0", "10", False),
        ("1e1", "10", False),
        ("+10", "10", False),
        ("10.0", "10", True),
        ("10.0000001", "10", False),
        ("10", "0010", False),
        ("10", "10.0", True),
        ("1e1", "10.0", True),
        ("1_0", "10.0", False),
        ("0.33333334", "0.3333333333", True),
        ("0.3334", "0.3333333333", False),
        ("inf", "1.0", False),
        ("nan", "1.0", False),
        ("1e999", "1e500", False),
        ("1e999", "1.0", False),
        ("\N{ARABIC-INDIC DIGIT ONE}.0", "1.0", False),
    ],
)
def test_leniently_integers_are_printed_exactly_and_floats_nearly(word: str, expected: str, is_right: bool) -> None:
    assert prints_right(word, Case(expected=expected), LENIENT) is is_right


@pytest.mark.parametrize(
    ("result", "expected", "is_right"),
    [
        ("1000000107", 1000000007, False),
        ("[10, 123456790]", [10, 123456789], False),
        ("10.0", 10, True),
        ("10.0000001", 10, False),
        ("10", 10.0, True),
        ("0.33333334", 0.3333333333, True),
        ("0.3334", 0.3333333333, False),
        ("true", 1, False),
        ("1", True, False),
        (str(10**400), 1.0, False),
        (str(10**400), 1, False),
        (str(10**400), 10**400, True),
        ("1" * 5000, 1.0, False),
        ("Infinity", 1.0, False),
        ("NaN", 1.0, False),
    ],
)
def test_leniently_integers_are_returned_exactly_and_floats_nearly(result: str, expected: Any, is_right: bool) -> None:
    assert returns_right(result, Case(expected=expected), LENIENT) is is_right


def test_the_grader_is_in_the_table_with_its_options() -> None:
    grader = load_grader("code", {"partial_credit": True, "test_seconds": 5})
    half = grader(fenced("print(3)"), SUMS, STRICT)
    assert (half.score, half.reason) == (0.5, "1 of 2 tests pass; test 2: wrong result '3\\n'")
    assert load_grader("code")(fenced("print(3)"), SUMS, STRICT).score == 0
    with pytest.raises(ValueError, match="test_seconds"):
        load_grader("code", {"test_seconds": 0})


def test_a_program_that_is_too_slow_is_wrong_and_not_invalid() -> None:
    options = CodeOptions(test_seconds=0.3, total_seconds=0.5, partial_credit=True)
    start = time.monotonic()
    grade = grade_code(fenced("import time\ntime.sleep(100)"), SUMS, STRICT, options)
    assert time.monotonic() - start < 10
    assert grade.score == 0
    assert "test 1: out of time" in grade.reason


def test_the_time_of_a_program_must_fit_into_the_time_of_a_reward() -> None:
    reward = GradedReward.by_answer("code", ColumnChoice("data.answer_column", None, ("tests",)))
    limits = CallLimits(timeout_seconds=30.0)
    with pytest.raises(SettingError, match=r"below rewards.timeout_seconds \(30\), got 40"):
        reward.configured({}, limits)
    with pytest.raises(SettingError, match="got 30"):
        reward.configured({"total_seconds": 30}, limits)
    assert reward.configured({"total_seconds": 29}, limits).limits is limits


def test_a_program_cannot_make_its_sample_invalid() -> None:
    for deed in ("import os; os._exit(96)", "import sys; sys.exit(96)", "print(10**4000)"):
        assert grade_code(fenced(deed), SUMS, LENIENT).score == 0
    for value in ("10**400", "float('inf')", "10**5000"):
        assert grade_code(fenced(f"def square(x): return {value}"), WRAPPED, LENIENT).score == 0


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("```python\nx\n```", "x\n"),
        ("~~~py\nx\n~~~", "x\n"),
        ("````python\n```\nx\n````", "```\nx\n"),
        ("  ```python\n  x\n  ```", "  x\n"),
        ("```python title=a.py\nx\n```", "x\n"),
        ("```\nx\n```\n```python\ny\n```\n```\nz\n```", "y\n"),
        ("```python\nprint('```')\n```", "print('```')\n"),
        ("```js\nx\n```", None),
        ("```python\nx", None),
        ("", None),
    ],
)
def test_the_last_python_block_is_the_program(text: str, program: str | None) -> None:
    assert last_program(text) == program


@pytest.mark.parametrize(
    ("gold", "problem"),
    [
        ("42", "must be an object or a list"),
        ("{", "must be JSON"),
        ("{}", "must have the lists"),
        ('{"inputs": [], "outputs": []}', "at least one"),
        ('{"inputs": ["1"], "outputs": []}', "got 1 inputs and 0 outputs"),
        ('{"inputs": ["1"], "outputs": ["1"], "fn_name": "a b"}', "name of a function"),
        ('{"inputs": [3], "outputs": [1], "fn_name": "f"}', "arguments of a function must be a list"),
        ('[{"input": "1"}]', "`input` and `output`"),
        ('[{"input": "1", "output": "1", "testtype": "functional"}]', "name one function"),
        ('[{"input": "1", "output": "1", "testtype": "other"}]', "stdin or functional, got"),
        ('{"inputs": [null], "outputs": ["1"]}', "the input of a program must be text"),
        (
            '{"inputs": ["1"], "outputs": [null]}',
            "the output of a program must be text, a number or a list of these, got null",
        ),
        ('{"inputs": ["1"], "outputs": [true]}', "got true"),
        ('{"inputs": ["1"], "outputs": [{"a": 1}]}', "must be text"),
        ('{"inputs": ["1"], "outputs": [["1", null]]}', "must be text"),
        ('{"inputs": ["1"], "outputs": [[["1"]]]}', "must be text"),
    ],
)
def test_tests_that_cannot_be_read_are_an_error_and_not_a_zero(gold: str, problem: str) -> None:
    with pytest.raises(GoldError, match=problem):
        grade_code(fenced(ADD), gold)


def test_lines_of_a_list_are_input_and_output() -> None:
    [case] = read_cases('{"inputs": [["1", "2"]], "outputs": [[3, 4]]}').cases
    assert (case.stdin, case.expected) == ("1\n2", "3\n4")


Answer = Callable[[dict[str, Any]], tuple[int, bytes]]


class Server(ThreadingHTTPServer):
    """Answers by a function, and keeps what it was asked."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer = answer
        self.requests: list[dict[str, Any]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/run"


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.requests.append(request)
        status, body = self.server.answer(request)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        return


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], Server]]:
    servers: list[Server] = []

    def start(answer: Answer) -> Server:
        servers.append(Server(answer))
        threading.Thread(target=servers[-1].serve_forever, args=(0.01,), daemon=True).start()
        return servers[-1]

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def runs(*answers: dict[str, Any]) -> tuple[int, bytes]:
    return 200, json.dumps({"runs": list(answers)}).encode()


def remote(server: Server, gold: str, **options: Any) -> Any:
    settings = CodeOptions(remote_url=server.url, **options)
    return partial(grade_code, fenced(ADD), gold, STRICT, settings)


def test_a_remote_sandbox_gets_inputs_and_its_outputs_are_compared_here(serve: Callable[[Answer], Server]) -> None:
    server = serve(lambda request: runs(*({"end": "returned", "stdout": "3\n"} for _ in request["tests"])))
    assert remote(server, SUMS)().score == 0
    assert remote(server, SUMS, partial_credit=True)().score == 0.5
    request = server.requests[0]
    assert request["program"] == ADD + "\n"
    assert request["tests"] == [{"stdin": "1 2\n"}, {"stdin": "30 4\n"}]
    assert "34" not in json.dumps(request).replace("30 4", "")
    called = serve(lambda request: runs({"end": "returned", "result": [1, 2, 3]}, {"end": "returned", "result": []}))
    assert remote(called, CALLS)().score == 1
    assert called.requests[0]["tests"] == [{"arguments": [[3, 1, 2]]}, {"arguments": [[]]}]


def test_a_remote_program_that_failed_is_wrong(serve: Callable[[Answer], Server]) -> None:
    server = serve(lambda _: runs({"end": "returned", "stdout": "3\n"}, {"end": "out of time", "detail": "after 6 s"}))
    grade = remote(server, SUMS)()
    assert (grade.score, grade.reason) == (0, "test 2: out of time after 6 s")


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ((500, b""), "within 3 tries, got 500"),
        ((404, b""), "must answer 200, got 404"),
        ((200, b"not JSON"), "must answer runs as JSON"),
        ((200, b"[]"), "must answer runs as JSON"),
        (runs({"end": "returned", "stdout": "3\n"}), r"one run a test \(2\), got 1"),
        (runs({"end": "passed"}, {"end": "passed"}), "'passed' is not a valid"),
        (runs({"end": "returned", "stdout": 3}, {"end": "returned"}), "an object with texts"),
    ],
)
def test_a_remote_sandbox_that_fails_makes_the_sample_invalid(
    serve: Callable[[Answer], Server], answer: tuple[int, bytes], problem: str
) -> None:
    server = serve(lambda _: answer)
    with pytest.raises(SandboxError, match=problem):
        remote(server, SUMS)()
    assert len(server.requests) == (3 if answer[0] == 500 else 1)


def test_a_remote_sandbox_that_recovers_is_asked_again(serve: Callable[[Answer], Server]) -> None:
    right = runs({"end": "returned", "stdout": "3"}, {"end": "returned", "stdout": "34"})
    answers = iter([(503, b""), right])
    server = serve(lambda _: next(answers))
    assert remote(server, SUMS)().score == 1


def test_a_remote_sandbox_that_does_not_answer_is_given_up(serve: Callable[[Answer], Server]) -> None:
    server = serve(lambda _: (time.sleep(1), runs())[1])
    start = time.monotonic()
    with pytest.raises(SandboxError, match=r"within 3 tries, got TimeoutError"):
        remote(server, SUMS, total_seconds=0.1)()
    assert time.monotonic() - start < 10
    closed = serve(lambda _: runs())
    closed.shutdown()
    closed.server_close()
    with pytest.raises(SandboxError, match="Connection refused"):
        remote(closed, SUMS)()


def test_a_remote_address_must_be_one() -> None:
    with pytest.raises(ValueError, match="must begin with http"):
        CodeOptions(remote_url="file:///etc/passwd")


def test_a_sandbox_that_fails_names_the_row_of_a_file(tmp_path: Path, serve: Callable[[Answer], Server]) -> None:
    server = serve(lambda _: (404, b""))
    file = tmp_path / "rows.jsonl"
    row = {"scorer": "code", "response": fenced(ADD), "gold": SUMS, "arguments": {"remote_url": server.url}}
    file.write_text(f"\n{json.dumps(row)}\n")
    with pytest.raises(DataError, match=r"rows.jsonl, line 2: .* must answer 200, got 404"):
        list(grade_rows(file))
