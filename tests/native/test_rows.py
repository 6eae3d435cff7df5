"""The index of a root in C: rows that refer to entries, and replies that must never be given.

The package writes rows and entries. Most questions are asked through the library that exports
one function; malicious files go to a program that stops at undefined behaviour in C.
"""

import ctypes
import hashlib
import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from gpucache.backends.installation import read_library
from gpucache.keys import digest
from gpucache.library.rows import Library
from gpucache.model import CacheKey, Entry, EntryDetail, EntryHead
from gpucache.native import build
from gpucache.serve.conditions import _header, _status_stamp
from gpucache.serve.index import (
    ROWS_CAP,
    Answered,
    Condition,
    Hole,
    Reference,
    merged,
    place_of,
    row_of,
)
from gpucache.serve.wire import Kind
from gpucache.store.directory import DirectoryStore
from gpucache.store.records import FILE_ROWS, encode, rows_of
from gpucache.store.root_folder import RECENCY_NS
from tests.native.test_index import Layer, _build, _changed, _compile, _lie, _said, _touched
from tests.patience import tick
from tests.store.conftest import left
from tests.unprivileged import needs_root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the libraries are for Linux")
_KEY = CacheKey("ab" * 32)
_PAYLOAD = bytes(range(256)) * 3 + b"binary"


class Root:
    """A root with one entry, and a row that refers to it."""

    def __init__(self, path: Path, library: Path) -> None:
        self.path = path
        self.store = DirectoryStore(path, writable=True)
        self.created_ns = time.time_ns() - 5 * 10**9
        self.publish()
        self._library = Library(str(library))

    def publish(self, payload: bytes = _PAYLOAD, created_ns: int = 0) -> Path:
        """Put the entry in place; its file."""
        sha256 = "0" * 64
        head = EntryHead("a", "cpu", "opencl-binary", created_ns or self.created_ns, 7, sha256)
        self.store.publish(Entry(_KEY, head, EntryDetail(()), payload))
        return self.path / "v1" / "entries" / _KEY.hex[:2] / f"{_KEY.hex}.gpc"

    def answered(self, *conditions: Condition, **fields: bytes) -> Answered:
        """A build with a row that refers to the entry."""
        sealed = self.store.seal(_KEY)
        assert sealed is not None
        reference = Reference(1, _KEY, sealed[0], sealed[1].created_ns)
        whole = replace(_build(*conditions, **fields), answer=(b"", b"", b"log"))
        return replace(whole, references=(reference,), note=b"7\tkey\tcpu\ta")

    def keep(self, answered: Answered) -> Path:
        """Write its row; its file."""
        row = row_of(answered)
        self.store.rows.put(place_of(row), encode([row]))
        return self.path / "v1" / "rows" / f"{place_of(row)}.row"

    def ask(self, question: Answered, *others: Path, may_write: bool = True) -> list[bytes] | None:
        """The fields of a hit; None of a miss."""
        roots = os.fsencode(":".join(map(str, (self.path, *others))))
        found = self._library.answer(roots, question.kind, question.question, writes=may_write)
        return None if found is None else list(found.fields)


_HIT = [b"", _PAYLOAD, b"log"]


@pytest.fixture
def root(answer: Path, tmp_path: Path) -> Root:
    return Root(tmp_path / "root", answer)


def test_our_xxh3_is_xxh3(compiler: build.Compiler, tmp_path: Path) -> None:
    """For every length up to 2048, around every limit beyond, and for megabytes."""
    made = tmp_path / "xxh3.so"
    flags = ("-std=c11", "-O2", "-fPIC", "-shared", f"-I{build.FOLDER}", "-o", made)
    subprocess.run([*compiler.command, *flags, build.FOLDER / "xxh3.c"], check=True)
    library, found = ctypes.CDLL(str(made)), ctypes.create_string_buffer(16)
    data = random.Random(3).randbytes(5 << 20)
    for size in (*range(2049), 4095, 4096, 4097, 65_535, 65_536, 65_537, (1 << 20) + 1, len(data)):
        library.xxh3(data[:size], ctypes.c_size_t(size), found)
        assert found.raw == xxhash.xxh3_128_digest(data[:size]), size


def test_our_sha256_is_sha256(compiler: build.Compiler, tmp_path: Path) -> None:
    """For every length up to 260, and for a megabyte."""
    made = tmp_path / "sha256.so"
    flags = ("-std=c11", "-O2", "-fPIC", "-shared", f"-I{build.FOLDER}", "-o", made)
    subprocess.run([*compiler.command, *flags, build.FOLDER / "sha256.c"], check=True)
    library, found = ctypes.CDLL(str(made)), ctypes.create_string_buffer(32)
    data = random.Random(4).randbytes(1 << 20)
    for size in (*range(261), len(data)):
        library.sha256(data[:size], ctypes.c_size_t(size), found)
        assert found.raw == hashlib.sha256(data[:size]).digest(), size


@pytest.mark.parametrize("keeps_source", [True, False])
def test_a_row_is_of_exactly_its_source(root: Root, *, keeps_source: bool) -> None:
    """As older gpucaches wrote it, with the source, and with its digest; but for the part that is made up."""
    source = b"kernel void a() {}" * 20 + b"{ pyopencl_defeat_cache_=12345678}"
    holes = (Hole(4, len(source) - 9, 8),)
    one = replace(root.answered(source=source), holes=holes, keeps_source=keeps_source)
    row = root.keep(one)
    assert (source[:-9] in row.read_bytes()) is keeps_source
    for part, answer in ((b"12345678", _HIT), (b"a_b_c_d_", _HIT), (b"ABCDEFGH", None)):
        assert root.ask(_build(source=source[:-9] + part + source[-1:])) == answer, part
    for other in (source[:-1] + b";", source[:-10] + b"_" + source[-9:], source[:40] + b"b" + source[41:]):
        assert root.ask(_build(source=other)) is None, other


def test_an_answer_is_put_together_of_its_row_and_its_entry(root: Root) -> None:
    """The payload comes from the entry, byte for byte; another question has no answer."""
    one = root.answered()
    root.keep(one)
    assert root.ask(one) == _HIT
    assert root.ask(replace(one, kind=Kind.COMPILE)) is None
    assert root.ask(_build(source=b"kernel void b() {}" * 20)) is None


def test_an_entry_of_another_root_is_found(root: Root, answer: Path, tmp_path: Path) -> None:
    """Like the server's: the row is in the user's root, its entry in a system root."""
    system = Root(tmp_path / "system", answer)
    one = system.answered()
    shutil.rmtree(root.path / "v1" / "entries")
    root.keep(one)
    assert root.ask(one) is None
    assert root.ask(one, system.path) == _HIT


def test_rows_of_all_roots_answer_in_order(root: Root, answer: Path, tmp_path: Path) -> None:
    """The user's own root comes first."""
    system, second = Root(tmp_path / "system", answer), Root(tmp_path / "second", answer)
    one = system.answered()
    assert root.ask(one, system.path, second.path) is None
    second.keep(replace(one, answer=(b"", b"", b"second")))
    assert root.ask(one, system.path, second.path) == [b"", _PAYLOAD, b"second"]
    system.keep(one)
    assert root.ask(one, system.path, second.path) == _HIT
    root.keep(replace(root.answered(), answer=(b"", b"", b"own")))
    assert root.ask(one, system.path, second.path) == [b"", _PAYLOAD, b"own"]
    shutil.rmtree(root.path)
    assert root.ask(one, system.path) == _HIT


def test_a_row_of_a_root_that_others_may_write_is_not_believed(
    root: Root, answer: Path, tmp_path: Path
) -> None:
    """Neither in a system root nor in the file itself."""
    system = Root(tmp_path / "system", answer)
    one = system.answered()
    row = system.keep(one)
    for path in (system.path, row):
        mode = path.stat().st_mode
        path.chmod(0o777)
        assert root.ask(one, system.path) is None
        path.chmod(mode)
    assert root.ask(one, system.path) == _HIT


def test_a_library_counts_by_its_build_id(root: Root, answer: Path, tmp_path: Path) -> None:
    """Whatever its size and times; a file without one is never taken for it."""
    library = Path(shutil.copy(answer, tmp_path / "compiler.so"))
    build_id = read_library(library).build_id
    assert build_id
    one = root.answered(Condition("I", b"", bytes(library), bytes.fromhex(build_id)))
    root.keep(one)
    with library.open("ab") as stream:
        stream.write(b"signed")
    assert root.ask(one) == _HIT
    data, status = bytearray(library.read_bytes()), library.stat()
    data[data.index(bytes.fromhex(build_id))] ^= 1
    library.write_bytes(data)
    os.utime(library, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert root.ask(one) is None
    library.write_bytes(b"\0" * len(data))
    assert root.ask(one) is None
    root.keep(root.answered(Condition("I", b"", bytes(library), b"")))
    assert root.ask(one) is None


def test_no_changed_byte_of_an_entry_is_served(root: Root) -> None:
    """Every byte, one after another, and every truncation at the end."""
    one = root.answered()
    root.keep(one)
    file = root.publish()
    sound = file.read_bytes()
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        assert root.ask(one) is None, at
    for size in (0, 1, 111, 112, len(sound) - 1):
        file.write_bytes(sound[:size])
        assert root.ask(one) is None, size
    file.write_bytes(sound)
    assert root.ask(one) == _HIT


@pytest.mark.parametrize(
    ("head", "detail"), [((1 << 20) + 1, 0), (0, (64 << 20) + 1)], ids=["head", "detail"]
)
def test_an_entry_with_a_longer_description_than_any_is_not_read(root: Root, head: int, detail: int) -> None:
    """However sound it is: store/format.py has the bounds."""
    file, one = root.publish(), root.answered()
    data = file.read_bytes()
    texts = [data[112:][: int.from_bytes(data[12:16], "little")], b"{}"]
    for longer, served in ((0, True), (1, False)):
        parts = [
            text.ljust((longer and size) or len(text))
            for text, size in zip(texts, (head, detail), strict=True)
        ]
        at = -(112 + sum(map(len, parts))) // 64 * -64
        begin = (
            data[:12]
            + struct.pack("<IQQQ", *map(len, parts), len(_PAYLOAD), at + len(_PAYLOAD))
            + data[40:80]
        )
        checksum = xxhash.xxh3_128_digest(begin + b"".join(parts))
        file.write_bytes((begin + checksum + data[96:112] + b"".join(parts)).ljust(at, b"\0") + _PAYLOAD)
        reference = one.references[0]._replace(checksum=checksum)
        root.keep(replace(one, references=(reference,)))
        assert (root.ask(one) == _HIT) is served


def test_a_damaged_row_is_a_miss_or_right(root: Root) -> None:
    """With any byte changed, or cut off anywhere, it never gives a wrong answer."""
    one = root.answered(Condition("A", b"", b"/nonexistent/a.h"))
    file = root.keep(one)
    sound, hits = file.read_bytes(), 0
    for at in range(len(sound)):
        file.write_bytes(sound[:at] + bytes([sound[at] ^ 0x41]) + sound[at + 1 :])
        said = root.ask(one)
        assert said in (None, _HIT), at
        hits += said is not None
    assert hits <= 16  # the bytes of the header that mean nothing, and the digest of the source
    for size in range(0, len(sound), 7):
        file.write_bytes(sound[:size])
        assert root.ask(one) is None, size


def test_eviction_quarantine_and_repair_hold_at_once(root: Root) -> None:
    """A removed entry is a miss; one published again counts as new until it has been served by key."""
    one = root.answered()
    root.keep(one)
    (scanned,) = root.store.scan()
    root.store.remove(scanned, "a test")
    assert root.ask(one) is None
    root.publish(b"other", root.created_ns + 1)
    root.keep(one)  # it went with its entry
    assert root.ask(one) is None
    root.publish()
    assert root.ask(one) == _HIT


@pytest.mark.parametrize("what", ["root", "row", "entry"])
@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: path.chmod(0o777),
        pytest.param(lambda path: os.chown(path, 65534, 65534), marks=needs_root),
    ],
)
def test_what_is_not_this_users_alone_is_not_believed(
    root: Root, what: str, spoil: Callable[[Path], object]
) -> None:
    """A root, a row or an entry that others may write, or of another user, is refused."""
    one = root.answered()
    files = {"root": root.path, "row": root.keep(one), "entry": root.publish()}
    spoil(files[what])
    assert root.ask(one) is None


@pytest.mark.parametrize("what", ["v1", "v1/rows", "v1/entries", "row", "entry"])
def test_no_link_leads_out_of_a_root(root: Root, tmp_path: Path, what: str) -> None:
    """Neither a directory nor a file may be a link."""
    one = root.answered()
    row, entry = root.keep(one), root.publish()
    place = {"row": row, "entry": entry}.get(what, root.path / what)
    place.rename(tmp_path / "elsewhere")
    place.symlink_to(tmp_path / "elsewhere")
    assert root.ask(one) is None


@pytest.mark.parametrize(
    ("age_ns", "may_write", "set_"),
    [
        (0, True, True),
        (-RECENCY_NS // 2, True, False),
        (2 * RECENCY_NS, True, True),
        (2 * RECENCY_NS, False, False),
    ],
)
def test_a_hit_sets_the_last_use_as_the_store_does(
    root: Root, age_ns: int, may_write: bool, set_: bool
) -> None:
    """At the first hit, and if the last use is a minute ago; nothing is written if that is forbidden."""
    one = root.answered()
    root.keep(one)
    file = root.publish()
    used_ns = time.time_ns() - age_ns if age_ns else root.created_ns
    os.utime(file, ns=(used_ns, used_ns))
    used_ns = file.stat().st_mtime_ns
    assert root.ask(one, may_write=may_write) == _HIT
    assert (file.stat().st_mtime_ns != used_ns) is set_


def _replaced(path: Path) -> None:
    twin = path.with_name("twin")
    shutil.copy2(path, twin)
    twin.replace(path)


def _grown(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def _nothing(path: Path) -> None:
    assert path.exists()


@pytest.mark.parametrize("kind", ["F", "B"])
@pytest.mark.parametrize("size", [10, (2 << 20) + 5])
@pytest.mark.parametrize(
    ("change", "same"),
    [(_nothing, True), (_touched, True), (_changed, False), (_replaced, True), (_grown, False)],
)
def test_a_file_that_has_not_its_stamp_counts_by_its_content(
    root: Root, tmp_path: Path, kind: str, size: int, change: Callable[[Path], None], same: bool
) -> None:
    """With a stamp that is no longer true, or none, the content decides."""
    path = tmp_path / "file"
    path.write_bytes(random.Random(size).randbytes(size))
    stamps = _status_stamp(path.stat()), bytes(8), b""
    value, _ = _header(str(path), digest(path.read_bytes()))
    asked = [
        replace(root.answered(Condition(kind, b"", bytes(path), value), options=b"-D=%d" % at), stamps=stamp)
        for at, stamp in enumerate(stamps)
    ]
    for one in asked:
        root.keep(one)
    tick(tmp_path)
    change(path)
    assert [root.ask(one) == _HIT for one in asked] == [same] * 3


@pytest.mark.parametrize(("kind", "value"), [("B", bytes(16)), ("N", bytes(16)), ("F", b"\1" * 16)])
def test_a_stamp_stands_for_a_content_in_the_users_own_root_alone(
    root: Root, answer: Path, tmp_path: Path, kind: str, value: bytes
) -> None:
    """Nothing is read then, here of what has another content; in an image or a layer it means nothing."""
    path = tmp_path / "place"
    (path / "inner").mkdir(parents=True) if kind == "N" else path.write_bytes(b"bytes")
    stamped = _status_stamp(path.stat())
    one = replace(root.answered(Condition(kind, b"", bytes(path), value)), stamps=stamped)
    root.keep(one)
    assert root.ask(one) == _HIT
    other = Root(tmp_path / "other", answer)
    assert other.ask(one, root.path) is None
    tick(tmp_path)
    os.utime(path)
    assert root.ask(one) is None


def test_names_of_a_directory_are_compared_in_any_order(root: Root, tmp_path: Path) -> None:
    """One more, one fewer or another one is a miss; what the files contain has conditions of its own."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for name in ("b.h", "a.h"):
        (folder / name).touch()
    total = sum(map(xxhash.xxh64_intdigest, (b"a.h", b"b.h"))) % (1 << 64)
    one = root.answered(Condition("N", b"", bytes(folder), struct.pack("<QQ", 2, total)))
    root.keep(one)
    assert root.ask(one) == _HIT
    (folder / "a.h").write_text("other")
    assert root.ask(one) == _HIT
    (folder / "a.h").rename(folder / "c.h")
    assert root.ask(one) is None
    (folder / "a.h").touch()
    assert root.ask(one) is None
    (folder / "c.h").unlink()
    assert root.ask(one) == _HIT


@pytest.mark.parametrize("is_stamped", [True, False])
def test_a_file_that_appears_beside_a_compilers_is_seen(
    root: Root, answer: Path, tmp_path: Path, is_stamped: bool
) -> None:
    """Also without a stamp, as on NFS, and where root and compiler were copied; in an image it is not."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "a.h").touch()
    value = struct.pack("<QQ", 1, xxhash.xxh64_intdigest(b"a.h"))
    one = root.answered(Condition("L", b"", bytes(folder), value))
    root.keep(replace(one, stamps=_status_stamp(folder.stat()) if is_stamped else bytes(8)))
    assert root.ask(one) == _HIT
    shutil.copytree(folder, tmp_path / "copy")
    folder.rename(tmp_path / "before")
    (tmp_path / "copy").rename(folder)
    moved = Root(tmp_path / "moved", answer)
    shutil.copytree(root.path, moved.path, dirs_exist_ok=True)
    assert moved.ask(one) == _HIT
    (folder / "new.h").touch()
    assert root.ask(one) is None and moved.ask(one) is None
    assert Root(tmp_path / "other", answer).ask(one, root.path) == _HIT


_KILLED = """
import os, signal, sys
from pathlib import Path
from gpucache.folders import Folder
from gpucache.store.directory import DirectoryStore
move = Folder.move
def strike(*arguments):
    if sys.argv[3] == "after":
        move(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
Folder.move = strike
DirectoryStore(Path(sys.argv[1]), writable=True).rows.put(sys.argv[2], b"half")
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_writer_loses_its_row_alone(root: Root, when: str) -> None:
    """The row being written is missing or complete; the row before still works."""
    one = root.answered()
    file = root.keep(one)
    other = "0" * 16 if when == "after" else file.stem
    done = subprocess.run([sys.executable, "-c", _KILLED, str(root.path), other, when], check=False)
    assert done.returncode < 0
    assert root.ask(one) == _HIT


def test_many_writers_and_readers_at_once(root: Root, tmp_path: Path) -> None:
    """300 rows by 8 threads while entries are evicted and published: a reader gets the answer or none."""
    answered = [root.answered(options=b"-D%d" % number) for number in range(300)]
    wrong: list[object] = []

    def write(some: Sequence[Answered]) -> None:
        for one in some:
            root.keep(one)
            file = root.publish()
            if root.ask(one) not in (None, _HIT):
                wrong.append(one)
            file.unlink(missing_ok=True)

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(write, [answered[at::8] for at in range(8)]))
    root.publish()
    assert not wrong
    assert [root.ask(one) for one in answered] == [_HIT] * 300


def test_answers_under_other_conditions_stand_beside_each_other(root: Root) -> None:
    """A row is added to those of its question, of which the latest stay; no file of more is believed."""
    rows = [row_of(root.answered(Condition("W", b"", b"/%d" % number))) for number in range(FILE_ROWS)]
    held = row_of(root.answered(Condition("W", b"", b"/")))
    assert len(merged([held], rows)) == ROWS_CAP
    for kept, answer in (([*rows[1:], held], _HIT), ([held, *rows], None)):
        data = encode(kept)
        root.store.rows.put(place_of(held), data)
        assert rows_of(data) == (kept if answer else None)
        assert root.ask(root.answered()) == answer


def test_a_full_disk_keeps_no_row_and_harms_nobody(mount: Callable[[str], Path]) -> None:
    """Nothing is raised, and nothing half-written is left."""
    store = DirectoryStore(mount("size=16k") / "root", writable=True)
    store.rows.put("0" * 16, bytes(1 << 20))
    assert store.rows.get("0" * 16) is None
    assert not left(store.root)


def test_a_root_that_is_only_read_gets_no_row(root: Root) -> None:
    """A root whose directory cannot be made gets none either."""
    DirectoryStore(root.path, writable=False).rows.put("0" * 16, b"data")
    assert not (root.path / "v1" / "rows").exists()


def test_a_row_answers_whole_builds_compiles_parts_and_links_alone(
    root: Root, index_program: Path, tmp_path: Path
) -> None:
    """Whatever the rows contain for other kinds of questions, or for questions with fewer fields."""
    builds = [(kind, root.answered()) for kind in Kind if kind is not Kind.COMPILE]
    compiles = replace(_compile(), answer=(b"", b"", b"log"), references=root.answered().references)
    questions = []
    for kind, whole in (*builds, (Kind.COMPILE, compiles)):
        source = 6 if kind is Kind.COMPILE else 4
        answered = kind in (Kind.BUILD, Kind.COMPILE, Kind.PART, Kind.LINK)
        lengths = range(source + 1) if answered else [len(whole.question)]
        questions += [replace(whole, kind=kind, question=whole.question[:length]) for length in lengths]
    for one in questions:
        root.keep(one)
    said = _asked(index_program, tmp_path, questions, [root.path] * len(questions))
    assert said == [b"none"] * len(questions)


def test_a_condition_of_a_field_that_is_not_there_never_holds(
    root: Root, index_program: Path, tmp_path: Path
) -> None:
    """Fields are counted from 0, so the first of these is just after the last."""
    count = len(root.answered().question)
    questions = []
    for field in (count, 1 << 40):
        questions.append(root.answered(Condition("F", b"%d" % field, b"a.h"), options=b"-D=%d" % field))
        root.keep(questions[-1])
    said = _asked(index_program, tmp_path, questions, [root.path] * len(questions))
    assert said == [b"none"] * len(questions)


@pytest.mark.slow
def test_rows_full_of_lies_harm_nobody(root: Root, index_program: Path, tmp_path: Path) -> None:
    """With corrupt rows and entries nothing is read or written out of bounds."""
    draw = random.Random(26)
    plain = root.answered(Condition("A", b"", b"/nonexistent/a.h"))
    root.keep(plain)
    roots = []
    for number in range(400):
        place = tmp_path / f"root-{number}"
        shutil.copytree(root.path, place)
        (row,), (entry,) = place.rglob("*.row"), place.rglob("*.gpc")
        if draw.random() < 0.6:
            body = _lie(draw, row_of(plain).record[8:])
            record = struct.pack("<Q", xxhash.xxh64_intdigest(body)) + body
            row.write_bytes(encode([row_of(plain)._replace(record=record)]))
        if draw.random() < 0.4:
            entry.write_bytes(_lie(draw, entry.read_bytes()))
        roots.append(place)
    said = _asked(index_program, tmp_path, [plain] * 400, roots)
    assert len(said) == 400
    assert {b"none", _said(replace(plain, answer=tuple(_HIT)))} <= set(said)


def _asked(program: Path, folder: Path, questions: Sequence[Answered], roots: Sequence[Path]) -> list[bytes]:
    """The index's replies for each root to a program that asks plainly, by threads, or by a child."""
    asking = Layer(program, folder)
    return asking.ask_all(questions, "-tf", indexes=roots, GPUCACHE_RUN_SOCKET="/nonexistent/socket")
