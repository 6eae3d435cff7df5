"""Caches laid by the rules of cuda.core, and what is in them against those rules."""

import os
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.answers.evict import Kept
from gpucache.answers.lookup import Verdict
from gpucache.caches.cuda_core import CudaCore
from gpucache.caches.registry import of_others
from gpucache.errors import UsageError
from tests.caches.cuda_core.build import lay, opened, place
from tests.caches.opened import PTX, kinds, only

SYSTEM = of_others("cuda.core")

_NOW = 2 * 10**18
_NAMES = st.sampled_from(["ab", "AB", "abc", "0f", "entries", "x" * 62, "0" * 62, "A" * 62, "\udcff", "é"])
_PAYLOADS = st.binary(max_size=80) | st.integers(0, len(PTX)).map(lambda cut: PTX[:cut])


def test_without_any_variable_the_users_record_decides() -> None:
    """As Path.home() has it; a user without a record has no place."""
    assert [one.decided_by for one in SYSTEM.locations({})] in ([], ["the user's record"])


@pytest.mark.parametrize("folder", [".", "entries", "tmp", "entries/2c"])
def test_a_folder_that_others_may_write_is_untrusted(folder: str, tmp_path: Path) -> None:
    """They could put any binary there."""
    place(tmp_path, b"key", PTX)
    (tmp_path / "entries" / "2c").mkdir(exist_ok=True)
    assert not list(opened(tmp_path).leftovers())
    (tmp_path / folder).chmod(0o775)
    [checked] = opened(tmp_path).leftovers()
    assert kinds(checked) == [FindingKind.UNTRUSTED] and checked.entry == str(tmp_path / folder)


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


def test_without_a_key_the_answer_is_that_keys_are_opaque(tmp_path: Path) -> None:
    """With the way to have misses explained."""
    [reach] = opened(tmp_path).explain({})
    assert reach.verdict is Verdict.OPAQUE_KEY and "compile_program" in reach.detail


@pytest.mark.parametrize(
    "wanted", [{"source": (b"x",)}, {"key": (b"no hex",)}, {"key": (b"ab",)}, {"key": (b"",)}]
)
def test_what_cannot_be_asked_is_refused(wanted: dict[str, tuple[bytes, ...]], tmp_path: Path) -> None:
    """With what can."""
    with pytest.raises(UsageError, match="key"):
        list(opened(tmp_path).explain(wanted))


def test_an_ambiguous_key_is_refused(tmp_path: Path) -> None:
    """More digits tell."""
    for name in ("0" * 62, "0" * 61 + "1"):
        lay(tmp_path, "ab", name, PTX)
    with pytest.raises(UsageError, match="more digits"):
        list(opened(tmp_path).explain({"key": (b"ab00",)}))


@pytest.mark.parametrize("parts", [(), ("entries",), ("tmp",), ("entries", "tmp", "other")])
def test_other_folders_are_not_recognised(parts: tuple[str, ...], tmp_path: Path) -> None:
    """Neither those that have one of the two directories, nor those that have more and no entry."""
    for part in parts:
        (tmp_path / part).mkdir()
    assert not SYSTEM.recognises(tmp_path)


@given(files=st.lists(st.tuples(_NAMES, _NAMES, _PAYLOADS), max_size=6))
def test_whatever_lies_there_raises_nothing(files: list[tuple[str, str, bytes]]) -> None:
    """Names and bytes of any kind are listed, checked, repaired and removed."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        for group, name, payload in files:
            lay(root, group, name, payload)
        SYSTEM.recognises(root)
        lay(root, "ab", "c" * 62, b"one that makes it a cache")
        cache = opened(root)
        entries = list(cache.scan())
        called = {(group, name) for group, name, _ in files if group in ("ab", "0f") and name == "0" * 62}
        assert len(entries) == len({*called, ("ab", "c" * 62)})
        found = [(cache.check(entry), entry) for entry in entries]
        list(cache.leftovers())
        for checked, entry in found:
            assert bool(entry.damage) == bool(checked.findings)
            cache.report(entry)
            cache.repair(checked, entry)
        assert all((cache.remove(entry, "--all") is None) is not bool(entry.stays) for entry in cache.scan())


@pytest.mark.parametrize("default", [False, True])
def test_a_damaged_entry_goes_where_something_shows_whose_it_is(default: bool, tmp_path: Path) -> None:
    """Another entry that is a binary, or cuda.core's own place."""
    root = tmp_path / "cuda-python" / "program-cache" if default else tmp_path
    wrong = place(root, b"wrong", b"\0" * 64)
    if not default:
        place(root, b"key", PTX)
    cache = opened(root)
    entry = next(one for one in cache.scan() if one.path == str(wrong))
    assert cache.repair(cache.check(entry), entry).findings[0].repaired
    assert not wrong.exists()


@pytest.mark.parametrize("target", ["short", "x" * 200])
def test_a_link_does_not_show_whose_the_files_beside_it_are(target: str, tmp_path: Path) -> None:
    """However much its target takes on disk: what cannot be read says nothing of others."""
    mine = place(tmp_path, b"mine", b"mine, and dear to me")
    os.symlink(target, mine.with_name("0" * 62))  # noqa: PTH211
    cache = opened(tmp_path)
    for entry in list(cache.scan()):
        cache.repair(cache.check(entry), entry)
    for entry in list(cache.scan()):
        cache.remove(entry, "--all")
    assert mine.read_bytes() == b"mine, and dear to me"


def test_an_entry_that_a_program_makes_anew_during_its_removal_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each file is looked at once more just before it goes."""
    path = place(tmp_path, b"key", PTX)
    cache = opened(tmp_path)

    def meanwhile(_: CudaCore, names: Sequence[str]) -> Sequence[str]:
        (tmp_path / "new").write_bytes(PTX)
        (tmp_path / "new").rename(path)
        return names

    monkeypatch.setattr(CudaCore, "removal_order", meanwhile)
    assert cache.remove(only(cache), "--all") == Kept()
    assert path.read_bytes() == PTX
