"""The conditions of an answer in a root, and commands served there without a server."""

import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import xxhash

from gpucache.backends.cuda import nvrtc
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import Stores
from gpucache.host.file_stamps import files_seen, is_young
from gpucache.keys import digest, header_of, variable_of
from gpucache.model import CacheKey, Device, KeyField
from gpucache.serve import conditions
from gpucache.serve.answering import Rows
from gpucache.serve.conditions import (
    BY_CPU,
    BY_FIELD,
    BY_FILES,
    BY_PLACE,
    COVERED,
    Conditions,
    UncoveredError,
    _header,
)
from gpucache.serve.devices import Devices
from gpucache.serve.environment import Libraries
from gpucache.serve.index import Condition, place_of, row_of
from gpucache.serve.nvrtc import Call, of_call, prepare_call, read_call
from gpucache.serve.opencl import Asked, of_build, prepare_build, read_build
from gpucache.serve.wire import Fields, Kind
from gpucache.store.directory import DirectoryStore
from gpucache.store.records import encode, rows_of
from tests.native.test_index import _build
from tests.pocl import PLATFORM, need_pocl
from tests.serve.conftest import PROGRAM, Done
from tests.serve.test_nvrtc import installed  # noqa: F401 - a fixture
from tests.serve.test_opencl import _facts, _row, rows  # noqa: F401 - a fixture among them

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")
_NEEDED: Mapping[str, frozenset[str]] = {
    BY_FIELD: frozenset(),
    BY_FILES: frozenset("SI"),
    BY_CPU: frozenset("C"),
    BY_PLACE: frozenset("W"),
}
"""The kinds of conditions, of which one represents fields of a key."""
_NVRTC_PROGRAM = PROGRAM.with_name("nvrtc_program.py")


def _since_ns() -> int:
    """A time at which the compilers are not new, even if they were installed just now."""
    return time.time_ns() + 61 * 10**9


class Build:
    """An OpenCL build with a header and a variable, prepared."""

    def __init__(self, rows: Sequence[Device], folder: Path, implementation: str, variable: bytes) -> None:  # noqa: F811
        (folder / "value.h").write_text("#define VALUE 1\n")
        fields = (
            *(files_seen().encode(), os.fsencode(folder), variable + b"\0", b"-I. -DA=1"),
            *(b'#include "value.h"\nkernel void f(global int *a) { *a = VALUE; }', b"1"),
            *_facts(_row(rows, implementation)),
        )
        self.asked: Asked = read_build(Fields(fields), Libraries())
        devices = Devices(probe=lambda: rows)
        (self.prepared,) = prepare_build(self.asked, devices)
        self.files = devices.files(self.asked.devices[0])

    def conditions(
        self, key: CacheKey, prepared: Prepared | None = None, since_ns: int = 0
    ) -> set[Condition]:
        since_ns = since_ns or _since_ns()
        return {*of_build(self.asked, [prepared or self.prepared], [key], [self.files], since_ns).conditions}


@pytest.fixture(params=[("intel", b"CL_CONFIG_CPU_TARGET_ARCH=x"), ("pocl", b"POCL_VECTORIZER_REMARKS=1")])
def opencl(request: pytest.FixtureRequest, rows: Sequence[Device], tmp_path: Path) -> Build:  # noqa: F811
    return Build(rows, tmp_path, *request.param)


def _all_stand(fields: Sequence[KeyField], conditions: set[Condition]) -> None:
    """Whether a condition represents each field of a key."""
    kinds = {one.kind for one in conditions}
    told = b"".join(one.more for one in conditions if one.kind == "E")
    for item in fields:
        if header_of(item.label) is not None:
            assert "F" in kinds
        elif variable := variable_of(item.label):
            assert f"{variable}={item.value}".encode() in told
        else:
            needed = _NEEDED[COVERED[item.label]]
            assert not needed or needed & kinds, item.label


def test_every_field_of_an_opencl_key_has_a_condition(opencl: Build) -> None:
    """Both keys are covered; the names come from the keys themselves."""
    prepared = opencl.prepared
    assert any(variable_of(item.label) for item in prepared.fields)
    _all_stand(prepared.fields, opencl.conditions(prepared.key))
    _all_stand(prepared.located, opencl.conditions(prepared.located_key))


def _call(library: Path, folder: Path, before: bytes = b"", more: bytes = b"-lineinfo") -> Call:
    (folder / "value.h").write_text("#define VALUE 1\n")
    version = ".".join(map(str, nvrtc.version())).encode()
    return read_call(
        Fields(
            (
                *(files_seen().encode(), os.fsencode(folder), b"NVVM_X=1\0", version, os.fsencode(library)),
                *(
                    b"a.cu",
                    before + b'#include "value.h"\ntemplate <class T> __global__ void f(T *a) {}',
                    b"0",
                ),
                *(b"3", b"-arch=sm_90", b"-I.", more, b"1", b"f<int>"),
            )
        )
    )


@pytest.mark.usefixtures("installed")
def test_every_field_of_an_nvrtc_key_has_a_condition(tmp_path: Path) -> None:
    library, _ = nvrtc.nvrtc_libraries(nvrtc.version())
    assert library is not None
    call = _call(library, tmp_path)
    prepared = prepare_call(call)
    _all_stand(prepared.fields, {*of_call(call, prepared, prepared.key, _since_ns()).conditions})
    _all_stand(prepared.located, {*of_call(call, prepared, prepared.located_key, _since_ns()).conditions})


@pytest.mark.usefixtures("installed")
def test_an_include_through_a_macro_depends_on_the_names_in_its_folders(tmp_path: Path) -> None:
    """A program that is moved has its own ones, and must find the same names there."""
    library, _ = nvrtc.nvrtc_libraries(nvrtc.version())
    assert library is not None
    (tmp_path / "inc").mkdir()
    call = _call(library, tmp_path, b"#define A(x) <x.h>\n#include A(value)\n", b"-Iinc")
    prepared = prepare_call(call)
    found = of_call(call, prepared, prepared.key).conditions
    assert (b"w", b"inc") in {(one.place, one.text.rstrip(b"/")) for one in found if one.kind == "N"}
    (tmp_path / "inc" / "value.h").touch()
    with pytest.raises(UncoveredError, match="changed since"):
        of_call(call, prepared, prepared.key)


@pytest.mark.usefixtures("installed")
def test_headers_that_were_one_file_when_they_were_compiled_have_no_row_as_two(tmp_path: Path) -> None:
    """A compiler reads one file with ``#pragma once`` once, and two equal ones twice."""
    library, _ = nvrtc.nvrtc_libraries(nvrtc.version())
    assert library is not None
    one, two = tmp_path / "one.h", tmp_path / "two.h"
    one.write_text("#pragma once\n")
    two.hardlink_to(one)
    call = _call(library, tmp_path, b'#include "one.h"\n#include "two.h"\n')
    prepared = prepare_call(call)
    assert of_call(call, prepared, prepared.key).conditions
    two.unlink()
    shutil.copy(one, two)
    with pytest.raises(UncoveredError, match="changed since"):
        of_call(call, prepared, prepared.key)


def test_a_build_whose_program_changed_its_directory_meanwhile_has_no_row(opencl: Build) -> None:
    """Its question names another directory than that in which its headers were found."""
    moved = opencl.prepared._replace(request=opencl.prepared.request._replace(cwd="/"))
    with pytest.raises(UncoveredError, match="changed the current directory"):
        opencl.conditions(opencl.prepared.key, moved)


def test_a_field_that_no_condition_stands_for_is_left_to_the_server(opencl: Build) -> None:
    """A key may get new fields; until the index knows them, nothing is served from there."""
    grown = opencl.prepared._replace(fields=(*opencl.prepared.fields, KeyField("moon", "full")))
    with pytest.raises(UncoveredError, match="cannot check the moon"):
        opencl.conditions(grown.key, grown)


def test_a_compiler_that_changed_since_it_was_asked_is_left_to_the_server(opencl: Build) -> None:
    """The compiler may no longer be the one that made the answer."""
    with pytest.raises(UncoveredError, match="is new"):
        opencl.conditions(opencl.prepared.key, since_ns=1)


def test_a_compiler_that_was_installed_just_before_the_start_has_a_row(tmp_path: Path) -> None:
    """Its build id tells which one it is, whatever its age; a library without one may still be written."""
    found, _ = nvrtc.nvrtc_libraries(nvrtc.version())
    assert found is not None
    copy = shutil.copytree(found.parent, tmp_path / "lib") / found.name
    call = _call(copy, tmp_path, b"__global__ void k() {}")
    prepared = prepare_call(call)
    assert of_call(call, prepared, prepared.key, time.time_ns() + 10**9).conditions
    with pytest.raises(UncoveredError, match="is new"):
        of_call(call, prepared, prepared.key, copy.stat().st_ctime_ns)


def test_a_row_is_tried_again_at_the_next_hit_where_the_compiler_was_only_new(
    opencl: Build, tmp_path: Path
) -> None:
    """A fresh installation has none for a minute; after any other reason the next attempt is a day later."""
    question = (b"a", b"question")
    kept = Rows(Stores(user=DirectoryStore(tmp_path / "cache", writable=True)))
    with pytest.raises(UncoveredError) as new:
        opencl.conditions(opencl.prepared.key, since_ns=1)
    kept.note_none(Kind.BUILD, question, str(new.value))
    assert kept.is_due(Kind.BUILD, question)
    kept.note_none(Kind.BUILD, question, "its headers could not be read for sure")
    assert not kept.is_due(Kind.BUILD, question)


def test_a_header_that_is_younger_than_a_minute_has_no_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer through a memory mapping leaves a file's times unchanged for up to a minute."""
    header = tmp_path / "x.h"
    header.write_bytes(b"x")
    now_ns = time.time_ns()
    monkeypatch.setattr(conditions, "is_settled", lambda _, status, at: not is_young(status, at))
    for later_ns, is_stamped in ((10 * 10**9, False), (70 * 10**9, True)):
        monkeypatch.setattr(time, "time_ns", lambda at=now_ns + later_ns: at)
        assert any(_header(str(header), digest(b"x"))[1]) is is_stamped


def test_the_names_beside_a_compiler_are_known_without_a_stamp_too(
    opencl: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS or in a directory that is younger than a minute."""
    monkeypatch.setattr(conditions, "is_settled", lambda *_: False)
    found = {one for one in opencl.conditions(opencl.prepared.key) if one.kind == "L"}
    folders = {Path(file).parent for file in opencl.files}
    assert folders and {one.text for one in found} == {*map(os.fsencode, folders)}
    for one in found:
        names = [os.fsencode(path.name) for path in Path(os.fsdecode(one.text)).iterdir()]
        total = sum(map(xxhash.xxh64_intdigest, names)) % (1 << 64)
        assert one.value == struct.pack("<QQ", len(names), total)


def test_a_compilers_file_that_is_replaced_in_a_long_process_has_another_value(tmp_path: Path) -> None:
    """A server that outlives an upgrade must not give the new file the old one's content."""
    file, values = tmp_path / "builtins.bc", set()
    for content in (b"old", b"new"):
        (tmp_path / "next").write_bytes(content)
        (tmp_path / "next").replace(file)
        values.add(Conditions("/", tied=False)._recognised(str(file), is_library=False)[1])
    assert len(values) == 2


def test_of_answers_that_do_not_fit_the_oldest_go(tmp_path: Path) -> None:
    """Those of compilers that go on at launches have the source: fewer than eight of a mebibyte fit."""
    store = DirectoryStore(tmp_path / "root", writable=True)
    kept = []
    for number in range(6):
        whole = _build(Condition("W", b"", b"/%d" % number), source=bytes(1 << 20))
        kept.append(row_of(replace(whole, keeps_source=True)))
        assert Rows(Stores(user=store)).put(kept[-1]) == ""
    assert rows_of(store.rows.get(place_of(kept[0])) or b"") == kept[:-4:-1]


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [(PROGRAM, "Intel", "2", "3"), (_NVRTC_PROGRAM, "core", "plain"), (_NVRTC_PROGRAM, "core", "lines")],
)
@pytest.mark.usefixtures("installed")
def test_what_hits_is_answered_without_a_server(
    run: Callable[..., Done],
    run_without_python: Callable[..., "subprocess.CompletedProcess[str]"],
    words: tuple[object, ...],
) -> None:
    """Nor by any Python code, and its hits are counted nevertheless."""
    missed, hit = run(sys.executable, *words), run(sys.executable, *words)
    assert {*missed.results} == {"kept"} and {*hit.results} == {"hit"}
    assert hit.out == missed.out
    assert all(one["key"] and one["target"] and one["saved_ms"] for one in hit.report["outcomes"])
    done = run_without_python(sys.executable, *words)
    assert (done.returncode, done.stdout) == (0, hit.out)
    assert f"{len(hit.results)} hit" in done.stderr


@pytest.mark.slow
def test_a_late_compiler_needs_a_server_only_for_sizes_that_its_entry_lacks(
    run: Callable[..., Done],
    run_without_python: Callable[..., "subprocess.CompletedProcess[str]"],
    tmp_path: Path,
) -> None:
    """A launch with another local size is noted at the command's end, and its build has both."""
    need_pocl()
    words = (sys.executable, PROGRAM, PLATFORM, "2")
    other = tmp_path / "other.py"
    other.write_text(PROGRAM.read_text().replace("(16,)", "(8, 1)").replace("(64,)", "(64, 1)"))
    others = (sys.executable, other, *words[2:])
    assert run("--learn", *words).results == ["noted"]
    assert run(*words).results == ["hit"]
    hit = run(*words)
    assert hit.results == ["hit"] and hit.report["outcomes"][0]["all_kernels"]
    done = run_without_python(*words)
    assert (done.returncode, "instead of up to" in done.stderr) == (0, True)
    assert run_without_python(*others).returncode == 99
    lacking = run("--learn", *others)
    assert (lacking.results, lacking.report["summary"]["learned"]) == (["hit"], 1)
    assert run(*others).results == ["hit"]
    for command in (words, others):
        assert run_without_python(*command).returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize("learn", [True, False])
def test_what_was_noted_and_built_needs_no_server_at_the_next_start(
    run: Callable[..., Done],
    run_without_python: Callable[..., "subprocess.CompletedProcess[str]"],
    gpucache: Callable[..., "subprocess.CompletedProcess[str]"],
    environment: dict[str, str],
    learn: bool,
) -> None:
    """The request is noted as its program asked, with PyOpenCL's mark, and gets its row with its entry."""
    need_pocl()
    words = (sys.executable, PROGRAM, PLATFORM, "2", "3")
    environment["PYOPENCL_NO_CACHE"] = "0"
    assert run(*(["--learn"] if learn else []), *words).results == ["noted"] * 2
    assert learn or gpucache("warm", "--misses").returncode == 0
    assert "2 hits" in run_without_python(*words).stderr


@pytest.mark.slow
@pytest.mark.usefixtures("installed")
def test_a_program_that_loads_nvrtc_and_compiles_nothing_is_seen(
    run: Callable[..., Done], root: Path
) -> None:
    """Also if an index keeps it from reporting that to a server."""
    (root / "v1" / "rows").mkdir(mode=0o700, parents=True)
    root.chmod(0o700)
    done = run(sys.executable, "-c", "from cuda.bindings import nvrtc; nvrtc.nvrtcVersion()")
    assert "no build from source was seen" in done.err


@pytest.mark.slow
def test_what_was_evicted_or_damaged_misses_at_once(run: Callable[..., Done], root: Path) -> None:
    """The index has no payloads of its own; it serves a repaired entry again."""
    words = (sys.executable, PROGRAM, "Intel", "2")
    run(*words)
    (entry,) = root.rglob("*.gpc")
    data = bytearray(entry.read_bytes())
    data[-1] ^= 1
    entry.write_bytes(data)
    assert run(*words).results == ["kept"]
    assert run(*words).results == ["hit"]
    entry.unlink()
    assert run(*words).results == ["kept"]


@pytest.mark.slow
def test_an_entry_without_a_row_gets_one_at_its_first_hit(run: Callable[..., Done], root: Path) -> None:
    """Such as one from warm or from a copied root; a root that is only read gets none."""
    words = (sys.executable, PROGRAM, "Intel", "2")
    run(*words)
    (row,) = root.rglob("*.row")
    row.unlink()
    assert run(*words, GPUCACHE_READ_ONLY="1").results == ["hit"]
    assert not row.exists()
    assert run(*words).results == ["hit"]
    assert row.exists()


def test_rows_of_the_version_before_are_not_believed() -> None:
    """They may lack a header that the scanner of that time did not see."""
    data = encode([])
    assert rows_of(data) == []
    assert rows_of(data[:8] + (4).to_bytes(4, "little") + data[12:]) is None
