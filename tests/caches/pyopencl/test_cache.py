"""Entries as they are scanned, reported, checked and extracted."""

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.errors import FormatError
from gpucache.keys import digest
from tests.caches.pyopencl.build import DEFEAT, SOURCE, binary, header, info, only, opened, touch, write

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


def _built_by_intel(folder: Path) -> None:
    (folder / "binary").write_bytes(b"\x25ELF" + bytes(99))
    (folder / "info").write_bytes(info(log=LOG))


def _emptied(folder: Path) -> None:
    for path in folder.iterdir():
        path.unlink()


def _with_header(now: bytes | None, was: bytes = b"a", name: str = "a.h") -> Callable[[Path], object]:
    """The entry was made with a header, which has changed, or gone."""

    def harm(folder: Path) -> None:
        path = folder.parent.parent / name
        (folder / "info").write_bytes(info([header(path, was)]))
        path.write_bytes(now or b"")
        touch(path)
        if now is None:
            path.unlink()

    return harm


def _linked(folder: Path) -> None:
    (folder.parent.parent / "secret").write_bytes(b"secret")
    (folder / "binary").unlink()
    (folder / "binary").symlink_to(folder.parent.parent / "secret")


_DAMAGE: dict[str, tuple[Callable[[Path], object], FindingKind, bool]] = {
    "no info": (_without("info"), FindingKind.ORPHAN, True),
    "empty info": (_with("info", b""), FindingKind.TRUNCATED, True),
    "cut info": (_with("info", info()[:-9]), FindingKind.TRUNCATED, True),
    "another info": (_with("info", b"\x80\x04cos\nsystem\n."), FindingKind.CORRUPT, True),
    "no binary": (_without("binary"), FindingKind.TRUNCATED, True),
    "empty binary": (_with("binary", b""), FindingKind.TRUNCATED, True),
    "cut binary": (_with("binary", binary()[:-9]), FindingKind.CORRUPT, True),
    "a binary of no known platform": (
        _with("binary", bytes(range(200, 256)) * 20),
        FindingKind.UNSUPPORTED,
        False,
    ),
    "a binary unlike Intel's, which built it": (
        _built_by_intel,
        FindingKind.CORRUPT,
        True,
    ),
    "the binary of another source": (
        _with("binary", binary(string=DEFEAT.replace(b"01234567", b"76543210"))),
        FindingKind.MISLABELLED,
        True,
    ),
    "no source": (_without("source.cl"), FindingKind.ORPHAN, True),
    "nothing": (_emptied, FindingKind.ORPHAN, True),
    "a stray file": (_with("notes.txt", b""), FindingKind.LEFTOVER, False),
    "a folder": (lambda folder: (folder / "sub").mkdir(), FindingKind.LEFTOVER, False),
    "a changed header": (_with_header(b"b"), FindingKind.STALE, False),
    "a missing header": (_with_header(None), FindingKind.STALE, False),
    "a header of an odd name": (_with_header(None, name="a\x1b[2J.h"), FindingKind.STALE, False),
    "a header that is no text": (_with_header(b"\xe9", b"\xe9"), FindingKind.STALE, True),
    "a link": (_linked, FindingKind.UNTRUSTED, True),
    "a file for anybody": (
        lambda folder: (folder / "info").chmod(0o666),
        FindingKind.UNTRUSTED,
        True,
    ),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_damage_is_found_and_what_removing_the_entry_fixes_is_fixed(
    root: Path, key: str, damage: str
) -> None:
    """Each kind of damage is one finding; what PyOpenCL builds again
    in place, or serves all the same, is left to it."""
    harm, kind, fixed = _DAMAGE[damage]
    folder = write(root, key)
    harm(folder)
    cache = opened(root)
    entry = only(cache)
    checked = cache.check(entry)
    ((found, detail),) = [(one.kind, one.detail) for one in checked.findings]
    assert (found, detail.isprintable()) == (kind, True)
    assert [one.repaired for one in cache.repair(checked, entry).findings] == [fixed]
    assert folder.exists() is not fixed


@pytest.mark.parametrize("damage", ["cut info", "no binary", "cut binary", "another info", "a link"])
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
    """An entry of any bytes is scanned, checked and asked for; what cannot be parsed is a FormatError."""
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


def test_a_file_in_place_of_an_entry(root: Path, key: str) -> None:
    """A file with an entry's name stops every program that builds it; a repair takes it away."""
    (root / key).write_bytes(b"")
    cache = opened(root)
    (checked,) = cache.leftovers()
    assert checked.findings[0].kind is FindingKind.CORRUPT
    assert cache.repair(checked, None).findings[0].repaired
    assert not (root / key).exists()


def test_what_lies_among_the_entries(root: Path) -> None:
    """Something else in PyOpenCL's own directory is a leftover that nobody but its owner removes."""
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
    assert (checked.findings, "was not inspected" in checked.notes[0]) == ((), True)
