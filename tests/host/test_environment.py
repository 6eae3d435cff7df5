"""The environment as a lookup reads it: what ``os.environ`` says then, however it came to say so."""

import os

import pytest

from gpucache.host.environment import environment

_NAME = "GPUCACHE_TEST_OF_THE_ENVIRONMENT"


def test_every_change_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A variable that is set, set again, or removed is so in the next answer; earlier answers stay."""
    answers = [environment()]
    for value in ("one", "two", "\udcff"):
        monkeypatch.setenv(_NAME, value)
        answers.append(environment())
        assert answers[-1] == dict(os.environ)
    monkeypatch.delenv(_NAME)
    assert [answer.get(_NAME) for answer in (*answers, environment())] == [None, "one", "two", "\udcff", None]


def test_what_did_not_change_is_not_read_again() -> None:
    """Two calls without a change between them give one mapping."""
    assert environment() is environment()


def test_an_environment_that_a_program_put_in_its_place_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever mapping stands in ``os.environ`` is the one that counts."""
    monkeypatch.setattr(os, "environ", {_NAME: "own"})
    assert environment() == {_NAME: "own"}
