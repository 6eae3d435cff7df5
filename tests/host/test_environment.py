"""The environment of a lookup equals ``os.environ`` at that time, however it was changed."""

import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from gpucache.backends.options import Variables
from gpucache.host.environment import derived, environment, environment_since

_NAME = "GPUCACHE_TEST_OF_THE_ENVIRONMENT"


def test_every_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is set, set again or removed is seen by the next call; earlier results are kept."""
    answers = [environment()]
    for value in ("one", "two", "\udcff"):
        monkeypatch.setenv(_NAME, value)
        answers.append(environment())
        assert answers[-1] == dict(os.environ)
    monkeypatch.delenv(_NAME)
    assert [answer.get(_NAME) for answer in (*answers, environment())] == [None, "one", "two", "\udcff", None]


def test_what_did_not_change_is_not_read_again() -> None:
    """Two calls without a change between them return one mapping."""
    assert environment() is environment()


def test_an_environment_that_a_program_put_in_its_place_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any mapping assigned to ``os.environ`` counts."""
    monkeypatch.setattr(os, "environ", {_NAME: "own"})
    assert environment() == {_NAME: "own"}


def test_a_variable_that_was_another_before_is_there_with_both_values(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A variable set after the import was not set before; an unchanged one is there once."""
    before = environment_since("@before", "no module")
    assert f"{_NAME}@before" not in before
    monkeypatch.setenv(_NAME, "new")
    since = environment_since("@before", "no module")
    assert (since[_NAME], since[f"{_NAME}@before"]) == ("new", "")
    assert environment_since("@before", "no module") is since
    monkeypatch.delenv(_NAME)
    assert environment_since("@before", "no module") == before


def test_values_of_one_environment_are_never_those_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever another thread asks between two lines."""
    one, other = {_NAME: "one"}, {_NAME: "other"}
    monkeypatch.setattr(
        "gpucache.host.environment._marked",
        {name: (now, now) for name, now in (("one", one), ("other", other))},
    )
    variables = Variables((_NAME,))

    def meanwhile(frame: FrameType, event: str, _: object) -> Callable[..., Any] | None:
        if event == "line":
            variables.among(other)
        return meanwhile if frame.f_code is derived.__code__ else None

    before = sys.gettrace()
    sys.settrace(meanwhile)
    try:
        found = variables.among(one)
    finally:
        sys.settrace(before)
    assert (found, variables.among(other)) == (((_NAME, "one"),), ((_NAME, "other"),))
