"""Rows of all graders, each with the score that it must get."""

import importlib
import json
import pickle
import re
import subprocess
import sys
import time
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from strop.errors import DataError
from strop.tasks.grade_rows import GradeRow, agrees, grade_answer, grade_row, read_grade_rows
from strop.tasks.grading.grade import GradeMode, gold_text, row_mode
from strop.tasks.grading.math import MathOptions
from strop.tasks.grading.options import OptionError
from strop.tasks.grading.table import GRADERS, load_grader
from support.command import run_strop

FILE = Path(__file__).parents[2] / "fixtures" / "grading_rows.jsonl"
NAMES = sorted(set(GRADERS) - {"code"})
"""`code` runs programs, and has tests of its own."""
ROWS = list(read_grade_rows(FILE, need_score=True))


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.line}-{row.scorer}")
def test_a_row_gets_its_score(row: GradeRow) -> None:
    grade = grade_row(row)
    assert agrees(grade, row.score), grade


def test_every_grader_has_rows_and_the_new_ones_ten_half_of_them_wrong() -> None:
    counts, zeros = Counter(row.scorer for row in ROWS), Counter(row.scorer for row in ROWS if row.score == 0)
    assert set(counts) == set(NAMES)
    for name in ("choice", "f1", "numeric", "regex", "json_schema"):
        assert counts[name] >= 10
        assert zeros[name] >= counts[name] / 2


def test_the_command_finds_all_scores_right_and_one_changed_wrong(tmp_path: Path) -> None:
    assert run_strop("grade", str(FILE), "--check").returncode == 0
    lines = FILE.read_text().splitlines()
    changed = json.loads(lines[0]) | {"score": 0.5}
    (tmp_path / "rows.jsonl").write_text("\n".join([json.dumps(changed), *lines[1:]]))
    assert run_strop("grade", str(tmp_path / "rows.jsonl"), "--check").returncode == 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (b'{"scorer": "math", "response": "\xff", "gold": "1"}', "line 2 must be a JSON object"),
        (b'{"scorer": "math", "response": "", "gold": NaN}', "line 2 must be a JSON object: NaN is no JSON"),
        (b'{"scorer": "math", "response": "", "gold": null}', "line 2: gold must hold a gold answer"),
        (b'{"scorer": "maths", "response": "", "gold": "1"}', r"did you mean 'math'\?"),
        (b'{"scorer": "regex", "response": "a", "gold": "("}', "line 2: a gold answer must be a regular expression"),
        (
            b'{"scorer": "regex", "response": "a", "gold": "a", "arguments": {"case": 1}}',
            "line 2: .*`ignore_case`.*case",
        ),
        (b'{"scorer": "numeric", "response": "a", "gold": "a"}', "line 2: a numeric gold answer must be one number"),
        (b'{"scorer": "choice", "response": "a", "gold": "5"}', "line 2: a gold choice must be of the letters"),
        (
            b'{"scorer": "json_schema", "response": "1", "gold": {"type": "x"}}',
            "line 2: a gold answer must be a JSON schema",
        ),
        (
            b'{"scorer": "math_verify", "response": "", "gold": "1", "mode": "strict"}',
            "line 2: mode .* must be lenient",
        ),
        (b"[" * 100_000, "line 2 must be a JSON object"),
        (b'{"scorer": "exact", "response": "", "gold": []}', "gold answers must be texts|must be a JSON"),
    ],
)
def test_a_bad_row_names_file_and_line(tmp_path: Path, line: bytes, expected: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"scorer": "gsm8k", "response": "#### 1", "gold": 1}\n' + line)
    if b'"exact"' in line:
        line = line.replace(b"[]}", b'[], "arguments": {"alternatives": true}}')
        path.write_bytes(b'{"scorer": "gsm8k", "response": "#### 1", "gold": 1}\n' + line)
    with pytest.raises(DataError, match=expected) as caught:
        [grade_row(row) for row in read_grade_rows(path)]
    assert str(path) in str(caught.value)


def test_a_pattern_that_never_ends_has_no_score() -> None:
    start = time.perf_counter()
    with pytest.raises(TimeoutError, match=r"must give an answer within 0\.2 seconds"):
        grade_answer("regex", "a" * 90 + "!", "(a|aa)+", arguments='{"timeout_seconds": 0.2}')
    schema = json.dumps({"type": "string", "pattern": "^(a|aa)+$"})
    with pytest.raises(TimeoutError, match=r"must give an answer within 0\.2 seconds"):
        grade_answer("json_schema", f'"{"a" * 90}!"', schema, arguments='{"pattern_timeout_seconds": 0.2}')
    assert time.perf_counter() - start < 3


def test_a_schema_never_reaches_out() -> None:
    with pytest.raises(Exception, match=r"example\.invalid"):
        grade_answer("json_schema", "1", json.dumps({"$ref": "http://example.invalid/schema.json"}))


@pytest.mark.parametrize("name", NAMES)
def test_a_grader_can_be_pickled_and_is_linear_in_the_response(name: str) -> None:
    arguments = {"generator": "chain_sum"} if name == "reasoning_gym" else {}
    grader = pickle.loads(pickle.dumps(load_grader(name, arguments)))
    gold = {"choice": "B", "regex": "zzz", "json_schema": "{}"}.get(name, "7")
    start = time.perf_counter()
    for response in (
        "word " * 400_000,
        r"\boxed{" * 200_000,
        "Answer: " * 250_000,
        "answer\n" * 200_000,
        "<think>" * 200_000,
    ):
        assert grader(response, gold, GRADERS[name].modes[-1]).score == 0
    assert time.perf_counter() - start < 20


def test_options_are_checked_and_named() -> None:
    with pytest.raises(
        OptionError, match=r"`absolute_tolerance`.* got absolute_tolerance: .*greater than or equal to 0"
    ):
        load_grader("numeric", {"absolute_tolerance": -1})
    with pytest.raises(OptionError, match="are none, got scale"):
        load_grader("gsm8k", {"scale": 1})
    with pytest.raises(OptionError, match="scorer must be one of gsm8k"):
        load_grader("gsm")


def test_a_row_of_data_may_name_its_mode() -> None:
    assert row_mode({}, GradeMode.STRICT) is GradeMode.STRICT
    assert row_mode({"grading_mode": "lenient"}, GradeMode.STRICT) is GradeMode.LENIENT
    with pytest.raises(DataError, match="must hold one of strict, lenient, got 'loose'"):
        row_mode({"grading_mode": "loose"}, GradeMode.STRICT)


def test_gold_answers_become_text() -> None:
    values, texts = ("a", 5, 0.5, Decimal("0.10")), ["a", "5", "0.5", "0.10"]
    assert [gold_text(value, "x") for value in values] == texts
    assert [gold_text(value, "x", may_be_json=True) for value in (["a"], {"b": 1})] == ['["a"]', '{"b": 1}']
    for value in (None, "", " \n", float("nan"), float("inf"), Decimal("nan"), ["a"], {"b": 1}, b"a"):
        with pytest.raises(DataError, match="x must hold a gold answer, a text or a finite number, got "):
            gold_text(value, "x")
    for value, may_be_json in ((True, False), (False, False), (True, True)):
        with pytest.raises(DataError, match=f"x must .* as text or number, got the boolean {str(value).lower()}"):
            gold_text(value, "x", may_be_json=may_be_json)


@pytest.mark.parametrize("name", ["gsm8k", "math", "math_verify", "final_answer", "choice", "numeric", "regex"])
def test_a_grader_that_compares_with_one_text_takes_no_list(tmp_path: Path, name: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps({"scorer": name, "response": "[5]", "gold": [5]}))
    with pytest.raises(DataError, match=r"line 1: gold must hold a gold answer, a text or a finite number, got list"):
        list(read_grade_rows(path))


def test_the_table_of_graders_in_the_docs_names_each_with_its_options() -> None:
    text = (Path(__file__).parents[3] / "docs" / "grading.md").read_text()
    rows = {match[1]: match[0] for match in re.finditer(r"^\| `(\w+)` \|.*$", text, re.MULTILINE)}
    assert set(GRADERS) == rows.keys()
    for name, entry in GRADERS.items():
        if entry.options is not None:
            options = getattr(
                importlib.import_module(f"strop.tasks.grading.{entry.function.split(':')[0]}"), entry.options
            )
            own = options.model_fields.keys() - (MathOptions.model_fields.keys() if name == "math_verify" else ())
            assert [option for option in own if f"`{option}`" not in rows[name]] == []


def test_graders_import_neither_torch_nor_sympy() -> None:
    code = (
        "import sys, strop.tasks.grading as g; from strop.tasks.grading.table import load_grader;"
        "load_grader('math')(r'\\boxed{x(x+1)}', 'x^2+x', g.GradeMode.LENIENT);"
        "print([name for name in ('torch', 'sympy', 'math_verify', 'jsonschema') if name in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "[]"
