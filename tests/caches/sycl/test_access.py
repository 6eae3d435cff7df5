"""Places and files that may not be read: told in a sentence, never an error of the system."""

import os
import sys
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.caches.registry import of_others
from gpucache.errors import FormatError
from tests.caches.sycl.build import (
    Made,
    copy,
    lock,
    opened,
    put,
    readable_root,
    repaired,
    told,
    unprivileged,
    verified,
)

SYSTEM = of_others("sycl")

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="modes do not stop a reader there")


def _close(path: Path, mode: int = 0) -> None:
    path.chmod(mode)


@pytest.mark.parametrize(
    ("closed", "mode"),
    [("libsycl_cache", 0), ("libsycl_cache", 0o444), ("libsycl_cache", 0o111), ("", 0), ("", 0o444)],
)
def test_a_closed_place_is_a_problem_and_has_no_entries(closed: str, mode: int) -> None:
    """The folder itself, or one above it, without the right to list, to enter, or both."""
    with readable_root() as root:
        put(root)
        _close(root if closed else root.parent, mode)
        with unprivileged():
            (location,) = SYSTEM.locations({"SYCL_CACHE_DIR": str(root), "SYCL_CACHE_PERSISTENT": "1"})
            recognised = SYSTEM.recognises(root)
            by_hand = opened(root)
            cache = SYSTEM.open(location)
            entries, found = list(cache.scan()), cache.find("abcd")
            ((checked, _),) = verified(cache)
            again = cache.repair(checked, None)
            said = cache.finish_removals()
            (reach,) = cache.explain({"kernel": (b"k",)})
        _close(root.parent, 0o755)

        (problem,) = location.problems
        assert f"{root} cannot be read (Permission denied)" in problem
        assert (cache.location().problems, by_hand.location().problems) == ((problem,), (problem,))
        assert (entries, found, list(said)) == ([], [], [])
        assert recognised is (bool(closed) and mode != 0o444)  # by its name alone
        assert [(one.kind, one.detail) for one in checked.findings] == [(FindingKind.UNTRUSTED, problem)]
        assert not again.findings[0].repaired
        assert (reach.verdict, reach.detail) == (Verdict.NOT_CONSULTED, problem)


def test_a_place_below_a_closed_folder_that_is_not_there_is_a_problem() -> None:
    """Whether it is there cannot be known."""
    with readable_root() as root:
        _close(root)
        environ = {"SYCL_CACHE_DIR": str(root / "p" / "c"), "SYCL_CACHE_PERSISTENT": "1"}
        with unprivileged():
            (location,) = SYSTEM.locations(environ)
            entries = list(SYSTEM.open(location).scan())

        assert "cannot be read (Permission denied)" in location.problems[0]
        assert entries == []


@pytest.mark.parametrize("depth", [1, 2, 4])
@pytest.mark.parametrize("mode", [0, 0o444])
def test_a_closed_folder_inside_is_untrusted(mode: int, depth: int) -> None:
    """One finding; the rest of the cache is read."""
    with readable_root() as root:
        inner = put(root, Made(device=b"A/B/C/D"))
        put(root)
        _close(root.joinpath(*inner.relative_to(root).parts[:depth]), mode)
        with unprivileged():
            said, entries = told(root), list(opened(root).scan())

        assert [one.partition(":")[0] for one in said] == ["untrusted"]
        assert "cannot be read (Permission denied)" in said[0]
        assert len(entries) == 1


@pytest.mark.parametrize(
    ("name", "effect"), [("0.bin", "a program that asks for it gets nothing"), ("0.src", "pass it over")]
)
def test_a_file_that_may_not_be_read_is_untrusted(name: str, effect: str) -> None:
    """Its entry is not sound, and says why wherever it is asked."""
    with readable_root() as root:
        _close(put(root) / name)
        with unprivileged():
            cache = opened(root)
            (entry,) = cache.scan()
            checked = cache.check(entry)
            with pytest.raises(FormatError, match="cannot be read"):
                cache.report(entry)
            with pytest.raises(FormatError, match="cannot be read"):
                cache.extract(entry)

        (finding,) = checked.findings
        assert finding.kind is FindingKind.UNTRUSTED
        assert finding.detail.startswith(f"{name} cannot be read (Permission denied): ")
        assert effect in finding.detail
        assert str(entry.damage) == f"untrusted: {finding.detail}"


def test_a_copy_behind_a_binary_that_may_not_be_read_is_not_reached() -> None:
    """Programs take the first whose key fits."""
    with readable_root() as root:
        folder = put(root)
        copy(folder, 0, 1)
        _close(folder / "0.bin")
        with unprivileged():
            said = told(root)

        assert any("misplaced: programs take 0 for it" in one for one in said)


def test_a_file_that_may_not_be_read_is_not_removed_by_a_repair(tmp_path: Path) -> None:
    """It is for its owner to open."""
    with readable_root() as root:
        folder = put(root)
        if os.geteuid() == 0:
            os.chown(root, 65534, -1)
            for path in root.rglob("*"):
                os.chown(path, 65534, -1)
        _close(folder / "0.src")
        with unprivileged():
            (checked,) = repaired(root)

        assert [finding.repaired for finding in checked.findings] == [False]
        assert (folder / "0.src").exists()


def test_an_entry_whose_folder_was_closed_since_the_scan_is_untrusted() -> None:
    """It is a finding of the entry, not a word beside a sound one."""
    with readable_root() as root:
        folder = put(root)
        with unprivileged():
            cache = opened(root)
            (entry,) = cache.scan()
        _close(folder)
        with unprivileged():
            checked = cache.check(entry)

        assert [finding.kind for finding in checked.findings] == [FindingKind.UNTRUSTED]
        assert checked.notes == ()


def test_a_lock_that_may_not_be_read_is_seen() -> None:
    """Locks are never readable."""
    with readable_root() as root:
        folder = put(root)
        lock(folder / "0.lock")
        _close(folder / "0.lock", 0o200)
        with unprivileged():
            said = told(root)

        assert [one.partition(":")[0] for one in said] == ["misplaced"]
