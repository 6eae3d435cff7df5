"""Objects of ``compile_program`` next to cuda.core's: the same fields, the same calls of the driver."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import pytest

from tests.children import run_python

pytestmark = pytest.mark.slow

_DRIVER = Path(__file__).with_name("cuda_driver.c")
_OBJECTS = """
import json, os, pickle
from pathlib import Path
from cuda.core import ObjectCode, Program, ProgramOptions
from gpucache.cuda import compile_program

SOURCE = '''template <class T> __global__ void scale(T *out) { *out = 1; }
extern "C" __global__ void plain(int *out) { *out = 2; }'''
NAMES = ["scale<float>", "scale<int>"]
ARCHITECTURES = {"cubin": "sm_90", "ptx": "compute_90", "ltoir": "sm_90"}
DRIVER_LOG = Path(os.environ["DRIVER_LOG"])

def theirs(kind):
    linked = kind == "ltoir" or None
    options = ProgramOptions(arch=ARCHITECTURES[kind], name="solver", link_time_optimization=linked)
    return Program(SOURCE, "c++", options).compile(kind, name_expressions=NAMES)

def ours(kind, *more, **settings):
    os.environ.update(settings)
    wanted = {"name_expressions": NAMES, "artifact_kind": kind, "name": "solver"}
    return compile_program(SOURCE, target=ARCHITECTURES[kind], options=more, **wanted)

def asked(built):
    DRIVER_LOG.write_text("")
    for name in ("scale<float>", "scale<int>", "plain", b"plain", "absent"):
        try:
            built.get_kernel(name)
        except (RuntimeError, TypeError) as error:  # of LTO-IR, which no driver loads
            return type(error).__name__, str(error)
    return DRIVER_LOG.read_text().splitlines()

def described(built):
    code = [type(built.code).__name__, built.code[:4].hex()]
    fields = [built.code_type, built.name, *code, str(built.symbol_mapping)]
    again = pickle.loads(pickle.dumps(built))
    same = (again.code, again.symbol_mapping) == (built.code, built.symbol_mapping)
    return [fields, same, asked(built), asked(again)]

def ways(kind):
    yield "theirs", theirs(kind)
    made = {"name": "solver", "symbol_mapping": theirs(kind).symbol_mapping}
    yield "theirs of bytes", getattr(ObjectCode, f"from_{kind}")(theirs(kind).code, **made)
    yield "disabled", ours(kind, GPUCACHE_DISABLE="1")
    yield "miss", ours(kind, GPUCACHE_DISABLE="0")
    yield "hit in memory", ours(kind)
    yield "hit on disk", ours(kind, GPUCACHE_MEMORY_BYTES="0")
    yield "without a key", ours(kind, "-Xcudafe", "--diag_suppress=1")

print(json.dumps({kind: {way: described(built) for way, built in ways(kind)} for kind in ARCHITECTURES}))
"""


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a stand-in for the driver's library, built from ``cuda_driver.c``."""
    for name in ("nvidia-cuda-nvrtc", "cuda-core"):
        try:
            distribution(name)
        except PackageNotFoundError:
            pytest.skip(f"{name} is not installed")
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None or sys.platform != "linux":
        pytest.skip("no C compiler is here to build a stand-in for the CUDA driver")
    folder = tmp_path_factory.mktemp("driver")
    library = folder / "libcuda.so.1"
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", library, _DRIVER, "-ldl"], check=True)
    return folder


@pytest.fixture(scope="module")
def objects(driver: Path, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Mapping[str, Any]]:
    """The expected descriptions of every kind of object, made in every way."""
    own = {
        "LD_LIBRARY_PATH": str(driver),
        "DRIVER_LOG": str(driver / "log"),
        "GPUCACHE_DIR": str(tmp_path_factory.mktemp("cache") / "root"),
    }
    described: dict[str, dict[str, Any]] = json.loads(run_python("-c", _OBJECTS, env={**os.environ, **own}))
    return described


@pytest.mark.parametrize("kind", ["cubin", "ptx", "ltoir"])
def test_an_object_is_as_cuda_core_makes_it(objects: Mapping[str, Mapping[str, Any]], kind: str) -> None:
    """New, from disk, from memory or without a cache: fields, pickles and the driver's calls agree."""
    made = objects[kind]
    assert {way: one for way, one in made.items() if one != made["theirs"]} == {}
    fields, survives_pickling, asked, _ = made["theirs"]
    assert survives_pickling
    assert fields[0] == kind
    assert "b'_Z5scaleIfEvPT_'" in fields[4]
    assert kind == "ltoir" or asked[1:] == [
        "kernel _Z5scaleIfEvPT_",
        "kernel _Z5scaleIiEvPT_",
        "kernel plain",
        "kernel plain",
        "kernel absent",
    ]
