"""The one rule that makes JSON values of outcomes."""

import pytest

from gpucache.answers.bench import Arm, Ratio, Sample
from gpucache.answers.document import json_of
from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import EvictOutcome, Kept, Removal
from gpucache.answers.schema import ANSWERS, meanings, records
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.keys import Difference

ENTRY = CacheEntry("gpucache", "k", "/k", 7, created_ns=0, last_used_ns=1_700_000_000_000_000_000)


@pytest.mark.parametrize("kind", [*records(), *(one.summary for one in ANSWERS if one.summary)])
def test_every_key_has_a_meaning(kind: type) -> None:
    """Every key of a document is a field or property whose docstring is a sentence."""
    assert [
        key.name for key, meaning in meanings(kind) if not meaning.endswith((".", "paper of 2021, sync."))
    ] == []


def test_durations_are_in_milliseconds_and_instants_in_text() -> None:
    """A key that ends in _ms has a duration, and one that is read from an instant has its date."""
    assert json_of(WarmOutcome("p", "t", WarmResult.BUILT, compile_ns=1_234_567))["compile_ms"] == 1.235
    row = json_of(ENTRY)
    assert (row["created"], row["last_used"]) == ("1970-01-01T00:00:00Z", "2023-11-14T22:13:20Z")
    assert json_of(Sample(Arm.COLD, phases=(("compile", 2_000_000),)))["phases"] == {"compile": 2.0}


def test_ratios_are_rounded() -> None:
    """All ratios have three digits."""
    assert json_of(Ratio(1.23456, 1.0, 2)) == {"median": 1.235, "low": 1.0, "high": 2}


def test_what_is_not_known_is_null_or_empty() -> None:
    """Empty text under a key that may be null is null, except where it is a value."""
    assert json_of(WarmOutcome("p", "", WarmResult.SKIPPED))["target"] is None
    assert json_of(ENTRY)["damage"] is None and json_of(ENTRY)["program"] == ""
    assert json_of(Difference("define N", "", None)) == {"field": "define N", "before": "", "now": None}


def test_a_problem_is_told_as_text() -> None:
    """The problem of an entry is one sentence, kind and remedy included."""
    problem = Problem(FindingKind.CORRUPT, "its checksum does not fit", "remove it")
    hurt = CacheEntry("gpucache", "k", "/k", 7, 0, 0, damage=problem)
    assert json_of(hurt)["damage"] == "corrupt: its checksum does not fit; remove it"


@pytest.mark.parametrize(("tried", "kept"), [(True, None), (False, None), (True, Kept("it is in use"))])
def test_a_removal_was_made_only_where_it_was_tried(tried: bool, kept: Kept | None) -> None:
    """A planned removal is not reported as done, and an entry that stays has its reason."""
    row = json_of(EvictOutcome(Removal(ENTRY, "--all"), kept, tried=tried))
    assert row["removed"] is (tried and kept is None)
    assert row["kept_because"] == (kept.reason if kept else None)
    assert (row["key"], row["rule"]) == ("k", "--all")


def test_tables_and_lists_hold_records() -> None:
    """A summary that is made by hand may contain outcomes."""
    made = json_of({"caches": [ENTRY], "count": 1})
    assert made["count"] == 1 and made["caches"][0]["path"] == "/k"
