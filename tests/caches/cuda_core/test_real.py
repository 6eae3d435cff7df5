"""Caches that cuda.core made itself with NVRTC, without a GPU, and what it makes of what we leave."""

import os
import shutil
import time
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Served
from gpucache.caches.registry import of_others
from tests.caches.cuda_core.build import (
    SOURCES,
    compile_program,
    opened,
    owner,
    program_key,
    require_nvrtc,
    temporary,
)
from tests.caches.opened import HOUR_NS, PTX, kinds, only

SYSTEM = of_others("cuda.core")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of three cubins and one LTO-IR."""
    require_nvrtc()
    root = tmp_path_factory.mktemp("made") / "cache"
    for name in SOURCES:
        compile_program(root, name)
    compile_program(root, "scale", "ltoir")
    return root


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "cache"))


def _file(root: Path, name: str) -> Path:
    [reach] = opened(root).explain({"key": (program_key(name).hex().encode(),)})
    return root / "entries" / reach.nearest[:2] / reach.nearest[2:]


def test_a_cache_as_cuda_core_makes_it_is_sound(root: Path) -> None:
    """Entries and directories give no finding; LTO-IR, which cannot be checked to its end, a note."""
    cache = opened(root)
    checked = [(cache.check(entry), entry) for entry in cache.scan()]
    assert len(checked) == 4 and not any(one.findings for one, _ in checked)
    assert [entry.artifact_kind for one, entry in checked if one.notes] == ["ltoir"]
    assert not list(cache.leftovers())


def test_entries_say_what_their_binaries_say(root: Path) -> None:
    """Kernel, architecture and kind are read from the binary."""
    told = {(one.program, one.target, one.artifact_kind) for one in opened(root).scan()}
    cubins = {(name, "cuda:sm_90", "cubin") for name in SOURCES}
    assert told == cubins | {("", "cuda:compute_90", "ltoir")}


def test_a_cache_is_recognised(root: Path) -> None:
    """The directory is; the directories in and above it are not."""
    assert SYSTEM.recognises(root)
    assert not any(map(SYSTEM.recognises, (root.parent, root / "entries", root / "tmp")))


def test_a_new_cache_is_recognised(tmp_path: Path) -> None:
    """One that cuda.core opened and wrote nothing to."""
    require_nvrtc()
    owner(tmp_path / "new")
    assert SYSTEM.recognises(tmp_path / "new")


def test_what_is_extracted_is_what_was_compiled(root: Path) -> None:
    """Byte by byte."""
    entry = next(one for one in opened(root).scan() if one.program == "twice")
    assert opened(root).extract(entry) == compile_program(root, "twice")


@pytest.mark.parametrize("start", ["XDG_CACHE_HOME", "HOME"])
def test_the_default_place_is_where_cuda_core_makes_it(
    start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the variable that isolates, and without any."""
    require_nvrtc()
    monkeypatch.delenv("XDG_CACHE_HOME")
    isolation = SYSTEM.isolation(tmp_path / "own").environment
    for name, value in isolation if start == "XDG_CACHE_HOME" else (("HOME", str(tmp_path)),):
        monkeypatch.setenv(name, value)
    (before,) = SYSTEM.locations(os.environ)
    owner(None)
    (after,) = SYSTEM.locations(os.environ)
    assert not before.enabled and after.enabled and after.decided_by == start
    assert SYSTEM.recognises(Path(after.root)) and Path(after.root).is_relative_to(tmp_path)


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (b"", FindingKind.TRUNCATED),
        (b"\x7fELF garbage", FindingKind.CORRUPT),
        (b"garbage", FindingKind.MISLABELLED),
    ],
)
def test_cuda_core_serves_damage_and_repair_has_it_compile_anew(
    damage: bytes, kind: FindingKind, root: Path
) -> None:
    """The damaged entry alone is built again; the others are hits that stay as they were."""
    good = compile_program(root, "scale")
    broken, kept = _file(root, "scale"), _file(root, "twice")
    before = kept.stat()
    broken.write_bytes(damage)
    assert compile_program(root, "scale") == damage

    cache = opened(root)
    found = [(cache.check(entry), entry) for entry in cache.scan()]
    [(checked, entry)] = [(one, entry) for one, entry in found if one.findings]
    assert kinds(checked) == [kind] and entry.damage and entry.damage.kind is kind
    assert all(finding.repaired for finding in cache.repair(checked, entry).findings)
    assert not broken.exists()
    assert compile_program(root, "scale") == good == broken.read_bytes()
    compile_program(root, "twice")
    after = kept.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


@pytest.mark.parametrize("cut", [1, 100, 1000])
def test_a_cubin_that_was_cut_is_found(cut: int, root: Path) -> None:
    """However little is missing."""
    path = _file(root, "scale")
    path.write_bytes(path.read_bytes()[:-cut])
    cache = opened(root)
    assert [kinds(cache.check(one)) for one in cache.scan() if one.path == str(path)] == [
        [FindingKind.CORRUPT]
    ]


def test_a_link_is_served_by_cuda_core_and_found(root: Path, tmp_path: Path) -> None:
    """Repair takes the link away and leaves what it names."""
    compile_program(root, "scale")
    path, elsewhere = _file(root, "scale"), tmp_path / "elsewhere"
    elsewhere.write_bytes(b"of somebody")
    path.unlink()
    path.symlink_to(elsewhere)
    assert compile_program(root, "scale") == b"of somebody"
    cache = opened(root)
    entry = next(one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.UNTRUSTED]
    assert cache.repair(checked, entry).findings[0].repaired
    assert not path.is_symlink() and elsewhere.exists()


def test_a_folder_in_the_place_of_an_entry_makes_the_program_fail_and_is_found(root: Path) -> None:
    """As is a file in the place of a directory."""
    path = _file(root, "scale")
    path.unlink()
    path.mkdir()
    with pytest.raises(IsADirectoryError):
        compile_program(root, "scale")
    shutil.rmtree(path.parent)
    path.parent.write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        compile_program(root, "scale")
    [checked] = opened(root).leftovers()
    assert kinds(checked) == [FindingKind.MISPLACED] and not checked.counts


def test_last_uses_order_entries_as_cuda_core_evicts_them(root: Path) -> None:
    """A hit of cuda.core moves an entry to the end; what it evicts for room are the first of our order."""
    paths = [Path(one.path) for one in opened(root).scan()]
    for age, path in enumerate(paths, start=1):
        written = path.stat().st_mtime_ns
        os.utime(path, ns=(written - age * HOUR_NS, written))
    compile_program(root, "scale")
    order = sorted(opened(root).scan(), key=lambda one: one.last_used_ns)
    assert order[-1].path == str(_file(root, "scale"))
    room = sum(Path(one.path).stat().st_size for one in order[2:])
    new = 8
    owner(root, max_size_bytes=room + new)["another"] = b"x" * new
    left = {one.path for one in opened(root).scan()}
    assert left >= {one.path for one in order[2:]} and not left & {one.path for one in order[:2]}


def test_looking_leaves_last_uses_alone(root: Path) -> None:
    """Scan, check, report and extraction do not keep an entry from being evicted."""
    old = 10**18
    for path in (Path(one.path) for one in opened(root).scan()):
        os.utime(path, ns=(old, path.stat().st_mtime_ns))
    cache = opened(root)
    for entry in cache.scan():
        cache.check(entry)
        cache.report(entry)
        cache.extract(entry)
    assert {one.last_used_ns for one in cache.scan()} == {old}


def test_what_dead_writers_left_is_what_cuda_core_sweeps(root: Path) -> None:
    """By age alone: a young file is of a writer at work."""
    now = time.time_ns()
    stale = temporary(root, "entry-0ld_one_", HOUR_NS + 60 * 10**9, now)
    odd = temporary(root, "of another name", 3 * HOUR_NS, now)
    young = temporary(root, "entry-young_1a", HOUR_NS - 60 * 10**9, now)
    found = {Path(one.entry) for one in opened(root).leftovers()}
    assert found == {stale, odd}
    owner(root)
    assert not any(path.exists() for path in found) and young.exists()


def test_repair_removes_what_dead_writers_left_and_no_more(root: Path) -> None:
    """The entries are hits afterwards."""
    stale = temporary(root, "entry-0ld_one_", 2 * HOUR_NS, time.time_ns())
    young = temporary(root, "entry-young_1a", 0, time.time_ns())
    cache = opened(root)
    [checked] = cache.leftovers()
    assert kinds(checked) == [FindingKind.LEFTOVER]
    assert cache.repair(checked, None).findings[0].repaired
    assert not stale.exists() and young.exists() and len(list(cache.scan())) == 4


def test_an_evicted_entry_is_compiled_anew(root: Path) -> None:
    """Also where its directory was left empty."""
    cache, path = opened(root), _file(root, "thrice")
    entry = next(one for one in cache.scan() if one.path == str(path))
    assert cache.remove(entry, "--all") is None and cache.finish_removals() == ()
    assert not path.exists()
    compile_program(root, "thrice")
    assert path.exists()


def test_a_key_of_cuda_core_is_answered(root: Path) -> None:
    """By what make_program_cache_key returns, and by the name on disk."""
    cache = opened(root)
    by_key, by_name = (
        next(cache.explain({"key": (digits.encode(),)}))
        for digits in (
            program_key("scale").hex(),
            (_file(root, "scale").parent.name + _file(root, "scale").name),
        )
    )
    assert by_key.verdict is by_name.verdict is Served.HIT and by_key.nearest == by_name.nearest
    assert cache.find(by_key.nearest)[0].program == "scale"


def test_a_key_whose_entry_is_broken_is_no_hit(root: Path) -> None:
    """Though cuda.core would serve it."""
    _file(root, "scale").write_bytes(PTX[:20])
    [reach] = opened(root).explain({"key": (program_key("scale").hex().encode(),)})
    assert reach.verdict is Verdict.CORRUPT and not reach.hit


def test_a_large_binary_is_told_from_its_beginning_and_checked_whole(tmp_path: Path) -> None:
    """A scan does not take it for damaged because it read no further."""
    require_nvrtc()
    large = PTX + PTX.split(b"\n", 3)[3].replace(b"scale", b"other") * 5000
    owner(tmp_path / "cache")["key"] = large
    cache = opened(tmp_path / "cache")
    entry = only(cache)
    assert (entry.program, entry.target, entry.damage) == ("scale", "cuda:compute_90", None)
    assert not cache.check(entry).findings
    Path(entry.path).write_bytes(large + b"{")
    assert kinds(cache.check(only(cache))) == [FindingKind.CORRUPT]
