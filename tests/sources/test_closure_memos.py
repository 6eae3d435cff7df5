"""Remembered closures equal the walk's at any time, or are not used."""

import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpucache.host import file_stamps
from gpucache.keys import Closure
from gpucache.sources import (
    Limits,
    Place,
    SearchRule,
    Wanted,
    closure_memos,
    is_settled,
    read_closure,
    scan_memos,
    still_closure,
)
from gpucache.sources.disk import Disk, Look
from gpucache.sources.scan import Scan, scan
from tests.faults.forking import forked
from tests.patience import PATIENCE_S, tick

Tree = Callable[..., Path]
RULE = SearchRule((Place.INCLUDER, Place.CWD, Place.DIRS), (Place.DIRS,))
_MANY = "".join(f"#include <many/{number}.h>\n" for number in range(closure_memos.WORTH_FILES)).encode()


class Shelf:
    """Memos in a mapping."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}
        self.asked = 0
        self.keeps = True
        self.offered = 0

    def recall(self, name: str) -> bytes | None:
        self.asked += 1
        return self.kept.get(name)

    def remember(self, name: str, data: bytes) -> None:
        self.offered += 1
        self.kept[name] = data

    def spoil(self) -> None:
        """Change every memo's resolution to one that no walk gives, so that its use is recognised."""
        for name, data in self.kept.items():
            if data.startswith(b'{"name"'):
                found, _, asked = data.partition(b"\n")
                spoilt = json.loads(found) | {"resolution": "from a memo"}
                self.kept[name] = json.dumps(spoilt).encode() + b"\n" + asked


@pytest.fixture
def many(tree: Tree) -> Path:
    """A tree whose program includes enough headers for a memo."""
    return tree(
        {f"a/many/{number}.h": b"" for number in range(closure_memos.WORTH_FILES)} | {"b/other.h": b""}
    )


def _closure(
    root: Path, memos: Shelf | None, source: bytes = _MANY, *, light: bool = False, **changes: Any
) -> Closure:
    arguments = {
        "rule": RULE,
        "include_dirs": [str(root / "a"), str(root / "b")],
        "cwd": str(root),
    }
    wanted = Wanted(source, **(arguments | changes))
    return read_closure(wanted, memos=memos, light=light)


def _asked(kept: Shelf, root: Path, source: bytes = _MANY, **changes: Any) -> bool:
    before = dict(kept.kept)
    kept.spoil()
    found = _closure(root, kept, source, **changes)
    kept.kept = before
    return found.resolution == "from a memo"


def test_a_closure_is_remembered(many: Path) -> None:
    """If nothing changed it is recalled in full, with the files' current stamps."""
    memos = Shelf()
    first = _closure(many, memos)
    os.utime(many / "a/many/0.h", (1, 1))
    again, walked = _closure(many, memos), _closure(many, None)
    assert _asked(memos, many)
    assert again == walked == first
    assert (again.files, again.stamps, again.tells_places) == (
        walked.files,
        walked.stamps,
        walked.tells_places,
    )
    assert again.stamps != first.stamps


def _change(root: Path, change: str) -> None:
    """Change a header of a program, or one of the names that are searched before it."""
    header = root / "a/many/1.h"
    if change == "content":
        header.write_bytes(b"int x;")
    elif change == "content of the same size and time":
        header.write_bytes(b"/**/")
        os.utime(header, ns=(0, 0))
    elif change == "a header that is gone":
        header.unlink()
    elif change == "a header before it":
        (root / "many").mkdir()
        (root / "many/1.h").write_bytes(b"int y;")
    elif change == "a copy in its place":
        (root / "a").rename(root / "elsewhere")
        shutil.copytree(root / "elsewhere", root / "a")


_SAME = "nothing"
_CHANGES = (
    *(_SAME, "content", "content of the same size and time", "a header that is gone"),
    *("a header before it", "a copy in its place"),
)


@pytest.mark.parametrize("change", _CHANGES)
def test_files_whose_status_is_as_it_was_are_not_read(
    many: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """Any change is noticed nevertheless, even with unchanged size and time."""
    monkeypatch.setattr(file_stamps, "_local", {many.stat().st_dev: True})
    memos, source = Shelf(), b'#include "many/1.h"\n' + _MANY
    (many / "a/many/1.h").write_bytes(b"    ")
    os.utime(many / "a/many/1.h", ns=(0, 0))
    with monkeypatch.context() as patched:
        now_ns = time.time_ns()
        patched.setattr(time, "time_ns", lambda: now_ns + 10**11)  # by then it was settled
        first = _closure(many, memos, source)
    tick(many)
    _change(many, change)
    opened: list[object] = []
    with monkeypatch.context() as patched:
        real = Disk.read

        def read(disk: Disk, path: bytes, limit: int) -> tuple[bytes, str] | None:
            opened.append(path)
            return real(disk, path, limit)

        patched.setattr(Disk, "read", read)
        again = _closure(many, memos, source, light=True)
    walked = _closure(many, None, source)
    assert again == walked
    assert (again == first) == (change in (_SAME, "a copy in its place"))
    assert bool(opened) == (change != _SAME)
    assert (again.stamps is None) == (change == _SAME)
    assert [*(again.asked or ())] == [*(walked.asked or ())]


def test_a_file_that_is_too_young_is_read_again(many: Path) -> None:
    """A later change of it could leave its status as it was."""
    memos = Shelf()
    _closure(many, memos)
    assert _closure(many, memos, light=True).stamps is not None


@pytest.mark.parametrize(
    ("source", "changes"),
    [
        (_MANY + b"// ", {}),
        (_MANY, {"rule": RULE._replace(assembles=False)}),
        (_MANY, {"include_dirs": ["a", "b", "a"]}),
        (_MANY, {"cwd": None}),
        (_MANY, {"forced": ["other.h"]}),
        (_MANY, {"definitions": ["A"]}),
        (_MANY, {"named_headers": ["b/other.h"]}),
        (_MANY, {"limits": Limits(files=19_999)}),
    ],
)
def test_a_memo_answers_what_it_was_made_for(many: Path, source: bytes, changes: dict[str, object]) -> None:
    """Any other request has its own memo."""
    memos = Shelf()
    _closure(many, memos)
    assert not _asked(memos, many, source, **changes)


def test_a_reason_is_told_with_the_remedy_that_is_asked_for(many: Path) -> None:
    """A program and the command line share a memo, but not one with the other's remedy."""
    memos, dated = Shelf(), _MANY + b"#define H(x) x\n#include H(Y)\n__DATE__"
    for source, shared in ((_MANY, True), (dated, False)):
        before = _closure(many, memos, source, name_them="do one thing")
        assert (before.uncacheable is None) is shared
        assert _asked(memos, many, source, name_them="do another thing") is shared
        assert _asked(memos, many, source, name_them="do one thing")


def test_a_directory_that_is_not_searched_makes_no_difference(many: Path) -> None:
    """If neither compiler nor any name begins at the current directory, one memo serves all."""
    memos, rule = Shelf(), SearchRule((Place.INCLUDER, Place.DIRS), (Place.DIRS,))
    _closure(many, memos, rule=rule)
    for cwd in (str(many / "b"), None):
        assert _asked(memos, many, rule=rule, cwd=cwd)
    assert not _asked(memos, many, rule=rule, cwd=None, include_dirs=["a"])


def test_other_code_has_other_memos(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memos of another version of gpucache are ignored, and code of unknown version writes none."""
    memos = Shelf()
    _closure(many, memos)
    for code in ("0" * 64, ""):
        monkeypatch.setattr(closure_memos, "_code", lambda code=code: code)
        assert not _asked(memos, many)
    assert len(memos.kept) == 1


def test_code_that_lies_in_no_files_is_not_taken_for_one_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In an archive, and where only byte code is installed, every version would look like every other."""
    for place in (
        tmp_path / "archive.zip/gpucache/sources/closure_memos.pyc",
        tmp_path / "closure_memos.pyc",
    ):
        monkeypatch.setattr(closure_memos, "__file__", str(place))
        assert closure_memos._code.__wrapped__() == ""


def test_paths_are_told_apart_by_the_encoding_they_are_text_in(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that encodes the same text differently has its own memos."""
    memos = Shelf()
    _closure(many, memos)
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "iso8859-1")
    assert not _asked(memos, many)


def test_few_headers_are_not_worth_a_memo(many: Path) -> None:
    """Nothing is written for a program with few headers, and nothing is looked up for one without any."""
    memos = Shelf()
    _closure(many, memos, b"#include <other.h>")
    assert not memos.kept
    before = memos.asked
    _closure(many, memos, b"kernel void f() {}")
    assert memos.asked == before


def test_a_memo_that_does_not_read_is_passed_over(many: Path) -> None:
    """Whatever is in a memo, the result is the walk's closure, and is remembered anew."""
    memos = Shelf()
    walked = _closure(many, memos)
    (name,) = memos.kept
    found, _, asked = memos.kept[name].partition(b"\n")
    good = json.loads(found)
    bad = [{}, [], good | {"name": "0" * 64}, good | {"uncacheable": 0}]
    bad += [good | {"includes": [1]}, good | {"files": None}, good | {"resolution": 1}]
    texts = [json.dumps(each).encode() + b"\n" + asked for each in bad]
    texts += [
        found + b"\n" + json.dumps(each).encode() for each in (1, [["open", "/", ""]], [["look", "/\0", ""]])
    ]
    untold = [1, {}, {"read": 1}, {"read": [["/\0"]]}, {"read": [], "there": [], "absent": [], "others": 1}]
    texts += [json.dumps(good | {"stood": each}).encode() + b"\n" + asked for each in untold]
    for data in (b"", b"\xff", b"[" * 100_000, found, *texts):
        for light in (False, True):
            memos.kept = {name: data}
            assert _closure(many, memos, light=light) == walked
            assert _asked(memos, many)


def test_a_disk_that_fails_is_not_remembered(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot be read for a temporary reason is neither remembered nor treated as absent."""
    source = _MANY + b"#include <last.h>"
    real, memos, none = os.stat, Shelf(), Shelf()
    _closure(many, memos, source)

    def failing(path: bytes | str, **options: bool) -> os.stat_result:
        if os.fsencode(path).endswith(b"last.h"):
            raise OSError(5, "Input/output error")
        return real(path, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", failing)
        found = [_closure(many, each, source) for each in (memos, none)]
    assert all("Input/output error" in str(each.uncacheable) for each in found)
    assert [still_closure(each) for each in found] == [None, None]
    assert not none.kept
    assert _closure(many, memos, source).uncacheable is None


def test_a_header_that_becomes_a_pipe_is_not_waited_for(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that became something else between its check and its opening is neither read nor remembered."""
    real, memos, header = Disk.look, Shelf(), many / "a/many/3.h"
    others: list[Callable[[Path], None]] = [os.mkfifo, lambda path: path.symlink_to(os.devnull)]

    def look_and_replace(disk: Disk, path: bytes) -> Look:
        found = real(disk, path)
        if path == os.fsencode(header) and found.kind == "file":
            header.unlink()
            others.pop()(header)
        return found

    monkeypatch.setattr(Disk, "look", look_and_replace)
    while others:
        assert "no longer a regular file" in str(_closure(many, memos).uncacheable)
        header.unlink()
        header.touch()
    assert not memos.kept


def test_texts_are_scanned_once_whichever_programs_include_them(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second program over the same large headers scans none of them, in another process and as exactly."""
    large = f"//{'-' * scan_memos.WORTH_BYTES}\n"
    for number in range(closure_memos.WORTH_FILES):
        (many / f"a/many/{number}.h").write_text(f"{large}#define N{number} <other.h>\n#include N{number}\n")
    memos, source = Shelf(), _MANY + b"// another"
    walked = _closure(many, None, source)
    scanned: list[bytes] = []

    def scan_and_tell(data: bytes) -> Scan:
        scanned.append(data)
        return scan(data)

    monkeypatch.setattr(scan_memos, "_scans", {})
    _closure(many, memos)
    monkeypatch.setattr(scan_memos, "_scans", {})
    monkeypatch.setattr(scan_memos, "scan", scan_and_tell)
    assert _closure(many, memos, source) == walked
    assert source in scanned
    assert max(map(len, scanned)) < scan_memos.WORTH_BYTES


def test_a_small_program_reads_no_pack(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that is scanned faster than a full pack is read uses only the closure's own memo."""
    memos = Shelf()
    monkeypatch.setattr(scan_memos, "_scans", {})
    for source in (_MANY, b"#include <other.h>"):
        before = memos.asked
        _closure(many, memos, source)
        assert memos.asked == before + 1
    assert len(memos.kept) == 1


def test_a_text_that_no_pack_has_room_for_leaves_the_others_there(
    many: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header with more findings than a pack may have is scanned each time, and evicts nothing."""
    monkeypatch.setattr(scan_memos, "WORTH_BYTES", 0)
    monkeypatch.setattr(scan_memos, "PACK_BYTES_CAP", 3000)
    memos = Shelf()
    for number in range(100):
        (many / f"a/many/{number}.h").write_text(f"#define B{number}\n")
    source = b"".join(b"#include <many/%d.h>\n" % number for number in range(100))
    monkeypatch.setattr(scan_memos, "_scans", {})
    _closure(many, memos, source)
    before = dict(memos.kept)
    for number in range(100):
        (many / f"a/many/{number}.h").write_text(f"#define A{number} {'1' * 3000}\n")
    monkeypatch.setattr(scan_memos, "_scans", {})
    _closure(many, memos, source)
    assert all(data in memos.kept[name] for name, data in before.items() if not data.startswith(b"{"))


def test_nothing_is_made_ready_where_nothing_is_kept(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the cache cannot be written, a start spends no time on closures and scans for it."""
    monkeypatch.setattr(scan_memos, "WORTH_BYTES", 0)
    monkeypatch.setattr(scan_memos, "_scans", {})
    for number in range(closure_memos.WORTH_FILES):
        (many / f"a/many/{number}.h").write_text(f"#define C{number}\n")
    memos = Shelf()
    memos.keeps = False
    _closure(many, memos)
    assert memos.asked
    assert not memos.offered


def test_packs_are_bounded(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest scans in a pack are dropped, and an unreadable pack is ignored."""
    monkeypatch.setattr(scan_memos, "WORTH_BYTES", 0)
    monkeypatch.setattr(scan_memos, "PACK_BYTES_CAP", 1000)
    memos = Shelf()
    for number in range(100):
        monkeypatch.setattr(scan_memos, "_scans", {})
        for each in range(closure_memos.WORTH_FILES):
            (many / f"a/many/{each}.h").write_text(f"#define M{each} {number}\n")
        walked = _closure(many, memos)
    assert max(map(len, memos.kept.values())) < 20_000
    monkeypatch.setattr(scan_memos, "_scans", {})
    memos.kept = dict.fromkeys(memos.kept, b"\xff\n0 [1]\n")
    assert _closure(many, memos) == walked


@pytest.mark.parametrize("text", [b"", _MANY, b"#if __has_include(<x>)\n#embed <\xff\xfe>\n__DATE__ a ## b"])
def test_a_scan_is_packed_whole(text: bytes) -> None:
    """Every field comes back, whatever bytes are in a text."""
    text += b'#define J(a) __has_ ## a ## clude\n#define W __FILE__\n#include J(\x80)\nasm(".incbin x");'
    found = scan(text)
    assert scan_memos.decode(scan_memos.encode(found), Scan) == found


@pytest.mark.parametrize("line", [b"", b"{}", b"\x90", b"\x9b" + b"\1" * 11, b"\x91" * 10_000, b"\xa1\xff"])
def test_what_is_no_scan_is_passed_over(line: bytes) -> None:
    """A foreign line gives nothing."""
    assert scan_memos.decode(line, Scan) is None


# One program that asks in every way: in order, through macros, by probes, upward, through links.
_SOURCE = (
    _MANY + b'#include "0.h"\n#include <1.h>\n#include_next <2.h>\n#include "deep/../3.h"\n'
    b"#define H(x) <x.h>\n#include H(4)\n#if __has_include(<5.h>)\n#endif\n"
)
_UNTOLD = b"#define JOIN(a, b) a ## b\n#define S(x) #x\n#define T(x) S(x)\n#include T(JOIN(dee, p)/6.h)\n"
_TEXTS = [
    b"",
    b"int x;",
    b'#include "0.h"',
    b"#include <1.h>",
    b"#define J 1\n#include J",
    b"long s = sizeof(__FILE__);",
]
_PLACES = ["a", "b", "a/deep", "w"]
_NAMES = ["0.h", "1.h", "2.h", "3.h", "4.h", "5.h", "6.h", "deep"]
_STATES = 40


def _edit(random: Random, root: Path) -> None:
    """Change one thing in a tree, or nothing if that is impossible."""
    path = root / random.choice(_PLACES) / random.choice(_NAMES)
    other = root / random.choice(_PLACES) / random.choice(_NAMES)
    edits: list[Callable[[], object]] = [
        lambda: path.write_bytes(random.choice(_TEXTS)),
        lambda: path.write_bytes(random.choice(_TEXTS)),
        lambda: path.unlink(),
        lambda: shutil.rmtree(path),
        lambda: path.mkdir(),
        lambda: path.symlink_to(other),
        lambda: path.hardlink_to(other),
        lambda: path.rename(other),
        lambda: os.utime(path, (1, 1)),
        lambda: _lead(root / "l", root / random.choice(_PLACES)),
    ]
    with suppress(OSError):
        random.choice(edits)()


def _lead(link: Path, folder: Path) -> None:
    link.unlink()
    link.symlink_to(folder)


@pytest.mark.parametrize("every", [False, True])
@pytest.mark.parametrize("source", [_SOURCE, _SOURCE + _UNTOLD])
def test_a_memo_gives_what_the_walk_gives(tmp_path: Path, source: bytes, every: bool) -> None:
    """After any edits of a tree the closure is the same with memos as without, in any process."""
    random = Random(every + 2 * len(source))
    for place in ("a/many", "a/deep", "b", "w"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "l").symlink_to(tmp_path / "b")
    for number in range(closure_memos.WORTH_FILES):
        (tmp_path / f"a/many/{number}.h").write_bytes(b"")
    memos = Shelf()
    asked_for: dict[str, Any] = {
        "rule": RULE._replace(every=every),
        "include_dirs": [str(tmp_path / "a"), str(tmp_path / "l/../b"), str(tmp_path / "l")],
        "cwd": str(tmp_path / "w"),
    }
    answered = still = 0
    walked = _closure(tmp_path, None, source, **asked_for)
    for _ in range(_STATES):
        before = walked
        _edit(random, tmp_path)
        answered += _asked(memos, tmp_path, source, **asked_for)
        found = _closure(tmp_path, memos, source, **asked_for)
        walked = _closure(tmp_path, None, source, **asked_for)
        assert found == walked
        assert (found.files, found.tells_places) == (walked.files, walked.tells_places)
        assert {*(found.stamps or ())} == {*(walked.stamps or ())}
        kept = still_closure(before)
        still += kept is not None
        assert kept is None or (kept, kept.files, {*(kept.stamps or ())}) == (
            walked,
            walked.files,
            {*(walked.stamps or ())},
        )
    assert 0 < answered < _STATES
    assert 0 < still < _STATES


def test_a_closure_is_settled_once_all_that_it_was_found_by_is_older(tmp_path: Path) -> None:
    """A header, a directory on the way to it, or one searched in vain: each may have changed."""
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second / "deep" / "sub"):
        folder.mkdir(parents=True)
    header, beside = second / "deep" / "sub" / "a.h", tmp_path / "third" / "b.h"
    beside.parent.mkdir()
    header.touch()
    beside.touch()
    rule = SearchRule(quote=(Place.DIRS,), angle=(Place.DIRS,))

    folders = [str(first), str(second)]
    source = f'#include <deep/sub/a.h>\n#include "{beside}"\n'.encode()
    closure = read_closure(Wanted(source, rule=rule, include_dirs=folders))
    hour = 3600 * 10**9
    places = (first, second, *(second / "deep", header.parent), header, beside.parent, beside)
    latest = max(place.stat().st_ctime_ns for place in places)
    assert is_settled(closure, latest + hour)
    assert not is_settled(closure, latest)
    for place in places:
        os.utime(place, ns=(latest, latest + 2 * hour))
        assert not is_settled(closure, latest + hour), place
        os.utime(place, ns=(latest, latest))
    assert is_settled(closure, latest + hour)
    assert not is_settled(closure._replace(asked=None), latest + hour)


def test_a_closure_with_build_options_is_settled_too(tmp_path: Path) -> None:
    """An option that may make a constant of a path has no place itself."""
    (tmp_path / "a.h").write_text("int v = V;")
    rule = SearchRule(quote=(Place.DIRS,), angle=(Place.DIRS,), names_sources=True)
    defined = read_closure(
        Wanted(b"#include <a.h>", rule=rule, include_dirs=[str(tmp_path)], definitions=["V=sizeof(__FILE__)"])
    )
    assert is_settled(defined, tmp_path.stat().st_ctime_ns + 3600 * 10**9)


@pytest.mark.parametrize("kind", ["link", "folder"])
def test_a_closure_is_not_settled_where_the_way_to_it_is_younger(tmp_path: Path, kind: str) -> None:
    """A link above the headers that was made anew, or a moved directory, may have led elsewhere."""
    (tmp_path / "real/deep/include").mkdir(parents=True)
    (tmp_path / "real/deep/include/a.h").touch()
    way = tmp_path / "way"
    if kind == "link":
        way.symlink_to("real")
    else:
        (tmp_path / "real").rename(way)
    rule = SearchRule(quote=(Place.DIRS,), angle=(Place.DIRS,))
    closure = read_closure(Wanted(b"#include <a.h>", rule=rule, include_dirs=[str(way / "deep/include")]))
    headers = (way / "deep/include/a.h", way / "deep/include", way / "deep")
    while way.lstat().st_ctime_ns <= max(path.stat().st_ctime_ns for path in headers):
        way.rename(tmp_path / "aside")
        (tmp_path / "aside").rename(way)
    assert is_settled(closure, way.lstat().st_ctime_ns + 1)
    assert not is_settled(closure, way.lstat().st_ctime_ns)


def test_a_file_that_is_another_when_it_is_read_again_is_not_remembered(tmp_path: Path) -> None:
    """Otherwise the status of one content would be stored with the digest of the other."""
    file, disk = tmp_path / "header.h", Disk()
    file.write_bytes(b"1")
    assert disk.read(os.fsencode(file), 9) and not disk.failed
    assert disk.read(os.fsencode(file), 9) and not disk.failed
    file.write_bytes(b"22")
    assert disk.read(os.fsencode(file), 9) and disk.failed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no forks")
def test_a_forked_child_does_not_wait_for_a_thread_of_its_parent() -> None:
    """The fork does not copy a thread that makes a decoder, so that its lock would stay locked."""

    def decoded() -> None:
        signal.alarm(int(PATIENCE_S))
        assert scan_memos.decode(b"\x07", int) == 7

    with scan_memos._making:
        child = forked(decoded)
    assert os.waitpid(child, 0)[1] == 0
