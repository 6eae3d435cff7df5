"""Real entries of two compilers in one cache, in the states that use and upgrades leave behind; after each
eviction every program hits that may start again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gpucache.model import Entry
from gpucache.store.interface import Found
from tests.cli.conftest import entry_files, entry_of, version_of

if TYPE_CHECKING:
    from pathlib import Path

    from gpucache.store.directory import DirectoryStore
    from tests.cli.conftest import Run

_RULES = (["--stale"], ["--superseded"], ["--stale", "--superseded"])
_BOUNDS = (["--max-size", "1GiB"], ["--older-than", "100d"], ["--stale", "--older-than", "100d"])
_SECONDS = 10 / 86_400
# Days since the entry of this environment's compiler was made and used, the same of another compiler's, and
# the rules by which that of the other one goes, and that of this one.
_STATES: dict[str, tuple[tuple[float, float], tuple[float, float], set[str], set[str]]] = {
    "two virtual environments": ((45, 0), (50, 0.5), set(), set()),
    "two containers on one volume, each of which runs weekly": ((60, 6), (60, 7), set(), set()),
    "two containers, one of which only reads the volume": ((50, 0), (90, 90), set(), set()),
    "an upgrade yesterday": ((1, 0), (50, 2), set(), set()),
    "an upgrade 29 days ago": ((29, 0), (50, 29.5), set(), set()),
    "an upgrade long ago, after which the older compiler was removed": (
        (50, 0), (90, 51), {"--stale", "--superseded"}, set(),
    ),
    "an upgrade whose rollback is this environment": ((90, 0), (50, 48), {"--stale"}, set()),
    "a rollback last week": ((90, 0), (20, 8), set(), set()),
    "a use seconds after the newer one was made": ((60, 0), (90, 60 - _SECONDS), {"--stale"}, set()),
    "a use that the newer one followed within seconds": ((60, 0), (90, 60 + _SECONDS), {"--stale"}, set()),
    "all on holiday for five weeks": ((36.5, 36), (80, 37), set(), set()),
}  # fmt: skip


def _placed(cache: Path, target: str, here: tuple[float, float], there: tuple[float, float]) -> list[Entry]:
    """The entries of the two compilers, and no other."""
    store, entry = entry_of(cache, target)
    for path in entry_files(cache):
        path.unlink()
    compiler = next(one for one in entry.head.toolchain if one[0] not in entry.head.toolchain_identity)
    return [version_of(store, entry, *here), version_of(store, entry, *there, compiler)]


def _hits(store: DirectoryStore, entries: list[Entry]) -> list[bool]:
    return [isinstance(store.get(one.key, use=False), Found) for one in entries]


@pytest.mark.parametrize("rules", [*_RULES, *_BOUNDS], ids=" ".join)
@pytest.mark.parametrize(("here", "there", "gone", "own"), _STATES.values(), ids=_STATES)
def test_the_next_start_hits_as_before(
    run: Run,
    cache: Path,
    nvrtc: str,
    rules: list[str],
    here: tuple[float, float],
    there: tuple[float, float],
    gone: set[str],
    own: set[str],
) -> None:
    """Only a compiler that is not here and was at rest for long loses its entries."""
    entries, (store, _) = _placed(cache, nvrtc, here, there), entry_of(cache, nvrtc)
    asked = {rule for rule in rules if rule in ("--stale", "--superseded")}
    answer = run("--json", "evict", *rules)
    bounded = rules in _BOUNDS
    assert answer.code == 0
    assert _hits(store, entries) == [bounded or not asked <= own, bounded or not asked <= gone]


@pytest.mark.parametrize("rules", _RULES, ids=" ".join)
def test_nothing_goes_where_readers_leave_no_trace(
    run: Run, cache: Path, nvrtc: str, rules: list[str]
) -> None:
    """Programs that only read a root use what no record shows; so the rule says why it chooses nothing."""
    entries, (store, _) = _placed(cache, nvrtc, (50, 50), (90, 90)), entry_of(cache, nvrtc)
    answer = run("evict", *rules)
    assert "no use of an entry of gpucache is recorded" in answer.err
    assert _hits(store, entries) == [True, True]


def test_verify_of_one_program_sees_that_its_compiler_is_in_use(run: Run, cache: Path, nvrtc: str) -> None:
    """Another program of the older compiler, which is not asked for, was used today."""
    older, (store, entry) = _placed(cache, nvrtc, (50, 0), (90, 51))[1], entry_of(cache, nvrtc)
    words = ("--json", "verify", older.key.hex[:12])
    assert [one["kind"] for one in run(*words).document["outcomes"]] == ["stale", "superseded"]
    compiler = next(one for one in entry.head.toolchain if one[0] not in entry.head.toolchain_identity)
    other = entry._replace(head=entry.head._replace(program="other.cu"))
    fields = tuple(
        one._replace(value="0" * 64) if one.label == "source" else one for one in entry.detail.key_fields
    )
    version_of(store, other._replace(detail=other.detail._replace(key_fields=fields)), 90, 1, compiler)
    assert [one["kind"] for one in run(*words).document["outcomes"]] == ["superseded"]
