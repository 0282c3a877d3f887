"""`strop grade` scores rows of a file, and with --check says where a score differs."""

import json
import re
from pathlib import Path

import pytest

from strop.cli.grade import grade
from strop.errors import DataError
from support.command import heavy_imports, processor_seconds, run_strop

RIGHT = {"scorer": "gsm8k", "response": "so #### 42", "gold": "42", "score": 1}
WRONG = {"scorer": "gsm8k", "response": "so #### 41", "gold": "42", "score": 0}


def write_rows(folder: Path, *rows: object) -> str:
    path = folder / "rows.jsonl"
    path.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
    return str(path)


def test_each_row_gets_a_json_line_with_its_verdict(tmp_path: Path) -> None:
    result = run_strop("grade", write_rows(tmp_path, RIGHT, "", {**WRONG, "scorer": "math", "response": "\\boxed{7}"}))
    assert result.returncode == 0
    first, second = (json.loads(line) for line in result.stdout.splitlines())
    assert first | {"reason": ""} == {
        "line": 1, "scorer": "gsm8k", "score": 1.0, "mode": "strict", "answer": "42", "reason": ""
    }  # fmt: skip
    assert (second["line"], second["score"], second["answer"]) == (3, 0.0, "7")
    assert second["reason"]


def test_check_passes_where_all_scores_agree(tmp_path: Path) -> None:
    result = run_strop("grade", write_rows(tmp_path, RIGHT, WRONG), "--check")
    assert result.returncode == 0
    assert "2 of 2 rows" in result.stderr


def test_check_fails_where_a_score_differs(tmp_path: Path) -> None:
    result = run_strop("grade", write_rows(tmp_path, RIGHT, {**WRONG, "score": 1}), "--check")
    assert result.returncode == 1
    assert [json.loads(line)["agrees"] for line in result.stdout.splitlines()] == [True, False]
    assert "1 of 2 rows" in result.stderr


def test_the_mode_comes_from_the_row_else_from_the_option(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loose = {"scorer": "gsm8k", "response": "it is 42", "gold": "42"}
    path = write_rows(tmp_path, loose, {**loose, "mode": "lenient"}, {**loose, "mode": "strict"})
    for lenient, expected in ((False, [0, 1, 0]), (True, [1, 1, 0])):
        grade(Path(path), lenient=lenient)
        assert [json.loads(line)["score"] for line in capsys.readouterr().out.splitlines()] == expected


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ("{broken", "line 2 must be a JSON object"),
        ("[1]", "line 2 must be a JSON object"),
        ({"scorer": "gsm8k", "gold": "1"}, "line 2: response must be text, got None; keys found: scorer, gold"),
        ({**RIGHT, "scorer": "gsm"}, "line 2: scorer must be one of gsm8k, math, math_verify, final_answer, choice"),
        ({**RIGHT, "mode": "kind"}, "line 2: mode must be one of strict, lenient, got 'kind'"),
        ({**RIGHT, "gold": "no number"}, "line 2: a GSM8K gold answer must be a number"),
        (
            {**RIGHT, "mod": "lenient"},
            "line 2: a row must have no other keys than scorer, response, gold, score, mode, ",
        ),
        ({**RIGHT, "argument": {}}, "got 'argument' (did you mean 'arguments'?)"),
        ({**RIGHT, "gold": True}, "line 2: gold must hold a gold answer as text or number, got the boolean true"),
        ({**RIGHT, "score": "1"}, "line 2: score must be a number, got '1'"),
        ({"scorer": "gsm8k", "response": "", "gold": "1"}, "line 2: score must be a number, got None"),
    ],
)
def test_a_bad_row_is_an_error_with_its_line(tmp_path: Path, row: object, expected: str) -> None:
    with pytest.raises(DataError, match=re.escape(expected)):
        grade(Path(write_rows(tmp_path, RIGHT, row)), check=True)


def test_a_bad_row_ends_the_command_with_exit_code_2_after_the_rows_before(tmp_path: Path) -> None:
    result = run_strop("grade", write_rows(tmp_path, RIGHT, "{broken"))
    assert result.returncode == 2
    assert len(result.stdout.splitlines()) == 1
    assert "line 2 must be a JSON object" in result.stderr
    assert "Traceback" not in result.stderr


def test_a_missing_file_is_an_error() -> None:
    with pytest.raises(DataError, match=r"must exist, got nothing\.jsonl"):
        grade(Path("nothing.jsonl"))


def test_a_grade_is_given_in_a_second_without_torch(tmp_path: Path) -> None:
    path = write_rows(tmp_path, RIGHT, WRONG)
    assert heavy_imports("grade", path) == []
    assert min(processor_seconds("grade", path) for _ in range(3)) < 1


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_check_of_no_rows_fails(tmp_path: Path, text: str) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(text)
    result = run_strop("grade", path, "--check")
    assert result.returncode == 2
    assert "there must be rows to check, got none" in result.stderr
    assert run_strop("grade", path).returncode == 0


def test_half_a_character_in_a_response_is_graded_and_escaped(tmp_path: Path) -> None:
    broken = {"scorer": "exact", "response": "\ud800 é", "gold": "4", "score": 0, "note": "from a scraped page"}
    result = run_strop("grade", write_rows(tmp_path, broken, {**RIGHT, "response": "#### é 42"}), "--check")
    assert "Traceback" not in result.stderr
    first, second = result.stdout.splitlines()
    assert json.loads(first)["answer"] == "\ud800 é"
    assert json.loads(second)["answer"] == "é 42"


def test_a_byte_order_mark_before_the_first_row_is_no_fault(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(RIGHT), encoding="utf-8-sig")
    assert run_strop("grade", path, "--check").returncode == 0
