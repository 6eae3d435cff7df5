"""Entries as they are scanned, reported, checked and extracted."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.caches.pyopencl import entries
from gpucache.errors import FormatError
from gpucache.keys import digest
from tests.caches.pyopencl.build import SOURCE, binary, header, info, only, opened, touch, write

LOG = "begun\nOptions used by backend compiler: -DX=1 -I /v/pyopencl/cl\ndone"


def _found(root: Path) -> list[tuple[FindingKind, str]]:
    cache = opened(root)
    return [(one.kind, one.detail) for one in cache.check(only(cache)).findings]


def test_an_entry_as_it_is_scanned(root: Path, key: str) -> None:
    """An entry has its kernel's name, what its binary says, the options of its log, and both times."""
    folder = write(root, key, told=info(log=LOG))
    os.utime(folder / "binary", (300, 200))
    entry = only(opened(root))
    assert (entry.key, entry.program, entry.target) == (key, "show", "a device")
    assert (entry.artifact_kind, entry.variant) == ("rusticl", "-DX=1 -I /v/pyopencl/cl")
    assert (entry.created_ns, entry.last_used_ns) == (200 * 10**9, 300 * 10**9)
    assert entry.fields[0] == ("source", digest(SOURCE))
    assert (entry.unique, entry.damage) == (True, None)
    assert entry.size_bytes >= 3 * 512


def test_a_report(root: Path, key: str, tmp_path: Path) -> None:
    """A report has the source, each header with what became of it, and the log."""
    same, changed = header(tmp_path / "a.h", b"a"), header(tmp_path / "b.h", b"b")
    (tmp_path / "b.h").write_bytes(b"c")
    touch(tmp_path / "b.h")
    write(root, key, told=info([same, changed], LOG))
    cache = opened(root)
    report = cache.report(only(cache))
    fields = {one.label: one.value for one in report.key_fields}
    assert (fields["source"], fields["options"]) == (digest(SOURCE), "-DX=1 -I /v/pyopencl/cl")
    assert fields[f"header {tmp_path}/a.h"].endswith("unchanged")
    assert fields[f"header {tmp_path}/b.h"].endswith(" changed")
    assert (report.build_log, dict(report.payload)["device"]) == (LOG, "a device")


def _without(name: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).unlink()


def _with(name: str, content: bytes) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_bytes(content)


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


_DAMAGE: dict[str, tuple[Callable[[Path], object], FindingKind, str]] = {
    "no info": (_without("info"), FindingKind.ORPHAN, "builds it again"),
    "empty info": (_with("info", b""), FindingKind.TRUNCATED, "builds it again"),
    "cut info": (_with("info", info()[:-9]), FindingKind.TRUNCATED, entries.DIES),
    "another info": (_with("info", b"\x80\x04cos\nsystem\n."), FindingKind.CORRUPT, "os.system"),
    "no binary": (_without("binary"), FindingKind.TRUNCATED, entries.DIES),
    "empty binary": (_with("binary", b""), FindingKind.TRUNCATED, entries.DIES),
    "cut binary": (_with("binary", binary()[:-9]), FindingKind.CORRUPT, entries.DIES),
    "no source": (_without("source.cl"), FindingKind.ORPHAN, "serves the entry all the same"),
    "nothing": (_emptied, FindingKind.ORPHAN, "at the next use"),
    "a stray file": (_with("notes.txt", b""), FindingKind.LEFTOVER, "notes.txt"),
    "a folder": (lambda folder: (folder / "sub").mkdir(), FindingKind.LEFTOVER, entries.DIES),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_damage_is_found(root: Path, key: str, damage: str) -> None:
    """Each kind of damage is one finding, which tells what PyOpenCL does with it."""
    harm, kind, words = _DAMAGE[damage]
    harm(write(root, key))
    ((found, detail),) = _found(root)
    assert found is kind
    assert words in detail


@pytest.mark.parametrize("damage", ["cut info", "no binary", "cut binary", "another info"])
def test_what_does_not_read_raises_a_format_error(root: Path, key: str, damage: str) -> None:
    """A report, or the binary, of a damaged entry is refused with a reason."""
    _DAMAGE[damage][0](write(root, key))
    cache = opened(root)
    with pytest.raises(FormatError):
        cache.report(only(cache)) if "info" in damage else cache.extract(only(cache))


@pytest.mark.parametrize("name", ["no info", "empty binary"])
def test_a_scan_sees_what_is_missing(root: Path, key: str, name: str) -> None:
    """A scan says of an entry without content that it is damaged."""
    _DAMAGE[name][0](write(root, key))
    assert str(only(opened(root)).damage).startswith("truncated: ")


def test_a_changed_header_makes_an_entry_stale(root: Path, key: str, tmp_path: Path) -> None:
    """An entry whose header changed will be built again, and the header is named."""
    write(root, key, told=info([header(tmp_path / "a.h", b"a")]))
    (tmp_path / "a.h").write_bytes(b"b")
    touch(tmp_path / "a.h")
    ((kind, detail),) = _found(root)
    assert kind is FindingKind.STALE
    assert f"{tmp_path}/a.h was changed" in detail


@pytest.mark.parametrize("data", [bytes(range(200, 256)) * 20, b"no binary", b"\x89PNG"])
def test_a_binary_of_no_known_platform_is_told_and_left(data: bytes, root: Path, key: str) -> None:
    """It may be damage, of which programs die, or that of a platform that is not known here."""
    folder = write(root, key)
    (folder / "binary").write_bytes(data)
    ((kind, detail),) = _found(root)
    assert kind is FindingKind.UNSUPPORTED and "dies with KeyError" in detail
    cache = opened(root)
    entry = only(cache)
    assert not cache.repair(cache.check(entry), entry).findings[0].repaired and folder.exists()


def test_a_missing_header_makes_an_entry_stale(root: Path, key: str, tmp_path: Path) -> None:
    """An entry whose header is gone will be built again."""
    write(root, key, told=info([header(tmp_path / "a.h", b"a")]))
    (tmp_path / "a.h").unlink()
    ((kind, detail),) = _found(root)
    assert kind is FindingKind.STALE
    assert "no longer there" in detail


def test_a_header_without_a_record_is_noted(root: Path, key: str) -> None:
    """A header that PyOpenCL does not watch is noted by its name."""
    write(root, key, source=b'#include "a.h" // why\n' + SOURCE)
    cache = opened(root)
    (note,) = cache.check(only(cache)).notes
    assert "a.h" in note


def test_an_entry_of_several_kernels(root: Path, key: str) -> None:
    """The first kernel names the program, so that it is found by that; the others are counted."""
    write(root, key, source=SOURCE + SOURCE.replace(b"show", b"other"))
    entry = only(opened(root))
    assert (entry.program, entry.variant) == ("show", "and 1 more kernel")


def test_a_group_that_may_write_is_no_finding(root: Path, key: str) -> None:
    """Files as the umask 002 of many systems makes them are believed."""
    folder = write(root, key)
    for path in (*folder.iterdir(), folder):
        path.chmod(0o775)
    assert _found(root) == []


@given(st.binary(max_size=200), st.binary(max_size=200), st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_any_files_are_looked_at(source: bytes, data: bytes, told: bytes) -> None:
    """An entry of any bytes is scanned, checked and asked for; what does not read is a FormatError."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place, "0123456789abcdef" * 2)
        folder.mkdir()
        for name, content in (("source.cl", source), ("binary", data), ("info", told)):
            (folder / name).write_bytes(content)
        cache = opened(Path(place))
        entry = only(cache)
        assert cache.check(entry).findings
        assert len(list(cache.explain({"source": (source,)}))) == 1
        with pytest.raises(FormatError):
            cache.report(entry)


def test_names_in_a_header_are_safe_to_show(root: Path, key: str) -> None:
    """What an entry says of its headers cannot steer a terminal."""
    write(root, key, told=info([("/a\x1b[2J.h", 1.0, "0" * 32)]))
    ((_, detail),) = _found(root)
    assert detail.isprintable()


def test_a_link_is_not_followed(root: Path, key: str, tmp_path: Path) -> None:
    """A file of an entry that is a link is not believed, and not read."""
    folder = write(root, key)
    (tmp_path / "secret").write_bytes(b"secret")
    (folder / "binary").unlink()
    (folder / "binary").symlink_to(tmp_path / "secret")
    ((kind, _),) = _found(root)
    assert kind is FindingKind.UNTRUSTED
    cache = opened(root)
    with pytest.raises(FormatError, match="link"):
        cache.extract(only(cache))


def test_a_file_that_anybody_writes_is_not_believed(root: Path, key: str) -> None:
    """PyOpenCL unpickles info, so nobody else may write it."""
    (write(root, key) / "info").chmod(0o666)
    ((kind, detail),) = _found(root)
    assert kind is FindingKind.UNTRUSTED
    assert "info" in detail


def test_a_link_in_place_of_an_entry(root: Path, key: str, tmp_path: Path) -> None:
    """A link with an entry's name is no entry; it is found beside them and taken away by a repair."""
    write(tmp_path / "elsewhere", key)
    (root / key).symlink_to(tmp_path / "elsewhere" / key)
    cache = opened(root)
    assert list(cache.scan()) == []
    (checked,) = cache.leftovers()
    assert checked.findings[0].kind is FindingKind.UNTRUSTED
    assert cache.repair(checked, None).findings[0].repaired
    assert not (root / key).is_symlink()
    assert (tmp_path / "elsewhere" / key / "info").exists()


def test_a_file_in_place_of_an_entry(root: Path, key: str) -> None:
    """A file with an entry's name stops every program that builds it; a repair takes it away."""
    (root / key).write_bytes(b"")
    cache = opened(root)
    (checked,) = cache.leftovers()
    assert checked.findings[0].kind is FindingKind.CORRUPT
    assert cache.repair(checked, None).findings[0].repaired
    assert not (root / key).exists()


def test_what_lies_among_the_entries(root: Path) -> None:
    """Something else in PyOpenCL's own folder is a leftover that nobody but its owner removes."""
    (root / "notes.txt").write_bytes(b"")
    cache = opened(root)
    (checked,) = cache.leftovers()
    assert checked.findings[0].kind is FindingKind.LEFTOVER
    assert cache.repair(checked, None) == checked
    assert (root / "notes.txt").exists()


def test_a_binary_of_a_gigabyte_is_not_looked_into(root: Path, key: str) -> None:
    """It is neither read into memory nor called damaged, and a note says so."""
    with (write(root, key) / "binary").open("r+b") as file:
        file.truncate(3 << 30)
    cache = opened(root)
    checked = cache.check(only(cache))
    assert (checked.findings, "was not looked into" in checked.notes[0]) == ((), True)
