"""The one rule that makes JSON values of outcomes."""

import typing
from dataclasses import is_dataclass
from enum import Enum

import pytest

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import EvictOutcome, Kept, Removal
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.keys import Difference
from gpucache.outcomes.bench import Arm, Ratio, Sample
from gpucache.render.answers import RECORDS, SUMMARIES
from gpucache.render.document import json_of

MADE_OF = [(one.outcome, one.keys) for one in RECORDS if one.outcome] + list(SUMMARIES.items())
ENTRY = CacheEntry("gpucache", "k", "/k", 7, created_ns=0, last_used_ns=1_700_000_000_000_000_000)


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (kind, key.read or key.name.replace("_ms", "_ns"))
        for kind, keys in MADE_OF
        for key in keys
        if isinstance(key.read, str)
    ],
)
def test_every_key_is_read_from_an_attribute(kind: type, path: str) -> None:
    """A path leads over attributes that the outcome has, whichever of several kinds its parts are."""
    step, _, rest = path.partition(".")
    assert hasattr(kind, step)
    if not rest or step == "counts":  # of a table, whose names are the results
        return
    attribute = getattr(kind, step)
    got = attribute.fget if isinstance(attribute, property) else kind
    hint = typing.get_type_hints(got)["return" if isinstance(attribute, property) else step]
    parts = [one for one in (hint, *typing.get_args(hint)) if _is_made_of_attributes(one)]
    assert parts
    for part in parts:
        test_every_key_is_read_from_an_attribute(typing.cast("type", part), rest)


def _is_made_of_attributes(kind: object) -> bool:
    return is_dataclass(kind) or hasattr(kind, "_fields") or type(kind) is type(Enum)


def test_durations_are_in_milliseconds_and_instants_in_text() -> None:
    """A key that ends in _ms has a duration, and one that is read from an instant has its date."""
    assert json_of(WarmOutcome("p", "t", WarmResult.BUILT, compile_ns=1_234_567))["compile_ms"] == 1.235
    row = json_of(ENTRY)
    assert (row["created"], row["last_used"]) == ("1970-01-01T00:00:00Z", "2023-11-14T22:13:20Z")
    assert json_of(Sample(Arm.COLD, phases=(("compile", 2_000_000),)))["phases"] == {"compile": 2.0}


def test_ratios_are_rounded() -> None:
    """Three digits are more than any of them is worth."""
    assert json_of(Ratio(1.23456, 1.0, 2)) == {"median": 1.235, "low": 1.0, "high": 2}


def test_what_is_not_known_is_null_or_empty() -> None:
    """Empty text under a key that may be null is null, except where it is a value."""
    assert json_of(WarmOutcome("p", "", WarmResult.SKIPPED))["target"] is None
    assert json_of(ENTRY)["damage"] is None and json_of(ENTRY)["program"] == ""
    assert json_of(Difference("define N", "", None)) == {"field": "define N", "before": "", "now": None}


def test_a_problem_is_told_as_text() -> None:
    """What is wrong with an entry is one sentence, kind and remedy included."""
    problem = Problem(FindingKind.CORRUPT, "its checksum does not fit", "remove it")
    hurt = CacheEntry("gpucache", "k", "/k", 7, 0, 0, damage=problem)
    assert json_of(hurt)["damage"] == "corrupt: its checksum does not fit; remove it"


@pytest.mark.parametrize(("tried", "kept"), [(True, None), (False, None), (True, Kept("it is in use"))])
def test_a_removal_was_made_only_where_it_was_tried(tried: bool, kept: Kept | None) -> None:
    """What a plan expects is not said to be gone, and what stays has its reason."""
    row = json_of(EvictOutcome(Removal(ENTRY, "--all"), kept, tried=tried))
    assert row["removed"] is (tried and kept is None)
    assert row["kept_because"] == (kept.reason if kept else None)
    assert (row["key"], row["rule"]) == ("k", "--all")


def test_tables_and_lists_hold_records() -> None:
    """A summary that is made by hand may hold outcomes."""
    made = json_of({"caches": [ENTRY], "count": 1})
    assert made["count"] == 1 and made["caches"][0]["path"] == "/k"
