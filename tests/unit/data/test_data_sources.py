"""Sources: what is read, under which ids, and what is said about data that cannot be read."""

import json
import re
from pathlib import Path

import datasets
import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from strop.config.data import HubSource, JsonlSource, ParquetSource, ReasoningGymSource
from strop.data import DataError, load_rows, read_source
from strop.data.errors import require_package
from strop.data.faults import MAX_FIELD_CHARACTERS, row_fault
from strop.data.rows import number_rows
from strop.data.sources.jsonl import read_jsonl


def write_lines(path: Path, *lines: str | bytes) -> Path:
    path.write_bytes(b"\n".join(line if isinstance(line, bytes) else line.encode() for line in lines))
    return path


def test_jsonl_rows_keep_their_columns_and_get_stable_ids(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "train.jsonl", '{"q": "a", "n": 1}', "", '{"q": "ü", "n": null}', "")
    rows = load_rows(JsonlSource(path=path))
    assert [row.row_id for row in rows] == ["train.jsonl:0", "train.jsonl:1"]
    assert [dict(row.columns) for row in rows] == [{"q": "a", "n": 1}, {"q": "ü", "n": None}]


def test_a_byte_order_mark_is_not_part_of_the_first_row(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "bom.jsonl", b'\xef\xbb\xbf{"q": "a"}')
    assert load_rows(JsonlSource(path=path))[0].columns == {"q": "a"}


@pytest.mark.parametrize(
    ("bad_line", "what"),
    [
        ("{'q': 1}", "must be one JSON object"),
        ('{"q": 1', "must be one JSON object, got '{\"q\": 1': Expecting ',' delimiter at 7\n"),
        ("[1, 2]", "must be a JSON object with columns, got list"),
        (b'{"q": "\xff"}', "must be UTF-8, got byte 0xff at 7"),
        ("[" * 100_000, "must be one JSON object"),
    ],
)
def test_a_bad_jsonl_line_is_named_by_file_and_line(tmp_path: Path, bad_line: str | bytes, what: str) -> None:
    path = write_lines(tmp_path / "rows.jsonl", '{"q": 1}', "", bad_line, "")
    with pytest.raises(DataError) as caught:
        load_rows(JsonlSource(path=path))
    assert f"{path}, line 3: {what}" in str(caught.value)
    assert len(str(caught.value)) < 1000


BAD_LINES = {
    "not JSON": ("{'q': 1}", "must be one JSON object"),
    "no object": ("3", "must be a JSON object with columns, got int"),
    "not UTF-8": (b'{"q": "\xff"}', "must be UTF-8, got byte 0xff"),
    "a bare NUL": (b'{"q": "a\0b"}', "must be one JSON object"),
    "an escaped NUL": (r'{"q": "a\u0000b"}', "column 'q' must hold no NUL character, got one at 1"),
    "a NUL deep inside": (r'{"q": [{"a": "\u0000"}]}', "column 'q' must hold no NUL character"),
    "half a character": (r'{"q": "\ud800"}', "column 'q' must hold whole characters"),
    "10 MB in a field": ('{"q": "' + "a" * 10_000_000 + '"}', "at most 8388608 characters, got 10000000"),
    "a number of many digits": ('{"q": ' + "1" * 5000 + "}", "must be one JSON object"),
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_listed_with_file_and_line_and_the_others_are_read(tmp_path: Path, name: str) -> None:
    line, what = BAD_LINES[name]
    path = write_lines(tmp_path / "rows.jsonl", '{"q": "a"}', "", line, '{"q": "b"}')
    read = read_source(JsonlSource(path=path))
    assert [(row.row_id, row.where) for row in read.rows] == [
        ("rows.jsonl:0", f"{path}, line 1"),
        ("rows.jsonl:2", f"{path}, line 4"),
    ]
    [bad] = read.bad
    assert bad.place == f"{path}, line 3"
    assert what in bad.reason
    assert len(bad.reason) < 300


def test_a_line_too_long_for_memory_is_one_bad_row(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", '{"q": "a"}', '{"q": "' + "b" * 55 + '"}', '{"q": "c"}')
    read = number_rows("rows", read_jsonl(path, max_line_bytes=20))
    assert [row.columns["q"] for row in read.rows] == ["a", "c"]
    assert [str(bad) for bad in read.bad] == [f"{path}, line 2: must be a line of at most 20 bytes, got a longer one"]


def test_text_of_any_script_and_up_to_the_limit_is_no_fault() -> None:
    assert (
        row_fault({"q": "ü 漢字 😀 \u200b", "n": None, "x": [1.5, {"y": True}], "z": "a" * MAX_FIELD_CHARACTERS})
        is None
    )


def broken_text() -> pyarrow.Array:
    """Three texts, the second of them no UTF-8."""
    offsets = pyarrow.py_buffer(np.array([0, 1, 2, 3], dtype=np.int32).tobytes())
    return pyarrow.StringArray.from_buffers(3, offsets, pyarrow.py_buffer(b"a\xffb"))


def test_a_parquet_row_that_is_no_utf8_is_listed_with_file_and_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2, 3], "q": broken_text()}), path)
    read = read_source(ParquetSource(path=path))
    assert [(row.row_id, row.where) for row in read.rows] == [
        ("rows.parquet:0", f"{path}, row 1"),
        ("rows.parquet:2", f"{path}, row 3"),
    ]
    assert [str(bad) for bad in read.bad] == [f"{path}, row 2: column 'q' must be UTF-8, got byte 0xff at 0"]


def test_a_bad_row_of_a_saved_data_set_is_listed_with_its_number(tmp_path: Path) -> None:
    table = datasets.Dataset(pyarrow.table({"n": [1, 2, 3], "q": broken_text()}))
    table.save_to_disk(tmp_path / "saved")
    read = read_source(HubSource(path=str(tmp_path / "saved")))
    assert [row.columns["n"] for row in read.rows] == [1, 3]
    [bad] = read.bad
    assert bad.place.endswith("row 2")
    assert "must be UTF-8, got byte 0xff" in bad.reason


def test_an_empty_a_missing_and_a_folder_jsonl_file_are_told_apart(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="got an empty file"):
        load_rows(JsonlSource(path=write_lines(tmp_path / "empty.jsonl", "", " ")))
    with pytest.raises(DataError, match="got no such file"):
        load_rows(JsonlSource(path=tmp_path / "absent.jsonl"))
    with pytest.raises(DataError, match="got a folder"):
        load_rows(JsonlSource(path=tmp_path))


@pytest.mark.parametrize("source", [JsonlSource, ParquetSource])
def test_data_that_are_not_there_are_named_by_where_they_were_looked_for(
    source: type[JsonlSource | ParquetSource], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=re.escape(str(tmp_path / "absent"))):
        load_rows(source(path=Path("absent")))


def test_a_limit_reads_the_first_rows_only(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "rows.jsonl", '{"q": 1}', '{"q": 2}', "this line is never reached")
    assert len(load_rows(JsonlSource(path=path), limit=2)) == 2


def test_parquet_files_of_a_folder_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name, values in (("b", [3]), ("a", [1, 2])):
        pyarrow.parquet.write_table(pyarrow.table({"n": values}), tmp_path / f"{name}.parquet")
    assert [row.columns["n"] for row in load_rows(ParquetSource(path=tmp_path))] == [1, 2, 3]
    assert [row.columns["n"] for row in load_rows(ParquetSource(path=tmp_path / "b.parquet"))] == [3]
    assert [row.columns["n"] for row in load_rows(ParquetSource(path=tmp_path), limit=1)] == [1]


def test_bad_parquet_data_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a folder without any"):
        load_rows(ParquetSource(path=tmp_path))
    with pytest.raises(DataError, match="no such file or folder"):
        load_rows(ParquetSource(path=tmp_path / "absent"))
    broken = write_lines(tmp_path / "broken.parquet", "not parquet")
    with pytest.raises(DataError, match=r"broken\.parquet must be a Parquet file"):
        load_rows(ParquetSource(path=broken))
    pyarrow.parquet.write_table(pyarrow.table({"n": pyarrow.array([], pyarrow.int64())}), broken)
    with pytest.raises(DataError, match="must hold rows"):
        load_rows(ParquetSource(path=broken))


def test_a_local_folder_is_read_through_datasets(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.jsonl", *(json.dumps({"q": f"question {index}"}) for index in range(3)))
    rows = load_rows(HubSource(path=str(tmp_path)), limit=2)
    assert [row.columns["q"] for row in rows] == ["question 0", "question 1"]
    assert rows[0].row_id == f"{tmp_path.name}/train:0"


def test_saved_data_sets_are_recognised_with_and_without_splits(tmp_path: Path) -> None:
    table = datasets.Dataset.from_dict({"q": ["a", "b"]})
    table.save_to_disk(tmp_path / "single")
    datasets.DatasetDict({"test": table}).save_to_disk(tmp_path / "split")
    assert len(load_rows(HubSource(path=str(tmp_path / "single")))) == 2
    assert len(load_rows(HubSource(path=str(tmp_path / "split"), split="test"))) == 2
    with pytest.raises(DataError, match=r"must be one of test .* got 'tests' \(did you mean 'test'\?\)"):
        load_rows(HubSource(path=str(tmp_path / "split"), split="tests"))


def test_a_data_set_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    write_lines(tmp_path / "train.jsonl", '{"q": 1}')
    with pytest.raises(DataError, match="split 'validation' cannot be loaded"):
        load_rows(HubSource(path=str(tmp_path), split="validation"))


def test_reasoning_gym_rows_repeat_with_the_seed_and_differ_between_seeds() -> None:
    rows = load_rows(ReasoningGymSource(name="chain_sum", size=5, seed=1))
    again = load_rows(ReasoningGymSource(name="chain_sum", size=5, seed=1))
    other = load_rows(ReasoningGymSource(name="chain_sum", size=5, seed=2))
    assert rows == again
    assert [row.columns["question"] for row in rows] != [row.columns["question"] for row in other]
    assert rows[4].row_id == "chain_sum-seed1:4"
    assert set(rows[0].columns) == {"question", "answer", "metadata"}


def test_reasoning_gym_names_and_options_are_checked_with_the_nearest_name() -> None:
    with pytest.raises(DataError, match=r"'chain_sums' \(did you mean 'chain_sum'\?\)"):
        load_rows(ReasoningGymSource(name="chain_sums"))
    with pytest.raises(DataError, match=r"'min_term' \(did you mean 'min_terms'\?\)"):
        load_rows(ReasoningGymSource(name="chain_sum", options={"min_term": 2}))
    with pytest.raises(DataError, match="refuses its options"):
        load_rows(ReasoningGymSource(name="chain_sum", options={"min_terms": 9, "max_terms": 2}))
    with pytest.raises(DataError, match=r"`source\.seed`"):
        load_rows(ReasoningGymSource(name="chain_sum", options={"seed": 2}))


def test_a_missing_package_names_the_extra_to_install() -> None:
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'strop\[parquet\]'"):
        require_package("no_such_package_here", "parquet", "a Parquet source")
