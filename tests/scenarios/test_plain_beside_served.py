"""Whatever a program asks its compiler, under ``gpucache run`` and from a layer it gets the same as alone.

Each program is run in a few states that differ slightly: a header, a link, its file's name, an option.
"""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gpucache.errors import NoDeviceError
from gpucache.native.locate import locate
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.patience import TIME_OUT_MS
from tests.trials import tell, trials

pytestmark = [pytest.mark.slow, pytest.mark.stress]

State = dict[str, Any]
_PROCESS = Path(__file__).with_name("served_process.py")
_NAMES = (
    *("p.cu", "sub/p.cu", "./sub/p.cu", "{root}/p.cu", "{root}/sub/p.cu", "", "kern_reducers.cu"),
    *("/tmp/kern_aaaaaaaa.cu", "/tmp/kern_bbbbbbbb.cu", "/tmp/kern_reducers.cu", "/tmp/tmpaaaaaaaa/p.cu"),
    *("/tmp/tmpbbbbbbbb/p.cu", "/tmp/tmpcccc_1_.cu", "/tmp/tmpdddd_2_.cu"),
)
_HASH = "__device__ constexpr unsigned h(const char *s) { return *s ? *s + 31u * h(s + 1) : 7u; }\n"
_LAMBDA = "template <class T> __device__ constexpr unsigned g(T) { return h(__PRETTY_FUNCTION__); }\n"
_PASTED = "#define CAT(a, b) a##b\n#define F(x) CAT(__FI, x)\n"
_TELLING = (
    *(("", "sizeof(__FILE__)"), ("", "h(__FILE__)"), ("", "__FILE__[3]"), ("", "h(__builtin_FILE())")),
    *(("", "h(__BASE_FILE__)"), ("", "h(__FILE_NAME__)"), (_LAMBDA, "g([] {})"), (_PASTED, "h(F(LE__))")),
    *(
        ("#define TOLD __FILE__\n", "h(TOLD)"),
        ("", "V; const char *volatile told = __FILE__; *out += told[1]"),
    ),
)
_PLAIN = (("", "V"), ("", "V + TYPE(1)"))
_PROBES = (
    "__has_include(<sub//x.h>)",
    "__has_include(<a/*b.h>)",
    '__has_include("x.h")',
    "__has_include(<x.h>) && !__has_include(<y.h>)",
    "__has_include(<sub/../x.h>)",
)
_ASKING = (
    '#include "x.h"',
    "#include <x.h>",
    "#include <sub/x.h>",
    "#include <n.h>",
    "#include <include/x.h>",
    '#include "m.h"',
    "#include M(x.h)",
)
_PLACES = (
    *("a/x.h", "b/x.h", "cwd/x.h", "cwd/m.h", "cwd/include/x.h", "a/sub/x.h", "v1/x.h", "v2/x.h", "b/y.h"),
    *("v1/include/x.h", "v2/include/x.h", "a/sub//x.h", "a/a/*b.h", "b/a/*b.h"),
)
_NEXT = "#include_next <n.h>\n"
_DIRS = ("-I{root}/a", "-I{root}/b", "-I.", "-I{root}/cur", "-I{root}/cur/include", "-I{root}/a/../b")
_CUDA = ("-DTYPE=int", "-lineinfo", "-std=c++14", "-DQ=1", "-G", "--use_fast_math")
_KINDS = (*("-arch=sm_80", "-arch=compute_80") * 3, "-dlto", "-arch= sm_80", "-arch=sm_90 ")
_LINES = ('#line 3 "there.cu"\n', "#line 900\n")


def _number(random: Random) -> str:
    return f"#undef V\n#define V {random.randint(1, 3)}\n"


def _begun(random: Random, compiler: str) -> State:
    files = {place: _number(random) for place in _PLACES if random.random() < 0.7}
    files |= {f"{place}/n.h": _NEXT + _number(random) for place in ("a", "b") if random.random() < 0.8}
    files |= {"v1/n.h": _number(random), "v2/n.h": _number(random), "cur": random.choice(("->v1", "->v2"))}
    asking = f"#define M(x) <x>\n{random.choice(_ASKING)}\n"
    if random.random() < 0.3:
        asking += f"#if {random.choice(_PROBES)}\n#undef V\n#define V 7\n#endif\n"
    asking += "#ifndef V\n#define V 9\n#endif\n#ifndef TYPE\n#define TYPE int\n#endif\n"
    options = random.sample(_DIRS, random.randint(1, 3))
    options += random.choices(options, k=random.randint(0, 1))
    state: State = {"files": files, "cwd": random.choice(("cwd", "a")), "headers": {}, "expressions": []}
    if compiler == "intel":
        kernel = "kernel void show(global int *out) { *out = V; }\n"
        return {**state, "source": asking + kernel, "options": options, "name": ""}
    if random.random() < 0.25:
        state["headers"] = random.choice(
            ({"m.h": '#include "x.h"\n'}, {"x.h": _number(random)}, {"m.h": _number(random)})
        )
    before, value = random.choice(_TELLING if random.random() < 0.4 else _PLAIN)
    line = random.choice(("", "", "", *_LINES))
    kernel = f'extern "C" __global__ void show(unsigned *out) {{ *out = {value}; }}\n'
    if random.random() < 0.3:
        kernel += "template <class U> __global__ void any(U *out) { int unused; *out = V; }\n"
        state["expressions"] = random.choice((["any<int>"], ["any<float>", "any< int >"]))
    chosen = [random.choice(_KINDS), *options, *random.sample(_CUDA, random.randint(0, 2))]
    name = random.choice(_NAMES)
    return {**state, "source": _HASH + before + asking + line + kernel, "options": chosen, "name": name}


def _rearranged(random: Random, files: Mapping[str, str]) -> dict[str, str]:
    """A tree in which one header or link has changed."""
    place = random.choice([*files, *_PLACES])
    changed = {name: content for name, content in files.items() if name != place}
    if place == "cur":
        changed[place] = "->v1" if files[place] == "->v2" else "->v2"
    elif random.random() < 0.6:
        changed[place] = _number(random)
    return changed


def _changed(random: Random, state: State, compiler: str) -> State:
    fresh, kind = _begun(random, compiler), random.random()
    if kind < 0.5:
        return {**state, "files": _rearranged(random, state["files"])}
    which = "name" if kind < 0.75 else "options" if kind < 0.9 else random.choice(("cwd", "headers"))
    return {**state, which: fresh[which]}


def _families(random: Random, compiler: str, count: int, tmp: Path) -> list[list[State]]:
    """Programs with a directory each, in four states each."""
    families = []
    for number in range(count // 4):
        family = [{**_begun(random, compiler), "root": "{root}"}]
        for _ in range(3):
            family.append(_changed(random, family[-1], compiler))
        families.append(json.loads(json.dumps(family).replace("{root}", str(tmp / f"tree{number}"))))
    return families


class Asking:
    """Runs states by a program, alone or under another command."""

    def __init__(self, compiler: str, tmp: Path, environment: Mapping[str, str]) -> None:
        self.compiler, self.tmp = compiler, tmp
        own = {"GPUCACHE_DIR": str(tmp / "cache"), "PYOPENCL_NO_CACHE": "1", TIMEOUT: TIME_OUT_MS}
        self._environment = {**os.environ, **environment, **own}
        self._asked = 0
        self.err = ""
        """The standard error of the last run."""

    def __call__(self, states: list[State], *before: str, **variables: str) -> list[Any]:
        self._asked += 1
        given, got = (self.tmp / f"{self._asked}.{name}" for name in ("states", "outcomes"))
        given.write_text(json.dumps(states), encoding="utf-8")
        done = run_text(
            [*before, sys.executable, str(_PROCESS), self.compiler, str(given), str(got)],
            env={**self._environment, **variables},
            timeout=3600,
        )
        self.err = done.stderr
        assert done.returncode == 0, done.stderr
        found: list[Any] = json.loads(got.read_text(encoding="utf-8"))
        return found


@pytest.fixture(params=["nvrtc", "intel"])
def asking(request: pytest.FixtureRequest, tmp_path: Path) -> Asking:
    """A program that uses NVRTC or Intel's runtime."""
    try:
        locate("opencl_layer")
    except NoDeviceError as error:
        pytest.skip(str(error))
    compiler: str = request.param
    if compiler == "nvrtc":
        pytest.importorskip("cuda.bindings.nvrtc")
        return Asking(compiler, tmp_path, {})
    return Asking(compiler, tmp_path, request.getfixturevalue("opencl_environment"))


def _count(asking: Asking) -> int:
    return trials(64, 800 if asking.compiler == "nvrtc" else 300)


def _wrong(states: list[State], plain: list[Any], served: list[Any]) -> list[Any]:
    return [each for each in zip(states, plain, served, strict=True) if each[1] != each[2]]


def test_under_run_a_program_gets_what_it_gets_alone(asking: Asking) -> None:
    """A program in many states under ``run`` gets the same on its misses and on its hits."""
    families = _families(Random("run"), asking.compiler, _count(asking), asking.tmp)
    states = [family[number] for number in range(4) for family in families]
    plain, report = asking(states), str(asking.tmp / "report.json")
    run = (sys.executable, "-m", "gpucache", "run", "--quiet", "--report", report, "--")
    first, second = asking(states, *run), asking(states, *run)
    results = [one["result"] for one in json.loads(Path(report).read_text(encoding="utf-8"))["outcomes"]]
    wrong = [*_wrong(states, plain, first), *_wrong(states, plain, second)]
    tell(f"plain beside run, states of {asking.compiler}", 2 * len(states), len(wrong))
    assert wrong == []
    assert results.count("hit") > len(states) // 3


def test_from_a_layer_a_program_gets_what_it_gets_alone(asking: Asking) -> None:
    """A program whose layer was exported in one state gets the same in others, in any order."""
    families = _families(Random("layer"), asking.compiler, _count(asking), asking.tmp)
    exported = [family[0] for family in families]
    layer = asking.tmp / "layer"
    export = (sys.executable, "-m", "gpucache", "export", "layer", str(layer), "--")
    wrong = _wrong(exported, asking(exported), asking(exported, *export))
    lines = (layer / "gpucache.env").read_text(encoding="utf-8").splitlines()
    variables = dict(line.split("=", 1) for line in lines if "=" in line)
    states = [*exported, *(state for family in families for state in family)]
    Random("order").shuffle(states)
    wrong += _wrong(states, asking(states), asking(states, GPUCACHE_LAYER_TELL="1", **variables))
    tell(f"plain beside a layer, states of {asking.compiler}", len(exported) + len(states), len(wrong))
    assert wrong == []
    assert asking.err.count("gpucache: hit: ") > len(exported) // 2
