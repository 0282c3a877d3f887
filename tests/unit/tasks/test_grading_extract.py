"""Where an answer stands in a response."""

import pytest

from strop.tasks.grading.extract import after_thought, last_box, last_marked, last_tagged


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("plain", "plain"),
        ("<think>maybe 3</think>it is 4", "it is 4"),
        ("the template opened it</think>it is 4", "it is 4"),
        ("<think>a</think>b<think>c</think>d", "d"),
        ("it is 4<think>or is it", "it is 4"),
        ("<think>never ends", ""),
        ("<think>a<think>b</think>it is 4", ""),
        ("<think>a<think>b</think>c</think>it is 4", "it is 4"),
        ("a</think>b</think>it is 4", "it is 4"),
        ("it is 4<think>a<think>b</think>c", "it is 4"),
        ("<THINK>maybe 3</THINK>it is 4", "it is 4"),
        ("<thinking>maybe 3</thinking >it is 4", "it is 4"),
        ("<Think>maybe 3", ""),
        ("<thinking>maybe 3", ""),
        ("<thinker>it is 4", "<thinker>it is 4"),
    ],
)
def test_thoughts_are_left_out(response: str, answer: str) -> None:
    assert after_thought(response) == answer


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (r"\boxed{7}", "7"),
        (r"\boxed {7}", "7"),
        (r"first \boxed{7}, then \boxed{ 8 }", "8"),
        (r"\boxed{\frac{1}{\sqrt{2}}} done", r"\frac{1}{\sqrt{2}}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{1 + \boxed{3}}", r"1 + \boxed{3}"),
        (r"\boxed{\boxed{3}}", "3"),
        (r"\boxed{ \boxed{\boxed{3}} }", "3"),
        (r"\boxed{3}\boxed{\boxed{4}}", "4"),
        (r"\boxed{\boxed{3} \boxed{4}}", r"\boxed{3} \boxed{4}"),
        (r"\boxed{\boxed{}}", ""),
        (r"\boxed{7 and \boxed{8}", "8"),
        (r"\boxed{}", ""),
        (r"\boxed{7", None),
        (r"\boxed{7} and \boxed{8", "7"),
        (r"\boxed 7", None),
        ("7", None),
    ],
)
def test_the_last_whole_box_counts(text: str, content: str | None) -> None:
    assert last_box(text) == content


def test_marks_and_tags_take_the_last_mention() -> None:
    assert last_marked("#### 1\n#### 2 \nand so on", "####") == "2"
    assert last_marked("none", "####") is None
    assert last_tagged("<answer>1</answer> <answer> 2\n</answer> bye", "answer") == "2"
    assert last_tagged("<answer>1</answer> <answer>2", "answer") is None
    assert last_tagged("1</answer>", "answer") is None
