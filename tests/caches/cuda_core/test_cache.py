"""Caches laid by the rules of cuda.core, and what lies in them against those rules."""

import os
from collections.abc import Callable, Sequence
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
from gpucache.errors import FormatError, UsageError
from tests.caches.cuda_core.build import lay, opened, place, temporary
from tests.caches.opened import HOUR_NS, PTX, kinds, only

SYSTEM = of_others("cuda.core")

_NOW = 2 * 10**18
_NAMES = st.sampled_from(["ab", "AB", "abc", "0f", "entries", "x" * 62, "0" * 62, "A" * 62, "\udcff", "é"])
_PAYLOADS = st.binary(max_size=80) | st.integers(0, len(PTX)).map(lambda cut: PTX[:cut])


def test_a_location_counts_as_enabled_once_it_is_there(tmp_path: Path) -> None:
    """The cache is opt-in: no variable says whether a program uses it."""
    environ = {"XDG_CACHE_HOME": str(tmp_path), "HOME": "/nowhere"}
    (before,) = SYSTEM.locations(environ)
    assert before.root == str(tmp_path / "cuda-python" / "program-cache") and not before.enabled
    Path(before.root).mkdir(parents=True)
    (after,) = SYSTEM.locations(environ)
    assert after.enabled and after.limit_bytes is None and after.decided_by == "XDG_CACHE_HOME"


@pytest.mark.parametrize("home", [{}, {"XDG_CACHE_HOME": ""}])
def test_without_the_variable_the_home_decides(home: dict[str, str]) -> None:
    """An empty one counts as unset."""
    (location,) = SYSTEM.locations({**home, "HOME": "/home/a"})
    assert location.root == "/home/a/.cache/cuda-python/program-cache" and location.decided_by == "HOME"


def test_without_any_variable_the_users_record_decides() -> None:
    """As Path.home() has it; a user without a record has no place."""
    assert [one.decided_by for one in SYSTEM.locations({})] in ([], ["the user's record"])


def test_a_relative_variable_is_complained_of() -> None:
    """Each current directory has a cache of its own then."""
    (location,) = SYSTEM.locations({"XDG_CACHE_HOME": "caches", "HOME": "/nowhere"})
    assert Path(location.root).is_absolute()
    assert any("set an absolute path" in problem for problem in location.problems)


@pytest.mark.parametrize(
    ("group", "name"),
    [("AB", "0" * 62), ("abc", "0" * 61), ("ab", "0" * 61), ("ab", "A" * 62), ("ab", "README")],
)
def test_a_file_that_is_not_called_as_an_entry_is_none(group: str, name: str, tmp_path: Path) -> None:
    """cuda.core would evict it too, which is told, but a user may have laid it there."""
    place(tmp_path, b"key", PTX)
    path = lay(tmp_path, group, name, PTX)
    cache = opened(tmp_path)
    assert only(cache).path != str(path)
    [checked] = cache.leftovers()
    assert kinds(checked) == [FindingKind.LEFTOVER] and group in checked.findings[0].detail
    assert not cache.repair(checked, None).findings[0].repaired and path.exists()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_entry_that_others_may_write_is_untrusted(mode: int, tmp_path: Path) -> None:
    """Whatever it holds now."""
    place(tmp_path, b"key", PTX).chmod(mode)
    cache = opened(tmp_path)
    assert kinds(cache.check(only(cache))) == [FindingKind.UNTRUSTED]


@pytest.mark.parametrize("folder", [".", "entries", "tmp", "entries/2c"])
def test_a_folder_that_others_may_write_is_untrusted(folder: str, tmp_path: Path) -> None:
    """They could put any binary there."""
    place(tmp_path, b"key", PTX)
    (tmp_path / "entries" / "2c").mkdir(exist_ok=True)
    assert not list(opened(tmp_path).leftovers())
    (tmp_path / folder).chmod(0o775)
    [checked] = opened(tmp_path).leftovers()
    assert kinds(checked) == [FindingKind.UNTRUSTED] and checked.entry == str(tmp_path / folder)


@pytest.mark.parametrize("parts", [("entries",), ("entries", "ab"), ("tmp",)])
def test_a_link_in_the_place_of_a_folder_is_found_and_not_followed(
    parts: tuple[str, ...], tmp_path: Path
) -> None:
    """What lies behind it is neither listed nor removed."""
    root, elsewhere = tmp_path / "cache", tmp_path / "elsewhere"
    lay(elsewhere, "ab", "0" * 62, PTX)
    temporary(elsewhere, "entry-0ld_one_", 2 * HOUR_NS, _NOW)
    link = root.joinpath(*parts)
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere.joinpath(*parts))
    cache = opened(root, _NOW)
    [checked] = cache.leftovers()
    assert not list(cache.scan()) and kinds(checked) == [FindingKind.UNTRUSTED]
    assert not cache.repair(checked, None).findings[0].repaired and link.is_symlink()


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _folder(path: Path) -> None:
    path.mkdir()


@pytest.mark.parametrize("make", [_pipe, _folder])
def test_what_is_strange_in_tmp_is_told_and_left(make: Callable[[Path], None], tmp_path: Path) -> None:
    """cuda.core sweeps regular files alone."""
    place(tmp_path, b"key", PTX)
    make(tmp_path / "tmp" / "entry-xxxxxxxx")
    cache = opened(tmp_path, _NOW)
    [checked] = cache.leftovers()
    assert kinds(checked) == [FindingKind.LEFTOVER]
    assert (
        not cache.repair(checked, None).findings[0].repaired
        and (tmp_path / "tmp" / "entry-xxxxxxxx").exists()
    )


def test_a_pipe_in_the_place_of_an_entry_is_found_without_waiting(tmp_path: Path) -> None:
    """A program that reads it waits for ever."""
    path = place(tmp_path, b"key", PTX)
    path.unlink()
    _pipe(path)
    cache = opened(tmp_path)
    entry = only(cache)
    assert kinds(cache.check(entry)) == [FindingKind.UNTRUSTED] and entry.damage
    with pytest.raises(FormatError):
        cache.extract(entry)


def test_strange_files_beside_entries_are_told_and_left(tmp_path: Path) -> None:
    """A file and a folder where neither belongs."""
    place(tmp_path, b"key", PTX)
    (tmp_path / "entries" / "README").write_bytes(b"")
    (tmp_path / "entries" / "2c" / "folder").mkdir(parents=True)
    found = list(opened(tmp_path).leftovers())
    assert [kinds(one) for one in found] == [[FindingKind.LEFTOVER]] * 2


def test_a_report_says_that_the_key_is_opaque(tmp_path: Path) -> None:
    """Besides what the binary is."""
    place(tmp_path, b"key", PTX)
    report = opened(tmp_path).report(only(opened(tmp_path)))
    assert ("architecture", "compute_90") in report.payload
    assert any("not stored" in field.value for field in report.key_fields)


def test_without_a_key_the_answer_is_that_keys_are_opaque(tmp_path: Path) -> None:
    """With the way to have misses explained."""
    [reach] = opened(tmp_path).explain({})
    assert reach.verdict is Verdict.OPAQUE_KEY and "compile_program" in reach.detail


def test_an_unknown_key_was_never_built(tmp_path: Path) -> None:
    """As far as cuda.core's files tell."""
    place(tmp_path, b"key", PTX)
    [reach] = opened(tmp_path).explain({"key": (b"0" * 64,)})
    assert reach.verdict is Verdict.NEVER_BUILT and not reach.nearest


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
    """Neither those that have one of the two folders, nor those that have more and no entry."""
    for part in parts:
        (tmp_path / part).mkdir()
    assert not SYSTEM.recognises(tmp_path)


@pytest.mark.parametrize("folders", [("tmp", "photos"), ("tmp", "entries/letters", "photos")])
def test_the_folder_of_something_else_is_one_finding(folders: tuple[str, ...], tmp_path: Path) -> None:
    """A home with a tmp of its own is told once to be no cache, and nothing in it is listed or removed."""
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "mine").write_bytes(b"")
    temporary(tmp_path, "mine", 2 * HOUR_NS, _NOW)
    cache = opened(tmp_path, _NOW)
    [checked] = cache.leftovers()
    assert "is no cache of cuda.core" in checked.findings[0].detail
    assert not list(cache.scan())
    assert not cache.repair(checked, None).findings[0].repaired
    assert len([path for path in tmp_path.rglob("mine") if path.is_file()]) == len(folders)


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


@pytest.mark.parametrize("stranger", ["entry-my_notes", "entry-list.txt"])
def test_a_store_that_names_files_by_a_sha256_is_left_alone(stranger: str, tmp_path: Path) -> None:
    """Only a binary, or the place, shows that what lies under such names is cuda.core's."""
    mine = [place(tmp_path, bytes([number]), b"mine") for number in range(3)]
    mine.append(tmp_path / "tmp" / stranger)
    mine[-1].write_bytes(b"mine")
    os.utime(mine[-1], (1, 1))
    cache = opened(tmp_path)
    assert all("neither it nor anything beside it is a CUDA binary" in entry.stays for entry in cache.scan())
    for entry in cache.scan():
        cache.repair(cache.check(entry), entry)
        cache.remove(entry, "--all")
    for checked in list(cache.leftovers()):
        assert not any(finding.repaired for finding in cache.repair(checked, None).findings)
    assert all(path.read_bytes() == b"mine" for path in mine)


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
