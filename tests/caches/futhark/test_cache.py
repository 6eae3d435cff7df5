"""One cache file or a directory of them, as a cache."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind, Location
from gpucache.answers.verify import Checked
from gpucache.caches.registry import of_others
from gpucache.errors import FormatError
from tests.caches.futhark.build import KEY, PTX, SPIRV, file_bytes, only_entry, open_cache
from tests.caches.opened import kinds

SYSTEM = of_others("futhark")

_PARTIAL = ".futhark-0123456789abcdef.gpucache-tmp"
_HOUR_NS = 3600 * 10**9


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A sound cache file next to its source."""
    (tmp_path / "foo.fut").write_text("def main = 1\n", encoding="utf-8")
    path = tmp_path / "foo.fut.cache"
    path.write_bytes(file_bytes())
    path.chmod(0o600)
    return path


def _check(path: Path) -> Checked:
    return open_cache(path).check(only_entry(path))


def _write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    path.chmod(0o600)
    return path


def test_an_entry_of_a_file(file: Path) -> None:
    """Key, program, target and kind are those of the file."""
    entry = only_entry(file)
    assert (entry.key, entry.program, entry.damage) == (KEY.hex(), "foo.fut", None)
    assert (entry.target, entry.artifact_kind) == ("cuda:compute_80", "ptx")
    assert entry.path == str(file)


def test_times_of_an_entry(file: Path) -> None:
    """Made when it was written, used when it was read last."""
    os.utime(file, ns=(5 * 10**9, 3 * 10**9))
    assert (only_entry(file).created_ns, only_entry(file).last_used_ns) == (3 * 10**9, 5 * 10**9)
    os.utime(file, ns=(10**9, 3 * 10**9))
    assert only_entry(file).last_used_ns == 3 * 10**9


def test_a_folder_holds_its_cache_files(file: Path) -> None:
    """Other files, unfinished ones and directories below are left out."""
    _write(file.parent / _PARTIAL, file_bytes())
    _write(file.parent / "prog.cache", file_bytes())
    _write(file.parent / "foo.fut.tuning", b"main.tile=16\n")
    (file.parent / "below").mkdir()
    _write(file.parent / "below" / "x.cache", file_bytes())
    os.mkfifo(file.parent / "pipe")
    (file.parent / "link.cache").symlink_to(file)
    assert sorted(entry.program for entry in open_cache(file.parent).scan()) == ["foo.fut", "prog"]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("bar.fut.cache", True),
        ("bar.fut.fut-opencl", True),
        ("bar.fut.tuning", False),
        ("notes.cache", False),
    ],
)
def test_an_empty_file_in_a_folder_is_told_by_its_name(name: str, told: bool, tmp_path: Path) -> None:
    """A writer that was killed leaves one; it is truncated, and not removed as nothing shows whose it is."""
    _write(tmp_path / "foo.fut.fut-opencl", file_bytes())
    empty = _write(tmp_path / name, b"")
    cache = open_cache(tmp_path)
    found = [entry for entry in cache.scan() if entry.path == str(empty)]
    assert bool(found) is told
    for entry in found:
        assert kinds(cache.check(entry)) == [FindingKind.TRUNCATED, FindingKind.ORPHAN]
        assert cache.remove(entry, "--all") is not None and empty.exists()


def test_a_file_that_is_named_is_an_entry_whatever_is_in_it(tmp_path: Path) -> None:
    """Junk under a cache's name is a finding, not an error."""
    path = _write(tmp_path / "junk.cache", b"junk" * 20)
    cache, entry = open_cache(path), only_entry(path)
    assert (entry.key, kinds(_check(path))) == ("junk.cache", [FindingKind.CORRUPT])
    for ask in (cache.report, cache.extract):
        with pytest.raises(FormatError, match=r"junk\.cache"):
            ask(entry)


def test_a_missing_folder_is_a_problem_of_the_place(tmp_path: Path) -> None:
    """Futhark does not make it, and writes nothing."""
    (problem,) = open_cache(tmp_path / "no" / "foo.cache").location().problems
    assert "does not exist" in problem
    assert str(tmp_path / "no") in problem


@pytest.mark.parametrize(
    ("data", "kind", "words", "repaired"),
    [
        (b"", FindingKind.TRUNCATED, "is empty", False),
        (b"FUT", FindingKind.TRUNCATED, "ends before its", False),
        (b"FUTHARK\0abc", FindingKind.TRUNCATED, "ends before its", True),
        (file_bytes()[:60], FindingKind.TRUNCATED, "has fewer bytes", True),
        (file_bytes() + b"x", FindingKind.CORRUPT, "errno: Success", True),
        (file_bytes(payload=PTX[:-2]), FindingKind.CORRUPT, "compiles again", True),
        (file_bytes(payload=SPIRV[:-1]), FindingKind.CORRUPT, "does not compile again", True),
        (file_bytes(payload=b""), FindingKind.CORRUPT, "the payload is empty", True),
        (file_bytes(payload=b"what is it?"), FindingKind.MISLABELLED, "no format that gpucache knows", True),
        (b"junk" * 20, FindingKind.CORRUPT, "does not begin", False),
        (b"FUTHARK1" + bytes(60), FindingKind.CORRUPT, "does not begin", False),
    ],
)
def test_damage_is_told_and_removed_where_the_file_is_futharks(
    file: Path, data: bytes, kind: FindingKind, words: str, repaired: bool
) -> None:
    """Each kind has its consequence; what does not begin as Futhark's is neither evicted nor repaired."""
    _write(file, data)
    cache, entry = open_cache(file), only_entry(file)
    (finding,) = cache.repair(cache.check(entry), entry).findings
    assert (finding.kind, words in finding.detail, finding.repaired) == (kind, True, repaired)
    assert file.exists() is not repaired
    if not repaired:
        assert "left alone" in finding.detail and cache.remove(entry, "test") is not None and file.exists()


def test_a_file_whose_source_is_gone_is_an_orphan(file: Path) -> None:
    """Only a name that futhark bench gives reports a source."""
    (file.parent / "foo.fut").unlink()
    (finding,) = _check(file).findings
    assert (finding.kind, "foo.fut" in finding.detail) == (FindingKind.ORPHAN, True)
    assert kinds(_check(_write(file.parent / "prog.cache", file_bytes()))) == []


def test_a_report_has_the_header_and_the_payload(file: Path) -> None:
    """The whole key, and the part of it that Futhark compares."""
    report = open_cache(file).report(only_entry(file))
    fields = {one.label: one.value for one in report.key_fields}
    assert fields["key"] == KEY.hex()
    assert fields["all of the key that Futhark compares"] == KEY[:8].hex()
    payload = dict(report.payload)
    assert (payload["PTX version"], payload["names of entries"]) == ("8.0", "main_segmap")


def test_a_payload_that_nobody_knows_comes_out(file: Path) -> None:
    """It may be sound; a broken one does not."""
    _write(file, file_bytes(payload=b"what is it?"))
    assert open_cache(file).extract(only_entry(file)) == b"what is it?"
    _write(file, file_bytes(payload=PTX[:-2]))
    with pytest.raises(FormatError, match="broken"):
        open_cache(file).extract(only_entry(file))


def test_a_sound_file_is_left_by_repair(file: Path) -> None:
    """An orphan is worth knowing and stays."""
    (file.parent / "foo.fut").unlink()
    cache, entry = open_cache(file), only_entry(file)
    checked = cache.check(entry)
    assert cache.repair(checked, entry) == checked
    assert file.exists()


def test_an_unfinished_file_of_ours_is_a_leftover(file: Path) -> None:
    """Once nobody changed it for an hour; then repair removes it."""
    partial = _write(file.parent / _PARTIAL, file_bytes()[:60])
    young = open_cache(file.parent)
    assert [*young.leftovers()] == []
    old = SYSTEM.open(young.location(), clock=lambda: time.time_ns() + 2 * _HOUR_NS)
    (checked,) = old.leftovers()
    assert (checked.counts, kinds(checked)) == (False, [FindingKind.LEFTOVER])
    assert not young.repair(checked, None).findings[0].repaired
    assert old.repair(checked, None).findings[0].repaired
    assert not partial.exists()


def test_nothing_else_is_removed_as_a_leftover(file: Path) -> None:
    """A name that is not ours is refused, in the directory and outside."""
    cache = SYSTEM.open(open_cache(file).location(), clock=lambda: time.time_ns() + 2 * _HOUR_NS)
    for path in (file, file.parent / "foo.fut", file.parent / "x" / ".." / _PARTIAL):
        assert cache.repair(Checked(str(path), counts=False), None).findings == ()
    assert file.exists()


@given(st.binary(max_size=100) | st.binary(max_size=80).map(lambda rest: file_bytes()[:40] + rest))
def test_any_file_is_looked_at(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """Whatever is in a file: an entry, findings that fit its damage, and no error but a format error."""
    path = _write(tmp_path_factory.mktemp("any") / "x.cache", data)
    cache, entry = open_cache(path), only_entry(path)
    checked = cache.check(entry)
    assert bool(entry.damage) <= any(finding.kind.wrong for finding in checked.findings)
    for ask in (cache.report, cache.extract):
        try:
            ask(entry)
        except FormatError as error:
            assert "\n" not in str(error)


def test_a_location_keeps_its_own_problems(tmp_path: Path) -> None:
    """The problems that a caller found in a location are kept."""
    location = Location("futhark", str(tmp_path), "--cache", enabled=True, problems=("told",))
    assert SYSTEM.open(location).location().problems == ("told",)
