"""The messages after one change since a build, or after damage to a cache.

Each scenario changes one thing, and checks the verdict, the field and the words. Those that need no
compiler pretend to build; those about devices, drivers and their variables really compile.
"""

import os
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpucache.assembly import open_stores
from gpucache.backends.interface import Backends
from gpucache.engine.warm.plan import WarmItem
from gpucache.engine.warm.run import Session
from gpucache.keys import digest
from gpucache.model import Entry
from gpucache.settings import read_settings
from gpucache.store.interface import Event, Found
from tests.children import run_text
from tests.pocl import PLATFORM, SYSTEM_ICD, need_pypi_pocl

_NOBODY = 65534
_PLAIN = 'extern "C" __global__ void show(int *out) {\n  *out = 7;\n}\n'
_HEADED = f'#include "value.h"\n{_PLAIN}'
_OPENCL = "kernel void show(global int *out) { out[get_global_id(0)] = 7; }"
_JOB = {"platform": PLATFORM, "source": _OPENCL}
_INTEL = {"platform": "Intel(R) OpenCL", "source": _OPENCL}
Happens = Callable[[Any], Any]
_SCENARIOS: list[Any] = []


def _told(
    verdict: str,
    *words: str,
    labels: set[str] | None = None,
    more: bool = False,
    slow: bool = False,
    name: str = "",
) -> Callable[[Happens], Happens]:
    """The expected result of a scenario: ``{tmp}`` in words is its directory; ``more`` labels may occur."""

    def keep(happens: Happens) -> Happens:
        called = name or happens.__name__.strip("_").replace("_", "-")
        marks = [pytest.mark.slow] if slow else []
        _SCENARIOS.append(pytest.param(called, happens, verdict, words, labels, more, id=called, marks=marks))
        return happens

    return keep


@_told("key-changed", "the header value.h changed", labels={"include value.h"})
def _header_content(parts: Any) -> Any:
    include = parts.folder("include", value="7")
    parts.built(_HEADED, include_dirs=[include])
    parts.folder("include", value="8")
    return parts.asked(_HEADED, include_dirs=[include])


@_told(
    "key-changed",
    "a new value.h in {tmp}/first shadows the one in {tmp}/second",
    labels={"include value.h"},
)
def _header_shadowed(parts: Any) -> Any:
    dirs = [parts.folder("first"), parts.folder("second", value="7")]
    parts.built(_HEADED, include_dirs=dirs)
    parts.folder("first", value="8")
    return parts.asked(_HEADED, include_dirs=dirs)


@_told(
    "key-changed",
    "a new value.h in {tmp}/here shadows the one in {tmp}/include",
    labels={"include value.h"},
)
def _header_shadowed_by_cwd(parts: Any) -> Any:
    how = {
        "implementation": "pocl",
        "include_dirs": [parts.folder("include", value="7")],
        "cwd": parts.folder("here"),
        "searches_cwd": True,
    }
    parts.built(_HEADED, **how)
    parts.folder("here", value="8")
    return parts.asked(_HEADED, **how)


@_told("key-changed", "value.h now exists where it was not found before", labels={"include value.h"})
def _header_appeared(parts: Any) -> Any:
    include = parts.folder("include")
    parts.built(_HEADED, include_dirs=[include])
    parts.folder("include", value="7")
    return parts.asked(_HEADED, include_dirs=[include])


@_told("hit")
def _tree_moved(parts: Any) -> Any:
    tree = parts.folder("tree", value="7")
    parts.built(_HEADED, include_dirs=[tree])
    return parts.asked(_HEADED, include_dirs=[shutil.move(tree, parts.tmp / "moved")])


@_told("hit")
def _tree_touched(parts: Any) -> Any:
    tree = parts.folder("tree", value="7")
    parts.built(_HEADED, include_dirs=[tree])
    os.utime(tree / "value.h", (1, 1))
    return parts.asked(_HEADED, include_dirs=[tree])


@_told("key-changed", "the define N: 4 -> 8 (nearest: ", labels={"option"})
def _nearest_options(parts: Any) -> Any:
    parts.built(options=["-DN=4", "-DM"])
    parts.built(options=["-DX", "-DY", "-DN=2"])
    return parts.asked(options=["-DN=8", "-DM"])


@_told("key-changed", "the define N: 4 -> 8", labels={"option"})
def _warmed_from_a_file(parts: Any) -> Any:
    parts.built(name="show.cu", options=["-DN=4"])
    return parts.asked(name="show", options=["-DN=8"])


@_told(
    "never-built",
    "another platform: Intel(R) OpenCL -> Portable Computing Language",
    "another device: ",
    labels={"platform name", "device name"},
    more=True,
    slow=True,
)
def _device(parts: Any) -> Any:
    parts.program("opencl", parts.root, _INTEL, _JOB)
    return parts.last()


@_told("never-built", "driver 3.0-rc2 -> 3.1", labels={"driver version"}, more=True, slow=True)
def _driver(parts: Any) -> Any:
    if not SYSTEM_ICD.is_file():
        pytest.skip(f"no PoCL but that of PyPI is installed: no {SYSTEM_ICD}")
    need_pypi_pocl()
    parts.program("opencl", parts.root, _JOB)
    parts.gpucache(parts.root, "warm", "--misses", OCL_ICD_VENDORS=str(parts.tmp))
    parts.program("opencl", parts.root, _JOB, OCL_ICD_VENDORS=str(SYSTEM_ICD.parent))
    return parts.last()


@_told(
    "key-changed",
    "the environment variable CL_CONFIG_CPU_TARGET_ARCH: none -> corei7-avx (nearest: ",
    labels={"environment CL_CONFIG_CPU_TARGET_ARCH"},
    slow=True,
)
def _variable(parts: Any) -> Any:
    parts.program("opencl", parts.root, _INTEL)
    parts.program("opencl", parts.root, _INTEL, CL_CONFIG_CPU_TARGET_ARCH="corei7-avx")
    return parts.last()


def _between(before: dict[str, Any], after: dict[str, Any]) -> Happens:
    """The same program asked for in another way."""

    def change(parts: Any) -> Any:
        parts.built(**before)
        return parts.asked(**after)

    return change


_POCL: dict[str, Any] = {"source": _OPENCL, "implementation": "pocl"}
_SPELLED = ({"options": ["-DN=4", "-std=c++17"]}, {"options": ["--define-macro", "N=4", "--std=c++17"]})
_DATED = _PLAIN + "const char *built = __DATE__;\n"
_told("hit", name="option-spelling")(_between(*_SPELLED))
_told("hit", name="local-size")(
    _between(_POCL | {"local_sizes": [(64,)]}, _POCL | {"local_sizes": [(16, 16)]})
)
_told(
    "uncacheable", "the source uses __DATE__, so no two builds are alike", name="uncacheable", labels=set()
)(_between({}, {"source": _DATED}))
_CHANGES: list[tuple[str, str, dict[str, Any], dict[str, Any]]] = [
    ("source", "the source changed", {"source": _PLAIN}, {"source": _PLAIN.replace("7", "8")}),
    ("driver version", "driver 1.0 -> 1.1", {"version": "1.0"}, {"version": "1.1"}),
    (
        "environment NVRTC_X",
        "the environment variable NVRTC_X: a -> (empty)",
        {"environ": {"NVRTC_X": "a"}},
        {"environ": {"NVRTC_X": ""}},
    ),
    ("name expression", "name expression none -> f<int>", {}, {"name_expressions": ["f<int>"]}),
]
_OPTIONS = [
    ("the define N: 4 -> 8", ["-DN=4"], ["-DN=8"]),
    ("the define T: unsigned int -> int", ["-DT=unsigned int"], ["-DT=int"]),
    ("the define N: 1 -> (empty)", ["-DN"], ["-DN="]),
    ("the option -DM=1 is new", ["-DN"], ["-DN", "-DM=1"]),
    ("the options are in another order", ["-DN", "-lineinfo"], ["-lineinfo", "-DN"]),
    (
        "the option -Xptxas=-v is given more often",
        ["-Xptxas=-v"],
        ["-Xptxas=-v", "-Xptxas=-v"],
    ),
]
_CHANGES += [("option", said, {"options": one}, {"options": two}) for said, one, two in _OPTIONS]
for _label, _said, _before, _after in _CHANGES:
    _told("key-changed", f"{_said} (nearest: ", labels={_label}, name=_said)(_between(_before, _after))


@_told("evicted", "removed at ", "show", slow=True)
def _evicted(parts: Any) -> Any:
    parts.built()
    done = parts.gpucache(parts.root, "evict", "--program", "show")
    assert done.returncode == 0, done.stderr
    return parts.asked()


@_told("corrupt", "the entry was damaged: ", "was moved to quarantine")
def _damaged(parts: Any) -> Any:
    parts.built()
    (path,) = parts.root.rglob("*.gpc")
    sound = path.read_bytes()
    path.write_bytes(sound[:-1] + bytes([sound[-1] ^ 1]))
    return parts.asked()


@_told("not-consulted", "GPUCACHE_DISABLE is set")
def _disabled(parts: Any) -> Any:
    prepared = parts.built()
    return parts.tell(parts.stores(GPUCACHE_DISABLE="1"), prepared)


@_told("elsewhere", "built in {default}, but this run looked in {tmp}/cache (GPUCACHE_DIR)")
def _in_default_root(parts: Any) -> Any:
    prepared = parts.built()
    shutil.move(parts.root, Path(os.environ["XDG_CACHE_HOME"], "gpucache"))
    return parts.tell(parts.stores(), prepared)


@_told("elsewhere", "built in {tmp}/cache, but this run looked in {tmp}/other (--root)")
def _in_named_root(parts: Any) -> Any:
    prepared = parts.built()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GPUCACHE_DIR", str(parts.root))
        chosen = open_stores(read_settings(os.environ, root=str(parts.tmp / "other")))
        return parts.tell(chosen, prepared)


@_told("not-consulted", "the cache root {tmp}/file is not a directory")
def _root_is_a_file(parts: Any) -> Any:
    (parts.tmp / "file").write_bytes(b"")
    return parts.tell(parts.stores(root=parts.tmp / "file"), parts.ready())


_ASK_AS_NOBODY = """
import os, sys
from pathlib import Path
import platformdirs.unix  # while Python's own modules may be read
from gpucache.assembly import open_stores
from gpucache.backends.interface import Backends
from gpucache.engine.explain import explain
from gpucache.engine.stores import NoEntry
from gpucache.settings import Settings
from types import SimpleNamespace
os.setgroups([])
os.setgid({0})
os.setuid({0})
stores = open_stores(Settings(root=Path(sys.argv[1]), root_origin="GPUCACHE_DIR"))
miss = explain(stores, SimpleNamespace(refusal=None), NoEntry())
sys.stdout.write(miss.verdict.value + " " + miss.detail)
"""


@_told(
    "not-consulted",
    "the cache root {tmp}/cache cannot be opened: Permission denied; fix its permissions, or name",
    slow=True,
)
def _root_of_another_user(parts: Any) -> Any:
    prepared = parts.built()
    if os.geteuid() != 0:
        parts.root.chmod(0)
        told = parts.tell(parts.stores(), prepared)
        parts.root.chmod(0o700)
        return told
    done = run_text([sys.executable, "-c", _ASK_AS_NOBODY.format(_NOBODY), str(parts.root)])
    assert done.returncode == 0, done.stderr
    verdict, _, detail = done.stdout.partition(" ")
    return replace(parts.tell(parts.stores(GPUCACHE_DISABLE="1"), prepared), verdict=verdict, detail=detail)


@_told(
    "not-consulted",
    "the cache root {tmp}/file is not a directory",
    "nothing was ever built as solver in {tmp}/cache",
)
def _root_is_a_file_beside_a_system_root(parts: Any) -> Any:
    parts.built()
    (parts.tmp / "file").write_bytes(b"")
    stores = parts.stores(root=parts.tmp / "file", GPUCACHE_SYSTEM_DIRS=str(parts.root))
    return parts.tell(stores, parts.ready("int y;", name="solver"))


@_told("not-recorded", "is in {tmp}/cache, but the entry is not for this version: ")
def _newer_format(parts: Any) -> Any:
    wanted = parts.built(options=["-DN=4"])
    (path,) = parts.root.rglob("*.gpc")
    data = bytearray(path.read_bytes())
    data[8] += 1
    path.write_bytes(data)
    parts.built(options=["-DN=8"])
    return parts.tell(parts.stores(), wanted)


@_told(
    "not-recorded",
    "of show, built ",
    "is in {tmp}/cache, but its record was lost, or is written at this moment",
)
def _record_lost(parts: Any) -> Any:
    parts.built()
    (parts.root / "v1" / "log.jsonl").unlink()
    return parts.asked(options=["-DN=8"])


@_told("not-recorded", "{tmp}/cache has entries, but the record of builds as show or anything else was lost")
def _record_lost_of_another_name(parts: Any) -> Any:
    parts.built(name="show.cu")
    (parts.root / "v1" / "log.jsonl").unlink()
    return parts.asked(options=["-DN=8"])


@_told(
    "not-recorded",
    "it is no longer known whether show was ever built into {tmp}/cache: its record was removed at",
    ", because only so much is kept of past builds",
    slow=True,
)
def _record_gave_way(parts: Any) -> Any:
    parts.built()
    done = parts.gpucache(parts.root, "evict", "--max-size", "1B")
    assert done.returncode == 0, done.stderr
    assert not (parts.root / "v1" / "log.jsonl").exists()
    return parts.asked()


@_told("evicted", ": --all, with the build history of show", slow=True)
def _evicted_with_its_record(parts: Any) -> Any:
    parts.built()
    parts.built("int x;", name="other")
    done = parts.gpucache(parts.root, "evict", "--all", "--yes")
    assert done.returncode == 0, done.stderr
    return parts.asked()


@_told("never-built", "nothing was ever built as solver in {tmp}/cache", slow=True)
def _never_built_before_all_went(parts: Any) -> Any:
    parts.built()
    done = parts.gpucache(parts.root, "evict", "--all", "--yes")
    assert done.returncode == 0, done.stderr
    return parts.asked("int y;", name="solver")


@_told("never-built", "nothing was ever built as solver in {tmp}/cache")
def _never_built(parts: Any) -> Any:
    parts.built(name="other.cu")
    return parts.asked("int y;", name="solver")


@_told("never-built", "no build of solver is recorded in {tmp}/cache", slow=True)
def _never_built_among_many(parts: Any) -> Any:
    for number in range(65):
        parts.built(f"int x{number};", name="other")
    return parts.asked("int y;", name="solver")


@_told("poisoned", "it ran 300 s; warm --retry tries it again")
def _poisoned(parts: Any) -> Any:
    prepared = parts.ready(version="2.0")
    request, toolchain = prepared.request, prepared.compilation.inputs.toolchain
    parts.built()
    poisoned = Event(time.time_ns(), "poisoned", str(prepared.key), str(request.target), "it ran 300 s")
    parts.store.history.record("show", poisoned)
    item = WarmItem("show", str(request.target), "", request, toolchain)

    def build(job: object) -> Any:
        raise AssertionError("a poisoned program was built")

    session = Session(parts.stores, Backends(), {}, lambda _: None, 1, 1.0, build=build)
    (outcome,) = session.run(parts.stores(), [item], [])
    told = parts.asked(version="2.0")
    assert (outcome.verdict, outcome.reason) == (told.verdict, told.detail)
    return told


@_told("rejected", "the driver rejected the binary", slow=True)
def _rejected(parts: Any) -> Any:
    parts.program("opencl", parts.root, _INTEL)
    (scanned,) = parts.store.scan()
    found, detail = parts.store.get(scanned.key), parts.store.detail(scanned.key)
    assert isinstance(found, Found)
    assert detail is not None
    garbage = b"\x7fnot a binary of any driver"
    head = found.head._replace(payload_sha256=digest(garbage))
    parts.store.publish(Entry(scanned.key, head, detail, garbage))
    parts.program("opencl", parts.root, _INTEL)
    return parts.last()


@pytest.mark.parametrize(("name", "happens", "verdict", "words", "labels", "more"), _SCENARIOS)
def test_what_happened_is_told(
    parts: Any,
    name: str,
    happens: Happens,
    verdict: str,
    words: tuple[str, ...],
    labels: set[str] | None,
    more: bool,
) -> None:
    """The verdict is right, the change is named, and the words say where to look."""
    told = happens(parts)
    parts.fits(name, told, verdict, words)
    if labels is not None:
        assert set(told.causes) >= labels if more else set(told.causes) == labels
