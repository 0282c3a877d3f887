"""A patch changes exactly the function that it knows, or nothing at all."""

import importlib
import multiprocessing
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from strop.devices.patchkit import Outcome, Patch, PatchedEntry, PatchRefusedError, apply_patches, describe, fingerprint

LIBRARY = '''
"""A library with a fault in it."""


class Engine:
    """Wakes more than it was asked to."""

    def wake(self, tags):
        return ["weights", "cache"]

    @staticmethod
    def version():
        return 1

    @classmethod
    def name(cls):
        return cls.__name__


class Special(Engine):
    pass


def pause():
    return "paused at once"


builtin = len
'''

PATCHES = """
import functools


def wake_only_tagged(original):
    @functools.wraps(original)
    def wake(self, tags):
        return [part for part in original(self, tags) if part in tags]

    return wake


def one_more(original):
    def replaced():
        return original() + 1

    return replaced


def named(original):
    def name(cls):
        return "patched " + original(cls)

    return name


def unchanged(original):
    return original
"""

ENTRY = """
import fake_library


def wake_weights():
    return fake_library.Engine().wake(["weights"])
"""


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    modules = {"fake_library": LIBRARY, "fake_patches": PATCHES, "fake_entry": ENTRY}
    for name, code in modules.items():
        (tmp_path / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("fake_library")
    for name in modules:
        sys.modules.pop(name, None)


def wake_patch(library: ModuleType, **changes: object) -> Patch:
    fields = {
        "name": "wake-tags",
        "target": "fake_library:Engine.wake",
        "replacement": "fake_patches:wake_only_tagged",
        "accepted": frozenset({fingerprint(vars(library.Engine)["wake"])}),
        "reason": "wakes the cache too",
        "expires": "2.0",
    }
    return Patch(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_known_source_is_replaced(library: ModuleType) -> None:
    assert apply_patches([wake_patch(library)]) == {"wake-tags": Outcome.APPLIED}
    assert library.Engine().wake(["weights"]) == ["weights"]


def test_a_second_call_finds_the_patch_and_changes_nothing(library: ModuleType) -> None:
    patch = wake_patch(library)
    apply_patches([patch])
    function = library.Engine.wake
    assert apply_patches([patch]) == {"wake-tags": Outcome.ALREADY_APPLIED}
    assert library.Engine.wake is function


def test_a_source_that_was_fixed_upstream_is_left_alone(library: ModuleType) -> None:
    patch = wake_patch(library)
    fixed = wake_patch(library, accepted=frozenset(), fixed=patch.accepted)
    original = library.Engine.wake
    assert apply_patches([fixed]) == {"wake-tags": Outcome.FIXED_UPSTREAM}
    assert library.Engine.wake is original


def test_static_and_class_methods_stay_what_they_are(library: ModuleType) -> None:
    engine = vars(library.Engine)
    version, name = fingerprint(engine["version"].__func__), fingerprint(engine["name"].__func__)
    apply_patches(
        [
            Patch("version", "fake_library:Engine.version", "fake_patches:one_more", frozenset({version})),
            Patch("name", "fake_library:Engine.name", "fake_patches:named", frozenset({name})),
        ]
    )
    assert library.Engine.version() == library.Engine().version() == 2
    assert library.Special.name() == "patched Special"


def test_white_space_does_not_change_a_fingerprint_and_code_does(library: ModuleType, tmp_path: Path) -> None:
    bodies = {"spaced": "def f(a, b):\n\n    return a  +  b\n", "plain": "def f(a,b):\n  return a+b\n"}
    bodies["other"] = "def f(a,b):\n  return a-b\n"
    prints = {}
    for name, body in bodies.items():
        (tmp_path / f"fake_{name}.py").write_text(body)
        prints[name] = fingerprint(importlib.import_module(f"fake_{name}").f)
    assert prints["spaced"] == prints["plain"] != prints["other"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"accepted": frozenset({"0" * 64})}, "knows 1 source"),
        ({"target": "fake_library:Engine.sleep"}, "not there"),
        ({"target": "fake_absent:Engine.wake"}, "not there"),
        ({"target": "fake_library:Special.wake"}, "not there"),
        ({"target": "fake_library:builtin"}, "must name a Python function"),
        ({"replacement": "fake_patches:unchanged", "name": "x"}, "must return a new Python function"),
    ],
)
def test_one_patch_that_does_not_fit_leaves_every_target_as_it_was(
    library: ModuleType, changes: dict[str, object], message: str
) -> None:
    pause = fingerprint(library.pause)
    good = Patch("pause", "fake_library:pause", "fake_patches:one_more", frozenset({pause}))
    before = (library.pause, library.Engine.wake)
    with pytest.raises(PatchRefusedError, match=message):
        apply_patches([good, wake_patch(library, **changes)])
    assert (library.pause, library.Engine.wake) == before


def test_a_target_that_another_patch_holds_is_refused(library: ModuleType) -> None:
    apply_patches([wake_patch(library)])
    with pytest.raises(PatchRefusedError, match="patched by wake-tags"):
        apply_patches([wake_patch(library, name="another")])


def test_two_patches_of_one_target_are_refused(library: ModuleType) -> None:
    with pytest.raises(PatchRefusedError, match=r"fake_library:Engine\.wake"):
        apply_patches([wake_patch(library), wake_patch(library, name="another")])


def test_a_known_function_inside_a_foreign_wrapper_is_not_known(library: ModuleType) -> None:
    patch = wake_patch(library)
    library.Engine.wake = importlib.import_module("fake_patches").wake_only_tagged(library.Engine.wake)
    with pytest.raises(PatchRefusedError, match="got another"):
        apply_patches([patch])


def test_a_spawned_child_has_the_patch_where_its_entry_applies_it(library: ModuleType) -> None:
    patch = wake_patch(library)
    wake_weights = importlib.import_module("fake_entry").wake_weights
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(wake_weights) == ["weights", "cache"]
        assert pool.apply(PatchedEntry((patch,), wake_weights)) == ["weights"]


def test_the_list_of_patches_names_target_expiry_and_reason(library: ModuleType) -> None:
    assert describe([wake_patch(library)]) == [
        "patch wake-tags of fake_library:Engine.wake, until 2.0: wakes the cache too"
    ]
