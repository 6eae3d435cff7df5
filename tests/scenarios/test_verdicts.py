"""What a person is told when one thing changed after a build: the verdict, the field, the words.

Every row changes exactly one thing. Rows that need no compiler pretend to build; those about devices,
drivers and their variables compile for real.
"""

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.pocl import PLATFORM, SYSTEM_ICD, need_pypi_pocl

_PLAIN = 'extern "C" __global__ void show(int *out) {\n  *out = 7;\n}\n'
_HEADED = f'#include "value.h"\n{_PLAIN}'
_OPENCL = "kernel void show(global int *out) { out[get_global_id(0)] = 7; }"
_JOB = {"platform": PLATFORM, "source": _OPENCL}
_INTEL = {"platform": "Intel(R) OpenCL", "source": _OPENCL}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One change and what is to be said of it."""

    change: Callable[[Any], Any]
    verdict: str
    words: tuple[str, ...] = ()
    """Parts of the detail; ``{tmp}`` is the scenario's folder."""
    labels: tuple[str, ...] = ()


def _between(before: dict[str, Any], after: dict[str, Any]) -> Callable[[Any], Any]:
    """The same program asked for in another way."""

    def change(parts: Any) -> Any:
        parts.built(**before)
        return parts.asked(**after)

    return change


def _key_changed(label: str, words: str, before: dict[str, Any], after: dict[str, Any]) -> Scenario:
    return Scenario(_between(before, after), "key-changed", (f"{words} (nearest: ",), (label,))


def _header_content(parts: Any) -> Any:
    include = parts.folder("include", value="7")
    parts.built(_HEADED, include_dirs=[include])
    parts.folder("include", value="8")
    return parts.asked(_HEADED, include_dirs=[include])


def _header_shadowed(parts: Any) -> Any:
    dirs = [parts.folder("first"), parts.folder("second", value="7")]
    parts.built(_HEADED, include_dirs=dirs)
    parts.folder("first", value="8")
    return parts.asked(_HEADED, include_dirs=dirs)


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


def _header_appeared(parts: Any) -> Any:
    include = parts.folder("include")
    parts.built(_HEADED, include_dirs=[include])
    parts.folder("include", value="7")
    return parts.asked(_HEADED, include_dirs=[include])


def _tree_moved(parts: Any) -> Any:
    tree = parts.folder("tree", value="7")
    parts.built(_HEADED, include_dirs=[tree])
    return parts.asked(_HEADED, include_dirs=[shutil.move(tree, parts.tmp / "moved")])


def _tree_touched(parts: Any) -> Any:
    tree = parts.folder("tree", value="7")
    parts.built(_HEADED, include_dirs=[tree])
    os.utime(tree / "value.h", (1, 1))
    return parts.asked(_HEADED, include_dirs=[tree])


def _nearest_options(parts: Any) -> Any:
    parts.built(options=["-DN=4", "-DM"])
    parts.built(options=["-DX", "-DY", "-DN=2"])
    return parts.asked(options=["-DN=8", "-DM"])


def _warmed_from_a_file(parts: Any) -> Any:
    parts.built(name="show.cu", options=["-DN=4"])
    return parts.asked(name="show", options=["-DN=8"])


def _device(parts: Any) -> Any:
    parts.program("opencl", parts.root, _INTEL, _JOB)
    return parts.last()


def _driver(parts: Any) -> Any:
    if not SYSTEM_ICD.is_file():
        pytest.skip(f"no PoCL but that of PyPI is installed: no {SYSTEM_ICD}")
    need_pypi_pocl()
    parts.program("opencl", parts.root, _JOB)
    parts.gpucache(parts.root, "warm", "--misses", OCL_ICD_VENDORS=str(parts.tmp))
    parts.program("opencl", parts.root, _JOB, OCL_ICD_VENDORS=str(SYSTEM_ICD.parent))
    return parts.last()


def _variable(parts: Any) -> Any:
    parts.program("opencl", parts.root, _INTEL)
    parts.program("opencl", parts.root, _INTEL, CL_CONFIG_CPU_TARGET_ARCH="corei7-avx")
    return parts.last()


_POCL: dict[str, Any] = {"source": _OPENCL, "implementation": "pocl"}

_SEVERAL = ("device", "driver-version")  # another machine or PoCL says more of itself than that
_REAL = ("device", "driver-version", "variable")  # which compile

SCENARIOS = {
    "source-line": _key_changed(
        "source", "the source changed", {"source": _PLAIN}, {"source": _PLAIN.replace("7", "8")}
    ),
    "header-content": Scenario(
        _header_content, "key-changed", ("the header value.h changed",), ("include value.h",)
    ),
    "header-shadowed": Scenario(
        _header_shadowed,
        "key-changed",
        ("a new value.h in {tmp}/first shadows the one in {tmp}/second",),
        ("include value.h",),
    ),
    "header-shadowed-by-current-directory": Scenario(
        _header_shadowed_by_cwd,
        "key-changed",
        ("a new value.h in {tmp}/here shadows the one in {tmp}/include",),
        ("include value.h",),
    ),
    "header-appeared": Scenario(
        _header_appeared,
        "key-changed",
        ("value.h now exists where it was not found before",),
        ("include value.h",),
    ),
    "define-value": _key_changed(
        "option", "the define N: 4 -> 8", {"options": ["-DN=4"]}, {"options": ["-DN=8"]}
    ),
    "define-value-with-spaces": _key_changed(
        "option",
        "the define T: unsigned int -> int",
        {"options": ["-DT=unsigned int"]},
        {"options": ["-DT=int"]},
    ),
    "define-emptied": _key_changed(
        "option", "the define N: 1 -> (empty)", {"options": ["-DN"]}, {"options": ["-DN="]}
    ),
    "define-added": _key_changed(
        "option", "the option -DM=1 is new", {"options": ["-DN"]}, {"options": ["-DN", "-DM=1"]}
    ),
    "option-order": _key_changed(
        "option",
        "the options are in another order",
        {"options": ["-DN", "-lineinfo"]},
        {"options": ["-lineinfo", "-DN"]},
    ),
    "option-repeated": _key_changed(
        "option",
        "the option -Xptxas=-v is given 2 times instead of once",
        {"options": ["-Xptxas=-v"]},
        {"options": ["-Xptxas=-v", "-Xptxas=-v"]},
    ),
    "option-spelling": Scenario(
        _between({"options": ["-DN=4", "-std=c++17"]}, {"options": ["--define-macro", "N=4", "--std=c++17"]}),
        "hit",
    ),
    "tree-moved": Scenario(_tree_moved, "hit"),
    "tree-touched": Scenario(_tree_touched, "hit"),
    "device": Scenario(
        _device,
        "never-built",
        ("another platform: Intel(R) OpenCL -> Portable Computing Language", "another device: "),
        ("platform name", "device name"),
    ),
    "driver-version": Scenario(
        _driver,  # which gives its device another name, too
        "never-built",
        ("driver 3.0-rc2 -> 3.1",),
        ("driver version",),
    ),
    "driver-version-alone": _key_changed(
        "driver version", "driver 1.0 -> 1.1", {"version": "1.0"}, {"version": "1.1"}
    ),
    "variable": Scenario(
        _variable,
        "key-changed",
        ("the environment variable CL_CONFIG_CPU_TARGET_ARCH is now set to corei7-avx (nearest: ",),
        ("environment CL_CONFIG_CPU_TARGET_ARCH",),
    ),
    "variable-emptied": _key_changed(
        "environment NVRTC_X",
        "the environment variable NVRTC_X: a -> (empty)",
        {"environ": {"NVRTC_X": "a"}},
        {"environ": {"NVRTC_X": ""}},
    ),
    "local-size": Scenario(
        _between(_POCL | {"local_sizes": [(64,)]}, _POCL | {"local_sizes": [(16, 16)]}), "hit"
    ),
    "name-expression": _key_changed(
        "name expression", "name expression none -> f<int>", {}, {"name_expressions": ["f<int>"]}
    ),
    "warmed-from-a-file": Scenario(
        _warmed_from_a_file, "key-changed", ("the define N: 4 -> 8",), ("option",)
    ),
    "nearest-options": Scenario(
        _nearest_options, "key-changed", ("the define N: 4 -> 8 (nearest: ",), ("option",)
    ),
    "uncacheable": Scenario(
        _between({}, {"source": _PLAIN + "const char *built = __DATE__;\n"}),
        "uncacheable",
        ("the source uses __DATE__, so no two builds are alike",),
    ),
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in _REAL else []) for name in SCENARIOS]
)
def test_what_changed_is_told(parts: Any, name: str) -> None:
    """One thing changes: the verdict fits, the field is named, and the words say what to look at."""
    scenario = SCENARIOS[name]
    told = scenario.change(parts)
    parts.fits(name, told, scenario.verdict, scenario.words)
    named = set(told.causes)
    assert named >= set(scenario.labels) if name in _SEVERAL else named == set(scenario.labels)
