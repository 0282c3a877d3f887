"""Judges: what they are asked, how their answers are read, and what becomes of an answer that never comes."""

import asyncio
import gzip
import socket
import time
import tracemalloc
import zlib
from dataclasses import replace
from typing import Any

import pytest

from strop.config.data import DataConfig
from strop.config.judges import JsonVerdict, JudgeConfig, LabelVerdict, NumberVerdict, ServerJudge
from strop.config.rewards import RewardConfig
from strop.data.errors import SettingError
from strop.records import Group, Message, Prompt, RewardPart
from strop.tasks import build_task, score_gold
from strop.tasks.llm_judge.engine import JudgeError
from strop.tasks.llm_judge.reward import JudgeReward
from strop.tasks.llm_judge.rubric import Rubric
from strop.tasks.llm_judge.server import ServerEngine
from strop.tasks.llm_judge.verdict import verdict_reader
from strop.tasks.rewards import build_rewards
from support.chat_server import BUSY, DROPS, HANGS, ChatServer, Reply, chat_server
from support.groups import made_prompt, stopped_group

OUT_OF_TEN = NumberVerdict(pattern=r"(?i)score: *(-?\d+(?:\.\d+)?)", lowest=1, highest=10)
RUBRIC = "Question: {prompt}\nAnswer: {completion}\nRight: {answer}\nGive a score from 1 to 10."
KEY = "sk-very-secret-123"


def made_judge(server: ChatServer, *, timeout: float = 5.0, **settings: Any) -> JudgeReward:
    """A judge of the server, whose pauses are short."""
    config = JudgeConfig(engine=ServerJudge(url=server.url, model="m", **settings), rubric=RUBRIC, verdict=OUT_OF_TEN)
    assert isinstance(config.engine, ServerJudge)
    engine = ServerEngine(
        config.engine, temperature=0.0, max_new_tokens=64, timeout_seconds=timeout, first_pause_seconds=0.01
    )
    return JudgeReward("quality", config, engine)


def judged(judge: JudgeReward, texts: list[str], group: Group | None = None) -> list[RewardPart]:
    group = group or stopped_group(len(texts), answer="4")
    return asyncio.run(judge(group, texts))


# ------------------------------------------------------------------------------------------ what is asked


def test_a_rubric_is_filled_with_prompt_completion_and_columns() -> None:
    rubric = Rubric.read('{{"p": {prompt}}} {completion} {answer} {tests}', "mine")
    prompt = made_prompt(answer="4", tests=["a", "é"], prompt="a column that the prompt hides")
    assert rubric.fill(prompt, "{answer} {0}") == '{"p": What is it?} {answer} {0} 4 ["a", "é"]'


def test_a_prompt_of_several_turns_is_shown_with_its_roles() -> None:
    turns = (Message(role="system", content="Be brief."), Message(role="user", content="Hm?"))
    prompt = Prompt("several", 0, made_prompt().token_ids, turns, task="columns")
    assert Rubric.read("{prompt}/{completion}", "mine").fill(prompt, "x") == "system: Be brief.\n\nuser: Hm?/x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{completion", "must have braces in pairs"),
        ("{completion} {prompt.__class__}", r"plain names between braces, got \{prompt.__class__\}"),
        ("{completion[0]}", r"got \{completion\[0\]\}"),
        ("{completion!r}", r"got \{completion!r\}"),
        ("{completion:>9}", r"got \{completion:>9\}"),
        ("{completion} {}", r"got \{\}"),
        ('{completion} {"score": 1}', r'got \{"score": 1\}'),
        ("How good is {prompt}?", r"got no \{completion\} in it"),
    ],
)
def test_a_rubric_that_cannot_be_filled_is_refused(text: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        Rubric.read(text, "mine")
    assert "'mine'" in str(caught.value)


def test_a_name_that_is_no_column_of_every_row_is_refused_with_the_nearest() -> None:
    rubric = Rubric.read("{completion} {anser}", "mine")
    with pytest.raises(SettingError, match=r"got \{anser\} \(did you mean 'answer'\?\); columns found: answer, x"):
        rubric.check_columns(frozenset({"answer", "x"}))
    rubric.check_columns(frozenset({"anser"}))


# ------------------------------------------------------------------------------------------ what is answered


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Score: 10", 1.0),
        ("score: 1", 0.0),
        ("First I thought score: 2, but score: 5.5 it is.", 0.5),
        ("<think>score: 9</think>score: 1", 0.0),
        ("I like it", "must hold the pattern, got 'I like it'"),
        ("", "must hold the pattern, got ''"),
        ("score: 11", "must be from 1 to 10, got 11"),
        ("score: -3", "must be from 1 to 10, got -3"),
        ("score: 1e9", 0.0),
        ("score: " + "9" * 400, "must be from 1 to 10, got inf"),
    ],
)
def test_a_number_is_read_from_the_last_match_and_scaled(answer: str, value: float | str) -> None:
    check_reading(OUT_OF_TEN, answer, value)


def test_a_match_that_is_no_number_is_told() -> None:
    check_reading(NumberVerdict(pattern=r"is (\w+)", lowest=0, highest=1), "it is good", "a number, got 'good'")


def test_a_pattern_that_backtracks_without_end_is_stopped() -> None:
    start = time.monotonic()
    verdict = NumberVerdict(pattern=r"^((?:a|a|aa)+)+$|(?:x)", lowest=0, highest=1)
    check_reading(verdict, "a" * 60 + "b", "the pattern ran for over")
    assert time.monotonic() - start < 10


LABELS = LabelVerdict(labels={"yes": 1.0, "no": 0.0, "not sure": 0.25})


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ("Yes.", 1.0),
        ("yes or no? No!", 0.0),
        ("I am not sure", 0.25),
        ("nobody knows: yes", 1.0),
        ("nobody knows", "must hold one of yes, no, not sure"),
        ("<think>yes</think>**no**", 0.0),
    ],
)
def test_the_label_that_stands_last_counts(answer: str, value: float | str) -> None:
    check_reading(LABELS, answer, value)


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"score": 3, "why": "{}"}', 0.75),
        ('```json\n{"why": "x", "score": 4}\n```', 1.0),
        ('{"score": 1} no, {"score": 2}', 0.5),
        ('{ {"score": 1}', 0.25),
        ('{"inner": {"score": 1}}', "must hold a JSON object with the key 'score'"),
        ("score 3", "must hold a JSON object with the key 'score'"),
        ('{"score": "3"}', "must give a number as 'score', got '3'"),
        ('{"score": true}', "must give a number as 'score', got True"),
        ('{"score": NaN}', "must be from 0 to 4, got nan"),
        ('{"score": 5}', "must be from 0 to 4, got 5"),
        ('{"score": 1' + "0" * 400 + "}", "must be from 0 to 4, got 1000"),
    ],
)
def test_a_number_is_read_from_the_last_json_object_with_the_key(answer: str, value: float | str) -> None:
    check_reading(JsonVerdict(field="score", lowest=0, highest=4), answer, value)


@pytest.mark.parametrize(
    "text",
    [
        '{"a":' * 2**18,
        '{"a":' * 900 + '"' + "x" * 2**22,
        '{"a":' * 900 + "[" + "1," * 2**21,
        '{"a":' * 900 + "1" * 5000 + "," * 2**21,
        "{" * 2**22,
        '{"' * 2**21,
    ],
    ids=["opened", "open text", "open list", "long number", "braces", "braces and quotes"],
)
def test_an_answer_that_is_made_to_be_read_over_and_over_costs_little(text: str) -> None:
    read = verdict_reader(JsonVerdict(field="score", lowest=0, highest=1), "mine")
    start = time.process_time()
    with pytest.raises(JudgeError, match="JSON object"):
        read(text)
    assert time.process_time() - start < 5


def check_reading(verdict: Any, answer: str, value: float | str) -> None:
    read = verdict_reader(verdict, "mine")
    if isinstance(value, float):
        assert read(answer) == pytest.approx(value)
        return
    with pytest.raises(JudgeError) as caught:
        read(answer)
    assert value in str(caught.value)


@pytest.mark.parametrize(
    ("pattern", "message"), [("(", "must be a regular expression"), (r"\d", "one group, the number, got 0")]
)
def test_a_pattern_without_exactly_one_group_is_refused(pattern: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        verdict_reader(NumberVerdict(pattern=pattern, lowest=0, highest=1), "mine")


# ------------------------------------------------------------------------------------------ over real sockets


def test_every_sample_is_asked_about_and_the_verdicts_come_back_in_order() -> None:
    def by_length(_: int, body: dict[str, Any]) -> Reply:
        completion = body["messages"][0]["content"].split("Answer: ")[1].split("\n")[0]
        return Reply(f"Score: {len(completion)}", seconds=0.05 * (4 - len(completion)))

    with chat_server(by_length) as server:
        parts = judged(made_judge(server, options={"top_p": 0.5}), ["a", "bb", "ccc"])
    assert [part.value for part in parts] == [pytest.approx(number / 9) for number in (0, 1, 2)]
    assert all(part.seconds > 0 for part in parts)
    body = next(body for body in server.bodies if "Answer: bb\n" in body["messages"][0]["content"])
    question = "Question: What is it?\nAnswer: bb\nRight: 4\nGive a score from 1 to 10."
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": question}],
        "temperature": 0.0,
        "max_tokens": 64,
        "top_p": 0.5,
    }
    assert set(server.paths) == {"POST /v1/chat/completions HTTP/1.1"}
    assert all("authorization" not in headers for headers in server.headers)


@pytest.mark.parametrize(
    "first",
    [BUSY, Reply(status=503, raw=b"starting"), DROPS, Reply(status=408, raw=b"")],
    ids=["429", "503", "drop", "408"],
)
def test_a_failure_that_passes_is_tried_again(first: Reply) -> None:
    with chat_server([first, Reply("Score: 10")]) as server:
        [part] = judged(made_judge(server), ["a"])
    assert (part.value, part.error) == (1.0, None)
    assert len(server.bodies) == 2


def test_a_server_that_hangs_is_given_its_time_and_asked_again() -> None:
    with chat_server([HANGS, Reply("Score: 10")]) as server:
        start = time.monotonic()
        [part] = judged(made_judge(server, timeout=0.2), ["a"])
    assert part.value == 1.0
    assert 0.2 <= time.monotonic() - start < 3


def test_a_server_that_always_hangs_makes_the_sample_invalid_in_bounded_time() -> None:
    with chat_server([HANGS]) as server:
        start = time.monotonic()
        [part] = judged(made_judge(server, timeout=0.1, retries=2), ["a"])
        assert time.monotonic() - start < 3
    assert part.value is None
    assert part.error is not None
    assert part.error.startswith("reward 'quality', prompt made:0, sample 0: ")
    assert part.error.endswith("no answer in 3 tries, the last: it must answer within 0.1 s, and did not")
    assert len(server.bodies) == 3


@pytest.mark.parametrize(
    ("reply", "reason", "num_tries"),
    [
        (BUSY, "no answer in 3 tries, the last: status 429: 'slow down'", 3),
        (DROPS, "no answer in 3 tries, the last: RemoteProtocolError", 3),
        (Reply(status=400, raw=b"no such model"), "must answer with status 200, got 400: 'no such model'", 1),
        (Reply(status=302, headers={"Location": "http://127.0.0.1:1/"}, raw=b""), "status 200, got 302", 1),
        (Reply(raw=b"<html>hello</html>"), "must send a chat completion with text, got '<html>hello</html>'", 1),
        (Reply(raw=b"\xff\xfe\x00"), "must send a chat completion with text", 1),
        (Reply(raw=b'{"choices": []}'), "must send a chat completion with text", 1),
        (Reply(raw=b'{"choices": [{"message": {"content": null}}]}'), "must send a chat completion with text", 1),
        (Reply(raw=b'{"choices": [7]}'), "must send a chat completion with text", 1),
        (Reply(raw=b"this is no gzip", headers={"Content-Encoding": "gzip"}), "must send what it says it sends", 1),
        (Reply("I do not want to say."), "must hold the pattern, got 'I do not want to say.'", 1),
        (Reply("Score: 1", finish="length"), "was cut by judge.max_new_tokens", 1),
    ],
)
def test_what_stays_wrong_makes_the_sample_invalid_with_the_reason(reply: Reply, reason: str, num_tries: int) -> None:
    with chat_server([reply]) as server:
        [part] = judged(made_judge(server, retries=2), ["a"])
    assert part.value is None
    assert part.error is not None
    assert reason in part.error
    assert len(server.bodies) == num_tries


def body_of(text: str) -> bytes:
    return Reply(text=text).body()


@pytest.mark.parametrize(
    ("reply", "value"),
    [
        (Reply(raw=gzip.compress(body_of("Score: 10")), headers={"Content-Encoding": "gzip"}), 1.0),
        (Reply(raw=zlib.compress(body_of("Score: 10")), headers={"Content-Encoding": "deflate"}), 1.0),
        (Reply(text="Score: 10", headers={"Content-Type": "application/json; charset=rot13"}), 1.0),
        (Reply(text="Score: 10", headers={"Content-Type": "application/json; charset=hex"}), 1.0),
        (Reply(text="Score: 10", headers={"Content-Type": "application/json; charset=utf-16"}), 1.0),
        (Reply(raw=b" " * (2**23 + 1)), "at most 8388608 bytes"),
        (Reply(raw=gzip.compress(b"0" * 2**24), headers={"Content-Encoding": "gzip"}), "at most 8388608 bytes"),
        (Reply(raw=gzip.compress(body_of("x"))[:-9], headers={"Content-Encoding": "gzip"}), "is cut"),
        (Reply(raw=b"no gzip", headers={"Content-Encoding": "gzip"}), "must send what it says it sends"),
        (
            Reply(raw=body_of("x"), headers={"Content-Encoding": "br"}),
            "must send plain bytes, gzip or deflate, got 'br'",
        ),
        (Reply(text="Score: 10", finish="content_filter"), "content filter"),
        (Reply(raw=b"[" * 2**20), "must send a chat completion"),
    ],
)
def test_what_a_server_sends_is_read_up_to_a_limit_and_as_utf_8(reply: Reply, value: float | str) -> None:
    with chat_server([reply]) as server:
        [part] = judged(made_judge(server, retries=0), ["x"])
    if isinstance(value, float):
        assert part == replace(part, value=value, error=None)
    else:
        assert part.value is None
        assert value in (part.error or "")


def test_a_body_that_unpacks_to_gigabytes_takes_little_memory() -> None:
    packer, bomb = zlib.compressobj(9, wbits=31), b""
    for _ in range(128):
        bomb += packer.compress(bytes(2**23))
    bomb += packer.flush()
    with chat_server([Reply(raw=bomb, headers={"Content-Encoding": "gzip"})]) as server:
        judge = made_judge(server, retries=0)
        tracemalloc.start()
        [part] = judged(judge, ["x"])
        _, most_bytes = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert "at most 8388608 bytes" in (part.error or "")
    assert most_bytes < 2**26


def test_a_server_that_is_not_there_makes_the_sample_invalid() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        server = ChatServer(lambda *_: Reply(), url=f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        [part] = judged(made_judge(server, retries=1), ["a"])
    assert part.value is None
    assert "no answer in 2 tries, the last: ConnectError" in str(part.error)


def test_a_failure_costs_the_samples_that_it_met_and_no_other() -> None:
    def picky(_: int, body: dict[str, Any]) -> Reply:
        return Reply(status=400, raw=b"no") if "Answer: bad" in body["messages"][0]["content"] else Reply("Score: 10")

    with chat_server(picky) as server:
        parts = judged(made_judge(server), ["good", "bad", "fine"])
    assert [part.value for part in parts] == [1.0, None, 1.0]


def test_tries_are_at_growing_distances_or_as_far_as_the_server_asks() -> None:
    with chat_server([BUSY, BUSY, Reply(status=429, headers={"Retry-After": "0.5"}, raw=b""), Reply()]) as server:
        judged(made_judge(server), ["a"])
    first, second, third = (later - earlier for earlier, later in zip(server.times, server.times[1:], strict=False))
    assert first >= 0.01
    assert 0.02 <= second < 0.4
    assert third >= 0.5


def test_at_most_so_many_requests_are_open_at_once_over_all_groups() -> None:
    with chat_server(lambda *_: Reply(seconds=0.05)) as server:
        judge = made_judge(server, concurrency=3)

        async def two_groups() -> None:
            group = stopped_group(5, answer="4")
            await asyncio.gather(*(judge(group, ["a"] * 5) for _ in range(2)))

        asyncio.run(two_groups())
    assert len(server.bodies) == 10
    assert server.most_at_once == 3


def test_a_judge_serves_one_event_loop_after_another() -> None:
    with chat_server([Reply("Score: 10", seconds=0.01)]) as server:
        judge = made_judge(server, concurrency=1)
        assert [part.value for _ in range(2) for part in judged(judge, ["a", "b"])] == [1.0] * 4


def test_text_that_is_no_utf_8_can_be_asked_about() -> None:
    with chat_server([Reply("Score: 10")]) as server:
        [part] = judged(made_judge(server), ["half of \ud83d a pair"])
    assert part.value == 1.0
    assert "\ud83d" in server.bodies[0]["messages"][0]["content"]


def test_the_key_is_sent_in_the_header_and_shown_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_JUDGE_KEY", f" {KEY}\n")
    with chat_server([Reply(status=401, raw=f"wrong key {KEY}".encode())]) as server:
        judge = made_judge(server, api_key_variable="MY_JUDGE_KEY")
        [part] = judged(judge, ["a"])
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert "wrong key (key)" in str(part.error)
    assert KEY not in str(part.error)
    assert all(KEY not in str(body) for body in server.bodies)


@pytest.mark.parametrize("value", [None, "", "  "])
def test_a_missing_key_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, value: str | None) -> None:
    monkeypatch.delenv("MY_JUDGE_KEY", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_JUDGE_KEY", value)
    with pytest.raises(SettingError, match="got 'MY_JUDGE_KEY', which is empty or not set"):
        made_judge(ChatServer(lambda *_: Reply(), url="http://localhost:1/v1"), api_key_variable="MY_JUDGE_KEY")


def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_JUDGE_KEY", "sécret\nX: y")
    with pytest.raises(SettingError, match="must be printable ASCII") as caught:
        made_judge(ChatServer(lambda *_: Reply(), url="http://localhost:1/v1"), api_key_variable="MY_JUDGE_KEY")
    assert "cret" not in str(caught.value)


# ------------------------------------------------------------------------------------------ in a run


def test_the_self_test_asks_the_judge_about_few_rows() -> None:
    data = DataConfig.model_validate(
        {"source": {"type": "jsonl", "path": "x"}, "task": "columns", "answer_column": "answer"}
    )
    task = build_task("columns", data)

    def likes_gold(_: int, body: dict[str, Any]) -> Reply:
        return Reply("Score: 1" if "Answer: \n" in body["messages"][0]["content"] else "Score: 10")

    with chat_server(likes_gold) as server:
        judge = JudgeConfig(engine=ServerJudge(url=server.url, model="m"), rubric=RUBRIC, verdict=OUT_OF_TEN)
        [reward] = build_rewards([RewardConfig(judge=judge)], task)
        prompts = [made_prompt(f"made:{number}", answer=str(number)) for number in range(100)]
        report = asyncio.run(score_gold(task, [reward], prompts))
    assert reward.name == "judge"
    assert len(server.bodies) == 2 * 16
    assert report.num_judged == 16
    assert report.warnings == []
    assert report.broken == []


def test_a_judge_that_never_answers_is_broken_by_the_self_test_with_the_reason() -> None:
    data = DataConfig.model_validate(
        {"source": {"type": "jsonl", "path": "x"}, "task": "columns", "answer_column": "answer"}
    )
    task = build_task("columns", data)
    with chat_server([Reply(status=404, raw=b"no model of that name")]) as server:
        judge = JudgeConfig(engine=ServerJudge(url=server.url, model="m"), rubric=RUBRIC, verdict=OUT_OF_TEN)
        [reward] = build_rewards([RewardConfig(judge=judge, name="mine")], task)
        prompts = [made_prompt(f"made:{number}", answer=str(number)) for number in range(100)]
        report = asyncio.run(score_gold(task, [reward], prompts))
    [broken] = report.broken
    assert "reward 'mine' failed in all 6 calls" in broken
    assert "no model of that name" in broken
