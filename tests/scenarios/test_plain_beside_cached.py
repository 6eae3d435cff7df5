"""Whatever its headers, options and variables, a program computes the same as without a cache."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import NamedTuple

import pytest

from tests.pocl import need_pocl

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("beside_process.py")
_STATES = 28
_KERNELS = {
    "opencl": "kernel void show(global int *out) { *out = V; }",
    "nvrtc": 'extern "C" __global__ void show(int *out) { *out = V; }',
}
_MACROS = "#define STR_(name) #name\n#define STR(name) STR_(name)\n#define PASTE(a, b) a##b\n"
_ASKING = (
    '#include "x.h"',
    "#include <x.h>",
    "#include <sub/h.h>",
    "#include STR(P/x.h)",
    "#include STR(P/sub/x.h)",
    '#define H "x.h"\n#include H',
    "#include STR(PASTE(x,).h)",
    "#ifdef A\n#include <x.h>\n#else\n#include <x.txt>\n#endif",
    '#if __has_include("x.h")\n#define V 7\n#endif',
    "#define ASK(name) __has_include(name)\n#if ASK(<x.h>)\n#define V 8\n#endif",
    "#ifdef HAS\n#if HAS(<x.h>)\n#define V 6\n#endif\n#endif",
    "#ifdef N\n#include N\n#endif",
)
_PLACES = (
    *("a/x.h", "b/x.h", "cwd/x.h", "cwd/include/x.h", "far/x.h", "extra/x.h", "a/sub/x.h", "a/x.txt"),
    *("b/.gen/x.h", "cwd/sub/x.h", "cwd/x.txt", "far/sub/x.h"),
)
_DIRS = ("-I{root}/a", "-I{root}/b", "-I{root}/a/link/..", "-I.", "-Isub", "-I{root}/far")
_DEFINES = (
    *("-DP={root}/far", "-DP=../far", "-DP=sub", "-DP=.", "-DP=.gen", "-DP=link/..", "-DA", "-DA=1", "-UA"),
    *("-DHAS(n)=__has_include(n)", "-DN=<x.h>", "-DN=<../far/x.h>"),
)
_VARIABLES: Mapping[str, tuple[Mapping[str, str], ...]] = {
    "pocl": ({"POCL_EXTRA_BUILD_FLAGS": "-I{root}/extra"}, {"PYOPENCL_BUILD_OPTIONS": "-DA -I {root}/extra"}),
    "intel": (
        {"OPENCL_PROGRAM_COMPILE_OPTIONS": "-I{root}/extra -DA"},
        {"PYOPENCL_BUILD_OPTIONS": "-DP='far'"},
    ),
    "nvrtc": ({"NV_NVVM_VERSION": "nvvm-latest"},),
}


@dataclass(frozen=True, slots=True)
class State:
    """A program and its surroundings; ``{root}`` is replaced by the directory of the tree."""

    asking: str
    files: Mapping[str, str | None]
    options: tuple[str, ...]
    environ: Mapping[str, str]


def _begun(random: Random, compiler: str) -> State:
    values = {place: _value(random) for place in _PLACES if random.random() < 0.6}
    files: dict[str, str | None] = {**values, "a/sub/h.h": '#include "x.h"\n', "a/link": None}
    options = (
        *random.sample(_DIRS, random.randint(0, 3)),
        *random.sample(_DEFINES, random.randint(0, 3)),
    )
    environ = random.choice(({}, {}, *_VARIABLES[compiler]))
    return State(random.choice(_ASKING), files, options, environ)


def _value(random: Random) -> str:
    return f"#undef V\n#define V {random.randint(1, 3)}\n"


def _changed(random: Random, state: State, compiler: str) -> State:
    """The same program after a change around it, most often of a header."""
    kind = random.random()
    if kind < 0.7:
        place = random.choice(_PLACES)
        files = {name: content for name, content in state.files.items() if name != place}
        return replace(state, files=files if random.random() < 0.4 else {**files, place: _value(random)})
    fresh = _begun(random, compiler)
    if kind < 0.8:
        return replace(state, options=fresh.options)
    return replace(state, environ=fresh.environ) if kind < 0.9 else state


def states(random: Random, compiler: str, count: int) -> list[State]:
    """Programs, each in a few states that differ slightly."""
    found: list[State] = []
    while len(found) < count:
        state = _begun(random, compiler)
        for _ in range(4):
            found.append(state)
            state = _changed(random, state, compiler)
    return found[:count]


class Answer(NamedTuple):
    """The values of V in one state."""

    plain: int | None
    first: int | None
    """Through the library."""
    hit: bool
    by_row: bool
    """Whether C answered the first build."""
    second: int | None
    second_by_row: bool


def answers(
    compiler: str,
    chosen: list[State],
    tmp: Path,
    environment: Mapping[str, str],
    cwd: str = "tree/cwd",
    cache: str = "cache",
) -> list[Answer]:
    """The answer in each state, with a cache that is new."""
    root = tmp / "tree"
    kernel = _KERNELS.get(compiler, _KERNELS["opencl"])
    jobs = []
    for state in chosen:
        source = f"{_MACROS}{state.asking}\n#ifndef V\n#define V 9\n#endif\n{kernel}\n"
        job = {**asdict(state), "source": source, "cwd": str(tmp / cwd)}
        job["options"] = [option.format(root=root) for option in state.options]
        job["environ"] = {name: value.format(root=root) for name, value in state.environ.items()}
        jobs.append(job)
    for folder in ("pocl", cache):
        (tmp / folder).mkdir(mode=0o700, exist_ok=folder == "pocl")
    own = {
        "GPUCACHE_DIR": str(tmp / cache),
        "GPUCACHE_MEMORY_BYTES": "0",
        "POCL_CACHE_DIR": str(tmp / "pocl"),
        "PYOPENCL_NO_CACHE": "1",
    }
    done = subprocess.run(
        [sys.executable, str(_PROCESS), compiler, str(root)],
        input=json.dumps(jobs),
        env={**os.environ, **environment, **own},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=1200,
    )
    return [Answer(*one) for one in json.loads(done.stdout)]


@pytest.fixture
def environment(compiler: str, request: pytest.FixtureRequest) -> Mapping[str, str]:
    """The environment in which a program finds the compiler."""
    if compiler == "pocl":
        need_pocl()
    if compiler != "nvrtc":
        found: Mapping[str, str] = request.getfixturevalue("opencl_environment")
        return found
    pytest.importorskip("cuda.bindings.nvrtc")
    return {}


@pytest.mark.parametrize("compiler", _VARIABLES)
def test_a_program_computes_what_it_computes_without_a_cache(
    compiler: str, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """In every state of headers, options and variables the library's result is the plain compiler's.

    By key and by the rows that it wrote, and by these as an image's in another process.
    """
    chosen = states(Random(compiler), compiler, _STATES)
    found = answers(compiler, chosen, tmp_path, environment)
    shutil.copytree(tmp_path / "cache", tmp_path / "image", copy_function=shutil.copyfile)
    image = {**environment, "GPUCACHE_SYSTEM_DIRS": str(tmp_path / "image")}
    found_there = answers(compiler, chosen, tmp_path, image, cache="fresh")
    wrong = [
        (state, one)
        for state, one in zip(chosen * 2, found + found_there, strict=True)
        if {one.first, one.second} != {one.plain}
    ]
    assert wrong == []
    assert any(one.hit for one in found)
    assert len({one.plain for one in found}) > 3
    if compiler != "pocl":  # which is built here as warm does it
        kept = [one for one in found_there if one.hit]
        assert len(kept) > 4
        assert all(one.by_row for one in kept)
        assert all(one.second_by_row for one, there in zip(found, found_there, strict=True) if there.hit)


@pytest.mark.parametrize("compiler", _VARIABLES)
def test_a_cache_below_the_current_directory_is_hit_through_a_macro(
    compiler: str, tmp_path: Path, environment: Mapping[str, str]
) -> None:
    """gpucache's own files change no key, even if an include through a macro may lead to them."""
    places = "#define P cache\n#define P cache/v1\n#define P cache/v1/entries\n#define P cache/v1/programs"
    asking = f'{places}\n#define H "x.h"\n#ifdef A\n#include STR(P/x.h)\n#else\n#include H\n#endif'
    state = State(asking, {"a/x.h": "#define V 2\n"}, ("-I{root}/a", "-I."), {})
    changed = replace(state, files={"a/x.h": "#define V 3\n"})
    found = answers(compiler, [state, state, changed, changed, state], tmp_path, environment, cwd=".")
    expected = [(2, 2, False), (2, 2, True), (3, 3, False), (3, 3, True), (2, 2, True)]
    assert [(one.plain, one.first, one.hit) for one in found] == expected
    assert [one.second for one in found] == [one.plain for one in found]
