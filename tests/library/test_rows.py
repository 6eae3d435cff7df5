"""Hits of the library that a row answers: in C, with nothing else of ours imported, and never a wrong one."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gpucache.library import rows
from gpucache.native.build import find_compiler
from gpucache.settings import MACHINE, find_root
from gpucache.store.directory import DirectoryStore
from tests.children import run_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the C library is for Linux")
_PROGRAM = """
import json, sys, warnings
warnings.simplefilter("ignore")  # Intel's compiler always says something
import numpy as np
import pyopencl as cl
from gpucache import opencl
from gpucache.library import rows
from gpucache.native.build import find_compiler
if sys.argv[1] == "python":
    rows.library = lambda: None
context = cl.Context(next(one for one in cl.get_platforms() if one.name.startswith("Intel")).get_devices())
queue = cl.CommandQueue(context)
def value(source, options=()):
    if sys.argv[2] == "install":
        opencl.install()
        program = cl.Program(context, source).build(options=list(options))
    else:
        program = opencl.build_program(context, source, options=list(options))
    out = np.zeros(4, np.int32)
    there = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, out.nbytes)
    program.show(queue, (4,), None, there)
    cl.enqueue_copy(queue, out, there)
    told = program.get_build_info(context.devices[0], cl.program_build_info.LOG)
    return int(out[0]), program.source == source, told
answers = [value(*one) for one in json.loads(sys.argv[3])]
print(json.dumps([answers, sorted(name for name in [*sys.modules] if name.startswith("gpucache"))]))
"""
_SHOW = "kernel void show(global int *out) { out[get_global_id(0)] = V; }"
_FROM_HEADER = f'#include "value.h"\n{_SHOW}'
_HEAVY = {"gpucache.model", "gpucache.keys", "gpucache.assembly", "gpucache.engine", "gpucache.backends"}
Run = Callable[..., tuple[list[Any], set[str]]]


@pytest.fixture
def settings(opencl_environment: Mapping[str, str], tmp_path: Path) -> dict[str, str]:
    if rows.library() is None:
        pytest.skip("the C library is not built")
    (tmp_path / "work").mkdir()
    return {**opencl_environment, "GPUCACHE_DIR": str(tmp_path / "cache")}


@pytest.fixture
def run(settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """What a separate program gets for some sources with their options, and what it has imported."""
    monkeypatch.chdir(tmp_path / "work")

    def run(*asked: Any, way: str = "rows", door: str = "build", **more: str) -> tuple[list[Any], set[str]]:
        jobs = [one if isinstance(one, tuple) else (one, ["-DV=7"]) for one in asked]
        said = run_python("-c", _PROGRAM, way, door, json.dumps(jobs), env={**settings, **more})
        answers, modules = json.loads(said)
        return answers, set(modules)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("door", ["build", "install"])
def test_a_second_start_imports_next_to_nothing(run: Run, settings: dict[str, str], door: str) -> None:
    """It gives what a hit by key gives, log and source included, and is counted."""
    missed, _ = run(_SHOW, door=door)
    by_row, light = run(_SHOW, door=door)
    by_key, heavy = run(_SHOW, way="python", door=door)
    assert (by_row, missed[0][:2]) == (by_key, [7, True])
    assert not light & _HEAVY
    assert heavy >= _HEAVY
    store = DirectoryStore(Path(settings["GPUCACHE_DIR"]), writable=False)
    counted = [line for line in store.journal_tail(10) if line["kind"] == "process"]
    assert [(line["hits"], line["misses"]) for line in reversed(counted)] == [(0, 1), (1, 0), (1, 0)]


@pytest.mark.slow
def test_a_bundle_has_what_rows_answered_with(run: Run, settings: dict[str, str]) -> None:
    """As what was built or found by key."""
    run(_SHOW)
    told = run_python(
        "-c",
        f"{_PROGRAM}\nimport gpucache\nprint(gpucache.restore(gpucache.bundle()))",
        *("rows", "build", json.dumps([(_SHOW, ["-DV=7"])])),
        env=settings,
    )
    assert told.splitlines()[-1] == "1"


@pytest.mark.slow
def test_an_entry_without_a_row_gets_one_at_its_first_hit(run: Run, settings: dict[str, str]) -> None:
    """As one that was pulled, or that another version made."""
    run(_SHOW)
    Path(settings["GPUCACHE_DIR"], "v1", "records.row").unlink()
    assert run(_SHOW)[1] & _HEAVY
    assert not run(_SHOW)[1] & _HEAVY


@pytest.mark.slow
@pytest.mark.parametrize("way", ["rows", "python"])
def test_whatever_changes_between_starts_is_seen(run: Run, tmp_path: Path, way: str) -> None:
    """A header that is edited, replaced, shadowed or gone, options and variables."""
    header = tmp_path / "work" / "value.h"
    include = tmp_path / "include"
    include.mkdir()
    asked = (_FROM_HEADER, ["-I", str(include)])

    def value(**more: str) -> int:
        answer: int = run(asked, way=way, **more)[0][0][0]
        assert run(asked, way=way, **more)[0][0][0] == answer
        return answer

    (include / "value.h").write_text("#define V 1\n")
    assert value() == 1
    header.write_text("#define V 2\n")
    assert value() == 2
    header.write_text("#define V 3\n")
    assert value() == 3
    twin = tmp_path / "twin"
    twin.write_text("#define V 4\n")
    os.utime(twin, ns=(header.stat().st_atime_ns, header.stat().st_mtime_ns))
    twin.replace(header)
    assert value() == 4
    header.unlink()
    assert value() == 1
    header.symlink_to(include / "value.h")
    assert value() == 1
    assert value(CL_CONFIG_CPU_TARGET_ARCH="corei7-avx") == 1
    assert run((_SHOW, ["-DV=8"]), (_SHOW, ["-DV=9"]), way=way)[0][1][0] == 9


@pytest.mark.slow
def test_a_row_is_logged_where_hits_are(run: Run, settings: dict[str, str]) -> None:
    """With other variables than those of places the settings decide first, and the row answers."""
    run(_SHOW)
    assert run(_SHOW, GPUCACHE_LOG="info")[0][0][0] == 7
    assert run(_SHOW, GPUCACHE_DISABLE="1")[0][0][0] == 7
    assert run(_SHOW, GPUCACHE_REQUIRE="1")[0][0][0] == 7
    store = DirectoryStore(Path(settings["GPUCACHE_DIR"]), writable=False)
    assert [line["hits"] for line in store.journal_tail(10) if line["kind"] == "process"] == [1, 1, 0]


@pytest.mark.parametrize(
    "environ",
    [
        {"HOME": "/home/a"},
        {"HOME": "/home/a", "XDG_CACHE_HOME": "/caches"},
        {"HOME": "/home/a", "GPUCACHE_DIR": "/srv/cache", "GPUCACHE_MEMORY_BYTES": "0"},
        {"HOME": "/home/a", "GPUCACHE_DIR": "relative", "GPUCACHE_REQUIRE": "1"},
    ],
)
def test_roots_are_those_of_the_settings(environ: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Found without what the settings import."""
    for name in ("XDG_CACHE_HOME", "GPUCACHE_DIR"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert rows._of(environ) == os.fsencode(str(find_root(environ)[0]))


def test_a_file_of_settings_is_left_to_the_settings(tmp_path: Path) -> None:
    """Which may name other roots."""
    environ = {"HOME": str(tmp_path), "GPUCACHE_DIR": "/a"}
    assert rows._of(environ) == b"/a"
    assert rows._MACHINE == MACHINE
    (tmp_path / ".config" / "gpucache").mkdir(parents=True)
    (tmp_path / ".config" / "gpucache" / "settings.toml").touch()
    assert rows._of(environ) == b""


@pytest.mark.parametrize(
    "more",
    [
        {"GPUCACHE_DISABLE": "1"},
        {"GPUCACHE_FILE": "/a.cache"},
        {"GPUCACHE_LOG": "info"},
        {"GPUCACHE_REQUIRE": "perhaps"},
        {"GPUCACHE_MEMORY_BYTES": "much"},
        {"GPUCACHE_DIRS": "/a"},
        {"GPUCACHE_DIR": "/a:b"},
        {"HOME": "/"},
        {"HOME": ""},
    ],
)
def test_more_than_places_is_left_to_the_settings(more: dict[str, str]) -> None:
    """Which may have to say something."""
    assert rows._of({"HOME": "/home/a", **more}) == b""


_CUDA = """
import json, sys
import cuda.core
from gpucache.library import rows
from gpucache.native.build import find_compiler
if sys.argv[1] == "python":
    rows.library = lambda: None
from gpucache.cuda import compile_program
def told(source, more):
    code = compile_program(source, target="sm_90", **more)
    return bytes(code.code).hex(), code.name, {str(k): v.decode() for k, v in code.symbol_mapping.items()}
answers = [told(*one) for one in json.loads(sys.argv[3])]
print(json.dumps([answers, sorted(name for name in sys.modules if name.startswith("gpucache"))]))
"""
_TEMPLATE = '#include "value.h"\ntemplate<class T> __global__ void show(T *x) { *x = V; }'


@pytest.mark.slow
@pytest.mark.parametrize("way", ["rows", "python"])
def test_a_cuda_program_is_answered_as_by_key(
    settings: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    """With its name and its symbols; a header that changes changes the code."""
    pytest.importorskip("cuda.core")
    monkeypatch.chdir(tmp_path / "work")
    header = tmp_path / "work" / "value.h"
    asked: list[Any] = [
        ['extern "C" __global__ void plain(int *x) { *x = 1; }', {}],
        [_TEMPLATE, {"include_path": ["."], "name_expressions": ["show<int>"], "options": "-DW=1"}],
    ]

    def run(way: str = way) -> tuple[Any, set[str]]:
        answers, modules = json.loads(run_python("-c", _CUDA, way, "", json.dumps(asked), env=settings))
        return answers, set(modules)

    header.write_text("#define V 1\n")
    first, _ = run()
    again, modules = run()
    assert again == first
    assert bool(modules & _HEAVY) is (way == "python")
    header.write_text("#define V 2\n")
    (changed, _), (by_key, _) = run(), run("python")
    assert changed == by_key
    assert [one == other for one, other in zip(first, changed, strict=True)] == [True, False]


def test_a_program_with_a_tab_in_its_name_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A note separates its fields by tabs, and escapes others."""
    counted: list[int] = []
    monkeypatch.setattr(rows.COUNTER, "count", lambda *_, **given: counted.append(given["saved_ns"]))
    monkeypatch.setattr(rows, "used", {})
    rows.tell(rows.Row((), b"17\tkey\tcuda:sm_90\ta\\tb"))
    assert (counted, [*rows.used]) == ([17], ["key"])


_STATES = """
import os, sys
from pathlib import Path
from gpucache.cuda import compile_program, flush, questions
source = 'extern "C" __global__ void plain(int *x) { *x = 1; }'
def answered():
    return questions.ask(source, "sm_90", (), None, (), (), None, (), "none").code is not None
compile_program(source, target="sm_90")
flush()
told = [answered()]
root = Path(os.environ["GPUCACHE_DIR"], "v1")
[entry] = root.glob("entries/*/*.gpc")
for folder in ("records.row", "entries"):
    (root / folder).rename(root / "elsewhere")
    (root / folder).symlink_to("elsewhere")
    told.append(answered())
    (root / folder).unlink()
    (root / "elsewhere").rename(root / folder)
whole = entry.read_bytes()
for at in (200, len(whole) - 1):
    entry.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
    told.append(answered())
entry.write_bytes(whole)
os.environ["NVVM_TRACE"] = "1"
told.append(answered())
del os.environ["NVVM_TRACE"]
root.parent.chmod(0o722)
told.append(answered())
root.parent.chmod(0o700)
print(*told, answered())
"""


@pytest.mark.slow
def test_each_answer_of_a_process_is_checked_anew(settings: dict[str, str]) -> None:
    """A link in the way, a changed byte, a variable, a root that others may write: what was so before counts
    for nothing."""
    pytest.importorskip("cuda.core")
    told = run_python("-c", _STATES, env=settings).split()
    assert told == ["True", *["False"] * 6, "True"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "int gpucache_abi(void) { return -1; }",
        f"int gpucache_abi(void) {{ return {rows.ABI << 12 | 8}; }}",
    ],
    ids=["none", "another", "another reply"],
)
def test_a_library_of_another_version_is_not_called(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Such as one that an upgrade left, or with larger replies; the log says how to build it again."""
    compiler = find_compiler()
    if compiler is None:
        pytest.skip("no C compiler is here")
    source, made = tmp_path / "old.c", str(tmp_path / "old.so")
    source.write_text(text, encoding="utf-8")
    subprocess.run([*compiler.command, "-shared", "-fPIC", str(source), "-o", made], check=True)
    monkeypatch.setattr(rows, "find", lambda _: (made, ""))
    assert rows.library.__wrapped__() is None
    assert "gpucache.native.build" in caplog.text
