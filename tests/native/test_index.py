"""The index in C: its replies, the files that it refuses, and its behaviour on a malicious file."""

import os
import random
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from gpucache.serve import index
from gpucache.serve.index import Answered, Condition, Hole, is_compared, merged, place_of, row_of
from gpucache.serve.wire import Kind
from gpucache.store.records import Row, encode
from tests.patience import PATIENCE_S, tick
from tests.unprivileged import needs_root

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the libraries are for Linux")
_NONE = b"none"
_TAIL = b"\n\n__constant int pyopencl_defeat_cache_%s = 0;"
_LIES = 700
_BEFORE = [Row(9, 9, bytes(3000)), Row(0, 9, bytes(3000))]
"""Records that fill what is read of a file at once."""


class Layer:
    """A root with rows, and a program that reads it."""

    def __init__(self, program: Path, folder: Path) -> None:
        self._program = program
        self.folder = folder
        self.told = ""

    @property
    def rows(self) -> Path:
        return self.folder / "v1" / "rows"

    @property
    def file(self) -> Path:
        (found,) = self.rows.iterdir()
        return found

    def export(self, *answered: Answered) -> None:
        places: dict[str, list[Row]] = {}
        for row in map(row_of, answered):
            places.setdefault(place_of(row), []).append(row)
        for place, rows in places.items():
            self.write(place, encode(merged(rows, [])))

    def write(self, place: str, data: bytes) -> None:
        self.rows.mkdir(mode=0o755, parents=True, exist_ok=True)
        self._put(self.rows / f"{place}.row", data)

    def write_small(self, data: bytes) -> None:
        """The file with the small rows of many questions."""
        (self.folder / "v1").mkdir(mode=0o755, parents=True, exist_ok=True)
        self._put(self.folder / "v1" / "records.row", data)

    def _put(self, file: Path, data: bytes) -> None:
        file.unlink(missing_ok=True)
        file.write_bytes(data)
        file.chmod(0o644)

    def ask(self, question: Answered, mode: str = "-", cwd: Path | None = None, **variables: str) -> bytes:
        return self.ask_all([question], mode, cwd, (), **variables)[0]

    def ask_all(
        self,
        questions: Sequence[Answered],
        mode: str = "-",
        cwd: Path | None = None,
        indexes: Sequence[Path] = (),
        **variables: str,
    ) -> list[bytes]:
        """The results of all questions, asked in each of the modes in turn."""
        lines = []
        for number, one in enumerate(questions):
            place = self.folder / f"question-{number}"
            fields = b"".join(struct.pack("<I", len(field)) + field for field in one.question)
            place.write_bytes(bytes([one.kind]) + fields)
            index = f"\t{indexes[number]}" if indexes else ""
            lines.append(f"{mode[number % len(mode)]}\t{place}{index}\n")
        done = subprocess.run(
            [self._program],
            input="".join(lines).encode(),
            env={"GPUCACHE_LAYER": str(self.folder), "GPUCACHE_LAYER_TELL": "1", **variables},
            capture_output=True,
            check=False,
            timeout=PATIENCE_S,
            cwd=cwd,
        )
        self.told = done.stderr.decode(errors="replace")
        assert done.returncode == 0, self.told
        return done.stdout.splitlines()


@pytest.fixture
def layer(index_program: Path, tmp_path: Path) -> Layer:
    folder = tmp_path / "layer"
    folder.mkdir(mode=0o755)
    return Layer(index_program, folder)


def _build(*conditions: Condition, source: bytes = b"kernel void a() {}" * 20, **fields: bytes) -> Answered:
    device = [b"/driver.so", b"platform", b"vendor", b"1.0", b"device", b"maker", b"2.0", b"3.0"]
    cwd, environment = fields.get("cwd", b"/"), fields.get("environment", b"")
    question = (b"17", cwd, environment, fields.get("options", b"-O1"), source, b"1", *device)
    return Answered("a for cpu", Kind.BUILD, question, (b"", b"binary\0", b"log"), conditions)


def _compile(name: bytes = b"a.cu", *, version: bytes = b"13.1") -> Answered:
    question = (b"17", b"/", b"", version, b"/libnvrtc.so", name, b"source", b"0", b"1", b"-O1", b"0")
    return Answered("a", Kind.COMPILE, question, (b"", b"log", b"0", b"0"), ())


def _said(answered: Answered) -> bytes:
    return b"".join(field.hex().encode() + b"." for field in answered.answer)


def _with(answered: Answered, place: int, value: bytes) -> Answered:
    fields = list(answered.question)
    fields[place] = value
    return replace(answered, question=tuple(fields))


@pytest.mark.parametrize("mode", "-ctf")
def test_a_question_that_was_answered_is_answered(layer: Layer, mode: str) -> None:
    """Byte for byte, even with all descriptors closed, by threads and in a child of a child."""
    one, other = _build(), _compile()
    layer.export(one, other)
    assert layer.ask_all([one, other], mode) == [_said(one), _said(other)]


def test_each_hit_and_each_miss_is_told(layer: Layer) -> None:
    """On standard error if GPUCACHE_LAYER_TELL is set, else not at all."""
    one = _build()
    layer.export(one)
    layer.ask_all([one, _build(source=b"other"), _with(one, 10, b"GPU")])
    assert layer.told.splitlines() == [
        "gpucache: hit: a for cpu",
        "gpucache: miss: a source of 5 bytes: its source is not in the layer",
        "gpucache: miss: a: device name: now 'GPU', stored 'device'",
    ]
    layer.ask_all([one, _build(source=b"other")], GPUCACHE_LAYER_TELL="0")
    assert layer.told == ""


def test_a_miss_is_told_by_the_name_of_its_source(layer: Layer) -> None:
    """By NVRTC's name for it, unless that is its default, or else by the first kernel."""
    layer.export(_build())
    plain = b"__global__ void scale(float *a) {}"
    named = [_with(_compile(b"scale.cu"), 6, plain), _with(_compile(b"default_program"), 6, plain)]
    layer.ask_all(
        [*named, _build(source=b"// one kernel\n__kernel\nvoid  blur(global int *a) {}"), _compile(b"")]
    )
    assert [line.split(": ")[2] for line in layer.told.splitlines()] == [
        "scale.cu", "scale", "blur", "a source of 6 bytes",
    ]  # fmt: skip


def test_a_layer_that_is_not_there_is_named(layer: Layer) -> None:
    """Its program compiles as without it."""
    layer.folder.rename(layer.folder.with_name("elsewhere"))
    layer.folder = layer.folder.with_name("elsewhere")
    gone = layer.folder.with_name("layer")
    assert layer.ask(_build(), GPUCACHE_LAYER=str(gone)) == _NONE
    assert f"{gone} cannot be read, or is not this user's or root's alone" in layer.told


@pytest.mark.parametrize("answered", [_build(), _compile()])
def test_every_field_of_a_question_is_compared(layer: Layer, answered: Answered) -> None:
    """All except the process, its directory and environment, and the place of its library."""
    layer.export(answered)
    count = len(answered.question)
    asked = [_with(answered, place, b"else") for place in range(count)]
    compared = [is_compared(answered.kind, place) for place in range(count)]
    assert layer.ask_all(asked) == [_NONE if one else _said(answered) for one in compared]
    assert compared.count(False) == 4


def test_what_a_program_makes_up_is_put_into_the_answer(layer: Layer) -> None:
    """Where its name was at the export, and only for names made up in the same way."""
    given = _compile(b"/tmp/tmpabcdefgh.cu")
    exported = replace(
        given,
        answer=(b"", b"/tmp/tmpabcdefgh.cu(1)", b"0", b"0"),
        holes=(Hole(5, 8, 8, (4 + 4 + 8,)),),
    )
    layer.export(exported)
    other, wrong = _compile(b"/tmp/tmp01234_67.cu"), _compile(b"/tmp/tmp01234-67.cu")
    answer = replace(other, answer=(b"", b"/tmp/tmp01234_67.cu(1)", b"0", b"0"))
    assert layer.ask_all([other, wrong]) == [_said(answer), _NONE]


def test_a_mark_against_caches_is_no_part_of_a_question(layer: Layer) -> None:
    """PyOpenCL appends a constant of another name in each run."""
    begin, marks = b"kernel void a() {}" * 9, (b"0" * 32, b"f" * 32, b"F" * 32)
    first, second, third = (_build(source=begin + _TAIL % mark) for mark in marks)
    hole = Hole(4, len(begin) + _TAIL.index(b"%"), 32)
    layer.export(replace(first, holes=(hole,)))
    assert layer.ask_all([second, third]) == [_said(first), _NONE]


def test_sources_that_differ_in_their_ends_alone_have_each_a_row(layer: Layer) -> None:
    """More than a file of rows has room for."""
    count = 3 * index.ROWS_CAP
    every = [_build(source=b"kernel void a() {}" * 9 + b"// %d" % number) for number in range(count)]
    layer.export(*every)
    assert len([*layer.rows.iterdir()]) == count
    assert layer.ask_all(every) == [_said(one) for one in every]


def _value(path: Path) -> bytes:
    """Size and content of a file as a condition has them."""
    data = path.read_bytes()
    size = len(data)
    if size > 1 << 20:
        data = b"".join(data[(at := (size - 4096) * n // 255) : at + 4096] for n in range(256))
    return struct.pack("<QQ", size, xxhash.xxh64_intdigest(data) if data else 0)


def _changed(path: Path) -> None:
    """Change one byte and keep the size and the time."""
    status = path.stat()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def _linked(path: Path) -> None:
    """Replace an equal file by a second name of the file."""
    path.unlink()
    path.hardlink_to(path.with_name("twin"))


def _touched(path: Path) -> None:
    os.utime(path, ns=(1, 1))


def _replaced(path: Path) -> None:
    path.write_bytes(b"other bytes" * 9)


def _moved(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))


def _a_file_instead_of_its_folder(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.touch()


def _linked_elsewhere(path: Path) -> None:
    _moved(path)
    path.symlink_to("elsewhere")


def _joined(path: Path) -> None:
    path.with_name("x.h").touch()


def _twin(path: Path) -> tuple[Condition, ...]:
    twin = path.with_name("twin")
    shutil.copy2(path, twin)
    return tuple(
        Condition("F", text=bytes(one), value=_value(one), more=b"%d" % number)
        for number, one in enumerate((path, twin))
    )


_Made = Callable[[Path], tuple[Condition, ...]]
_PLACES: list[tuple[str, _Made, Callable[[Path], object], str]] = [
    ("header", lambda path: (Condition("F", b"", bytes(path), _value(path)),), _changed, "has changed"),
    ("header", lambda path: (Condition("F", b"", bytes(path), _value(path)),), _moved, "cannot be read"),
    ("header in the folder", lambda path: (Condition("F", b"w", b"file", _value(path)),), _changed, "has ch"),
    ("unread file", lambda path: (Condition("F", b"", bytes(path)),), _moved, "cannot be read"),
    ("file that is another", _twin, _linked, "is not the same file as before"),
    ("library", lambda path: (Condition("S", b"", bytes(path), _value(path)),), _replaced, "has changed"),
    ("library asked", lambda path: (Condition("S", b"6", b"", _value(path)),), _replaced, "has changed"),
    ("beside library", lambda path: (Condition("B", b"6", b"file", _value(path)),), _replaced, "has changed"),
    ("absence", lambda path: (Condition("A", b"", bytes(path) + b".h"),), _moved, ""),
    ("absence", lambda _: (Condition("A", b"w", b"x.h"),), _joined, "was not there"),
    ("absence", lambda _: (Condition("A", b"s", b"x.h"),), _joined, "was not there"),
    (
        "folder",
        lambda path: (Condition("D", b"", bytes(path.parent)),),
        _a_file_instead_of_its_folder,
        "is not the same directory",
    ),
    (
        "link",
        lambda path: (Condition("R", b"", bytes(path), bytes(path.resolve())),),
        _linked_elsewhere,
        "leads to another place",
    ),
    ("lonely file", lambda path: (Condition("O", b"", bytes(path)),), _joined, "is not alone in"),
    ("lonely file asked", lambda _: (Condition("O", b"6"),), _joined, "is not alone in"),
    ("name alone", lambda _: (Condition("O", b"6"),), lambda path: shutil.rmtree(path.parent), ""),
]


@pytest.mark.parametrize(
    ("condition", "change", "why"), [one[1:] for one in _PLACES], ids=[one[0] for one in _PLACES]
)
def test_an_answer_holds_while_files_are_as_they_were(
    layer: Layer,
    tmp_path: Path,
    condition: _Made,
    change: Callable[[Path], object],
    why: str,
) -> None:
    """A change of any of them is a miss, and reported with the file's name."""
    place = tmp_path / "place"
    place.mkdir()
    path = place / "file"
    path.write_bytes(b"some bytes")
    answered = _with(_build(*condition(path), cwd=bytes(place)), 6, bytes(path))
    layer.export(answered)
    assert layer.ask(answered, cwd=place) == _said(answered), layer.told
    change(path)
    assert layer.ask(answered, cwd=place if place.is_dir() else tmp_path) == (
        _NONE if why else _said(answered)
    )
    assert why in layer.told and (not why or str(place) in layer.told)


@pytest.mark.parametrize("kind", ["F", "S", "B"])
@pytest.mark.parametrize("size", [10, (3 << 20) + 5])
def test_a_file_that_was_only_touched_is_the_same(layer: Layer, tmp_path: Path, size: int, kind: str) -> None:
    """Its content is read: of a large library a part, of other files everything."""
    path = tmp_path / "file"
    path.write_bytes(bytes(range(256)) * (size // 256) + b"." * (size % 256))
    size, digest = struct.unpack("<QQ", _value(path))
    if kind != "S":
        digest = 0
        for part in _parts(path.read_bytes(), 1 << 20):
            digest = xxhash.xxh64_intdigest(part, digest)
    answered = _build(Condition(kind, b"", bytes(path), struct.pack("<QQ", size, digest)))
    layer.export(answered)
    os.utime(path, (1, 1))
    assert layer.ask(answered) == _said(answered), layer.told
    tick(tmp_path)
    data = path.read_bytes()
    path.write_bytes(b"?" + data[1:])
    assert layer.ask(answered) == _NONE


@pytest.mark.parametrize(("linked", "hit"), [("library", False), ("folder", True)])
def test_what_lies_beside_a_library_is_where_the_loader_looks(
    layer: Layer, tmp_path: Path, linked: str, hit: bool
) -> None:
    """Beside a link to the library, and not beside the file that it leads to."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    for name in ("library", "beside"):
        (folder / name).write_bytes(b"some bytes")
    value = _value(folder / "beside")
    answered = _build(Condition("S", b"6", b"", value), Condition("B", b"6", b"beside", value))
    layer.export(answered)
    if linked == "folder":
        other.symlink_to(folder)
    else:
        other.mkdir()
        (other / "library").symlink_to(folder / "library")
    asked = [_with(answered, 6, bytes(place / "library")) for place in (folder, other)]
    assert layer.ask_all(asked) == [_said(answered), _said(answered) if hit else _NONE]


def _parts(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


_ENVIRONMENT = Condition("E", b"", b"POCL_*\0OPENCL_LAYERS\0", b"POCL_DE?UG\0", b"POCL_A=1\0")


@pytest.mark.parametrize(
    ("environment", "why"),
    [
        (b"POCL_A=1\0HOME=/\0POCL_DEBUG=1\0", ""),
        (b"POCL_A=1\0OPENCL_LAYERS=/a/libgpucache_opencl_layer.so\0", ""),
        (b"POCL_A=2\0", "the variable POCL_A is set to '2'"),
        (b"POCL_A=1\0POCL_B=\0", "the variable POCL_B is set to ''"),
        (b"HOME=/\0", "a variable is not set as it was: POCL_A=1"),
        (
            b"POCL_A=1\0OPENCL_LAYERS=/a/libgpucache_opencl_layer.so:/b.so\0",
            "OPENCL_LAYERS is set to '/b.so'",
        ),
    ],
)
def test_variables_that_reach_a_compiler_are_compared(layer: Layer, environment: bytes, why: str) -> None:
    """All whose names match a pattern, except those that change nothing, and our own layer."""
    layer.export(_build(_ENVIRONMENT))
    said = layer.ask(_build(environment=environment))
    assert (said == _NONE) is bool(why)
    assert why in layer.told


def test_a_variable_that_is_set_twice_is_no_other(layer: Layer) -> None:
    """It does not replace a missing one."""
    kept = b"POCL_A=1\0POCL_B=1\0"
    layer.export(_build(Condition("E", b"", b"POCL_*\0", b"", kept)))
    environments = (kept, b"POCL_A=1\0" + kept, b"POCL_A=1\0POCL_A=1\0")
    said = layer.ask_all([_build(environment=one) for one in environments])
    assert [one == _NONE for one in said] == [False, False, True]


@pytest.mark.parametrize(
    ("condition", "hit"),
    [
        (Condition("C", b"", b"nothing*\0", b""), True),
        (Condition("C", b"", b"*\0", b"none\0"), False),
        (Condition("C", b"", b"nothing*\0", b"nothing1\0"), False),
        (Condition("W", b"", b"/"), True),
        (Condition("W", b"", b"/tmp"), False),
        (Condition("P", b"", b"there"), False),
        (Condition("P", b"", b"nowhere"), True),
        (Condition("Z"), False),
    ],
)
def test_other_conditions(layer: Layer, tmp_path: Path, condition: Condition, hit: bool) -> None:
    """The CPU, the directory, the files on LD_LIBRARY_PATH; an unknown condition is never met."""
    (tmp_path / "there").touch()
    layer.export(_build(condition))
    asked = _build(environment=b"LD_LIBRARY_PATH=/nowhere::%s\0" % bytes(tmp_path))
    assert (layer.ask(asked) != _NONE) is hit


def test_one_question_may_have_answers_under_other_conditions(layer: Layer) -> None:
    """The one whose conditions are met is returned, and a new one replaces that of the same conditions."""
    tmp, root = (Condition("W", b"", text) for text in (b"/tmp", b"/"))
    old = _build(tmp)
    new = replace(_build(root), answer=(b"", b"new", b""))
    newer = replace(new, answer=(b"", b"newer", b""))
    rows = merged([row_of(new)], [row_of(old)])
    rows = merged([row_of(newer)], rows)
    layer.write(place_of(rows[0]), encode(rows))
    assert len(rows) == 2
    assert layer.ask_all([_build(), _build(cwd=b"/tmp")]) == [_said(newer), _said(old)]


def test_a_server_is_asked_before_an_index(layer: Layer) -> None:
    """Under ``gpucache run`` the index is not used, nor if the cache is disabled."""
    one = _build()
    layer.export(one)
    assert layer.ask(one, GPUCACHE_RUN_SOCKET="/nonexistent/socket") == _NONE
    assert layer.ask(one, GPUCACHE_DISABLE="1") == _NONE
    assert layer.ask(one, GPUCACHE_DISABLE="0") == _said(one)


@pytest.mark.parametrize("who", ["file", "folder", pytest.param("another user", marks=needs_root)])
def test_a_layer_that_others_may_write_is_not_believed(layer: Layer, who: str) -> None:
    """A row in a directory that others may write, or another user's, is ignored too."""
    one = _build()
    layer.export(one)
    if who == "another user":
        os.chown(layer.folder, 65534, 65534)
    else:
        (layer.file if who == "file" else layer.folder).chmod(0o777)
    assert layer.ask(one) == _NONE
    assert who == "file" or "is not this user's or root's alone" in layer.told


@pytest.mark.parametrize("kind", ["none", "link", "folder", "pipe", "empty"])
def test_what_is_no_row_answers_nothing(layer: Layer, kind: str) -> None:
    """A link, a directory, a pipe or an empty file in its place does not block."""
    one = _build()
    layer.export(one)
    file = layer.file
    kept = file.rename(layer.folder / "kept")
    match kind:
        case "link":
            file.symlink_to(kept)
        case "folder":
            file.mkdir()
        case "pipe":
            os.mkfifo(file)
        case "empty":
            file.touch()
    assert layer.ask(one) == _NONE
    assert ("is damaged" if kind == "empty" else "its source is not in the layer") in layer.told


def _lie(draw: random.Random, data: bytes) -> bytes:
    """A few bytes changed, cut off or inserted, or wrong lengths."""
    lied = bytearray(data)
    for _ in range(draw.randrange(1, 4)):
        at = draw.randrange(len(lied)) if lied else 0
        match draw.randrange(5):
            case 0 if lied:
                lied[at] = draw.choice((0, 1, 4, 0x2F, 0x7F, 0x80, 0xFF))
            case 1:
                del lied[at:]
            case 2:
                lied[at:at] = draw.randbytes(draw.randrange(1, 9))
            case 3:
                lied[at : at + 4] = struct.pack("<I", draw.choice((0, 1, 5, 1 << 28, (1 << 32) - 1)))
            case _:
                lied[at : at + 8] = struct.pack("<Q", draw.choice((0, 1, 1 << 63, (1 << 64) - 1)))
    return bytes(lied)


def _lying(draw: random.Random, answered: Answered) -> bytes:
    """A malicious index: wrong anywhere, or inside a record whose digest is still right."""
    row, before = row_of(answered), _BEFORE if draw.random() < 0.5 else []
    if draw.random() < 0.3:
        return _lie(draw, encode([*before, row]))
    body = _lie(draw, row.record[8:])
    record = struct.pack("<Q", xxhash.xxh64_intdigest(body)) + body
    return encode([*before, row._replace(record=record)])


def _strange(draw: random.Random, one: Condition) -> Condition:
    """A condition with parts of its own kind or of others."""
    pool = (b"", b"/", b"0", b"4", b"99", b"w", b"s", b"*\0", b"a", b"?" * 40 + b"\0", b"/" * 5000, b"\0\0")
    parts = [draw.choice(pool) if draw.random() < 0.4 else part for part in one[1:]]
    return Condition(draw.choice("FSBADRNLOEPCWZ") if draw.random() < 0.3 else one.kind, *parts)


@pytest.mark.slow
def test_a_layer_full_of_lies_harms_nobody(layer: Layer, index_program: Path, tmp_path: Path) -> None:
    """Whatever its content, the program goes on; nothing is read or written out of bounds."""
    draw = random.Random(16)
    path, place = tmp_path / "file", tmp_path / "place"
    place.mkdir()
    path.write_bytes(b"some bytes")
    conditions = (
        *(Condition(kind, b"", bytes(path), _value(path), b"1") for kind in "FSB"),
        Condition("N", b"", bytes(place), struct.pack("<QQ", 0, 0)),
        Condition("D", b"", bytes(tmp_path), b"", b"2"),
        Condition("R", b"", bytes(path), bytes(path)),
        Condition("A", b"6", b"absent"),
        Condition("C", b"", b"nothing*\0"),
        Condition("P", b"", b"nowhere"),
        Condition("W", b"", b"/"),
        _ENVIRONMENT,
    )
    environment = b"POCL_A=1\0LD_LIBRARY_PATH=/a:/b\0OPENCL_LAYERS=/a/libgpucache_opencl_layer.so:\0"
    plain = _with(_build(environment=environment), 6, bytes(path))
    hole = Hole(4, 300, 20, (4 + 4 + 1,))
    indexes = []
    for number in range(_LIES):
        own = [_strange(draw, one) if draw.random() < 0.2 else one for one in conditions]
        draw.shuffle(own)
        answered = replace(plain, conditions=tuple(own), holes=(hole,) if draw.random() < 0.2 else ())
        lied = draw.random() < 0.7
        here = Layer(index_program, tmp_path / f"layer-{number}")
        data = _lying(draw, answered) if lied else encode([row_of(answered)])
        if draw.random() < 0.5:
            here.write(place_of(row_of(answered)), data)
        else:
            here.write_small(data)
        indexes.append(here.folder)
    said = layer.ask_all([plain] * _LIES, indexes=indexes)
    assert len(said) == _LIES
    assert {_NONE, _said(plain)} <= set(said)


@pytest.mark.parametrize("before", [[], _BEFORE], ids=["first", "later"])
def test_a_small_row_among_others_answers(layer: Layer, before: list[Row]) -> None:
    """It is read wherever it is in the file; that of another question, or with a wrong byte, does not."""
    one, other = _build(), _build(source=b"kernel void b() {}" * 20)
    layer.write_small(encode([*before, row_of(one)]))
    assert layer.ask_all([one, other]) == [_said(one), _NONE]
    row = row_of(one)
    layer.write_small(encode([*before, row._replace(record=row.record[:-1] + b"x")]))
    assert layer.ask(one) == _NONE
    layer.write(place_of(row), encode([row]))
    assert layer.ask(one) == _said(one)


def test_a_name_that_differs_before_its_made_up_part_is_another_question(layer: Layer) -> None:
    """The name is in no digest, so its bytes before the made-up part are compared one by one."""
    given = replace(_compile(b"/tmp/tmpabcdefgh.cu"), holes=(Hole(5, 8, 8),))
    layer.export(given)
    assert layer.ask_all([_compile(b"/tmp/tmp01234567.cu"), _compile(b"/opt/own01234567.cu")]) == [
        _said(given),
        _NONE,
    ]


@pytest.mark.parametrize("beyond", [-7, -1, 0, 1 << 20])
def test_a_made_up_part_is_never_written_beyond_the_answer(layer: Layer, beyond: int) -> None:
    """An index from elsewhere may name any place for it."""
    given = _compile(b"/tmp/tmpabcdefgh.cu")
    size = sum(4 + len(field) for field in given.answer)
    layer.export(replace(given, holes=(Hole(5, 8, 8, (size + beyond,)),)))
    assert layer.ask_all([given, _compile(b"/tmp/tmp01234567.cu")]) == [_NONE, _NONE]


@pytest.mark.parametrize(("kind", "answered"), [("B", False), ("S", True)])
def test_a_file_that_changed_since_a_process_loaded_its_compiler_may_have_been_read_before(
    layer: Layer, index_program: Path, kind: str, *, answered: bool
) -> None:
    """What is at its path says nothing then; a library that is not loaded yet is another matter."""
    file, pipe = layer.folder / "kernel.bc", layer.folder / "question"
    file.write_bytes(b"bitcode")
    one = _build(Condition(kind, b"", os.fsencode(file), _value(file)))
    layer.export(one)
    assert layer.ask(one) == _said(one)
    os.mkfifo(pipe)
    environ = {"GPUCACHE_LAYER": str(layer.folder)}
    with subprocess.Popen([index_program], stdin=-1, stdout=-1, env=environ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(f"-\t{pipe}\n".encode())
        process.stdin.flush()
        with pipe.open("wb") as question:  # which is read after the library has begun
            begun_ns, times = time.time_ns(), (file.stat().st_atime_ns, file.stat().st_mtime_ns)
            while file.stat().st_ctime_ns <= begun_ns:
                os.utime(file, ns=times)
            fields = (struct.pack("<I", len(field)) + field for field in one.question)
            question.write(bytes([one.kind]) + b"".join(fields))
        found, _ = process.communicate(timeout=PATIENCE_S)
    assert found.rstrip() == (_said(one) if answered else _NONE)
