"""Small programs of owners that compile for this machine: the place of each cache, and its messages."""

import importlib.util
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from tests.caches.opened import opened
from tests.children import run_text
from tests.pocl import SYSTEM_ICD

TRITON_KERNEL = """
import triton, triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

@triton.jit
def scale(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + at, tl.load(x + at, at < n) * 2, at < n)
"""


@dataclass(frozen=True)
class Owner:
    """A program and its cache, ``name`` below a home directory."""

    name: str
    package: str
    program: str
    variables: Mapping[str, str]
    """The environment of the program; ``{home}`` is a directory, ``{pocl}`` a new one at each start."""
    fresh: tuple[str, ...] = ("runs", "runs")
    """The results of its first two starts: words of ``says``, or runs."""
    says: Mapping[str, str] = field(default_factory=dict)
    """The result of a start, by its output; the first match counts."""
    place: str = "cache"
    on_pocl: bool = False

    def need(self) -> None:
        if importlib.util.find_spec(self.package) is None:
            pytest.skip(f"{self.package} is not installed")
        if self.on_pocl and not SYSTEM_ICD.is_file():
            pytest.skip("the system has no PoCL")

    def run(self, home: Path, python: str = sys.executable) -> str:
        """The result of a start: a word of ``says``, runs, or failed."""
        program, vendors = home / "program.py", home / "vendors"
        if not program.exists():
            vendors.mkdir(parents=True)
            program.write_text(self.program, encoding="ascii")
            if self.on_pocl:
                (vendors / SYSTEM_ICD.name).write_bytes(SYSTEM_ICD.read_bytes())
        pocl = home / f"pocl-{len([*home.glob('pocl-*')])}"
        pocl.mkdir()
        given = {name: value.format(home=home, pocl=pocl) for name, value in self.variables.items()}
        try:
            done = run_text([python, program], env={**os.environ, **given}, input="\n")
        except subprocess.TimeoutExpired:
            return "failed"
        words = (word for said, word in self.says.items() if said in done.stdout)
        return "failed" if done.returncode else next(words, "runs")

    def opened(self, home: Path) -> Cache:
        """Its cache."""
        return opened(of_others(self.name), home / self.place)


_POCL = {"OCL_ICD_VENDORS": "{home}/vendors", "POCL_CACHE_DIR": "{pocl}"}
WARP = Owner(
    "warp", "warp",
    """
import warp as wp
wp.init()

@wp.kernel
def scale(x: wp.array(dtype=float), factor: float):
    i = wp.tid()
    x[i] = x[i] * factor

x = wp.array([1.0, 2.0], dtype=float, device="cpu")
wp.launch(scale, dim=2, inputs=[x, 3.0], device="cpu")
assert x.numpy().tolist() == [3.0, 6.0]
""",
    {"WARP_CACHE_PATH": "{home}/cache"}, ("compiled", "runs"), {"(compiled)": "compiled"},
)  # fmt: skip
NUMBA = Owner(
    "numba", "numba",
    """
import numba

@numba.njit(cache=True)
def scale(x):
    return 2 * x

assert scale(3) == 6
""",
    {"NUMBA_CACHE_DIR": "{home}/cache", "NUMBA_DEBUG_CACHE": "1"}, ("saved", "runs"), {"data saved": "saved"},
)  # fmt: skip
PYTOOLS = Owner(
    "pytools", "pytools",
    """
from pytools.persistent_dict import NoSuchEntryError, WriteOncePersistentDict

known = WriteOncePersistentDict("peer-v1", safe_sync=False)
try:
    print("found" if known["key"] == "code" else "wrong")
except NoSuchEntryError:
    known["key"] = "code"
    print("stored", flush=True)
input()
""",
    {"XDG_CACHE_HOME": "{home}"}, ("stored", "found"), {"stored": "stored", "found": "found"}, "pytools",
)  # fmt: skip
OPENCV = Owner(
    "opencv", "cv2",
    """
import cv2, numpy as np
cv2.ocl.setUseOpenCL(True)
assert cv2.ocl.useOpenCL()
image = cv2.UMat(np.full((64, 64), 7, np.float32))
assert (cv2.resize(image, (32, 32)).get() == 7).all()
""",
    {**_POCL, "OPENCV_OPENCL_CACHE_DIR": "{home}/cache", "OPENCV_OPENCL_DEVICE": ":CPU:"}, on_pocl=True,
)  # fmt: skip
CLESPERANTO = Owner(
    "clesperanto", "pyclesperanto",
    """
import numpy as np
import pyclesperanto as cle
image = cle.push(np.full((16, 16), 3, np.float32))
assert (cle.pull(cle.add_image_and_scalar(image, scalar=4)) == 7).all()
""",
    {**_POCL, "HOME": "{home}"}, place=".cache/clesperanto", on_pocl=True,
)  # fmt: skip
OPENVINO = Owner(
    "openvino", "openvino",
    """
import os, numpy as np, openvino
try:
    from openvino import opset13 as op
except ImportError:  # before 2025
    from openvino.runtime import opset13 as op
core = openvino.Core()
core.set_property({"CACHE_DIR": os.environ["CACHE"]})
for factor in (2, 3):
    x = op.parameter([4], np.float32, name="x")
    product = op.multiply(x, op.constant(np.full(4, factor, np.float32), name="factor"), name="product")
    model = openvino.Model([op.result(product, name="result")], [x], "model")
    compiled = core.compile_model(model, "CPU")
    assert (compiled(np.ones(4, np.float32))[0] == factor).all()
    print(compiled.get_property("LOADED_FROM_CACHE"))
""",
    {"CACHE": "{home}/cache"}, ("missed", "runs"), {"False\nFalse": "missed", "False": "missed one"},
)  # fmt: skip
JAX = Owner(
    "jax", "jax",
    """
import jax, jax.numpy as jnp

@jax.jit
def scale(x):
    return jnp.sin(x) * 2 + jnp.cumsum(x)

assert abs(float(scale(jnp.ones(100))[3]) - 5.682942) < 1e-4
""",
    {
        "JAX_COMPILATION_CACHE_DIR": "{home}/cache",
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    },
)  # fmt: skip
_OF_TAICHI = """
import {module} as ti
ti.init(arch=ti.cpu)
x = ti.field(ti.f32, shape=64)

@ti.kernel
def scale(a: ti.f32):
    for i in x:
        x[i] = x[i] * a + i

scale(2.0)
assert x[5] == 5
"""
_TAICHI = {"TI_OFFLINE_CACHE_FILE_PATH": "{home}/cache"}
TAICHI = Owner("taichi", "taichi", _OF_TAICHI.format(module="taichi"), _TAICHI)
GSTAICHI = Owner(
    "gstaichi", "gstaichi", _OF_TAICHI.format(module="gstaichi"), _TAICHI,
    place="cache/kernel_compilation_manager",
)  # fmt: skip
QUADRANTS = Owner(
    "quadrants", "quadrants", _OF_TAICHI.format(module="quadrants"),
    {"QD_OFFLINE_CACHE_FILE_PATH": "{home}/cache"}, place="cache/kernel_compilation_manager",
)  # fmt: skip
TRITON = Owner(
    "triton", "triton",
    TRITON_KERNEL
    + """
source = ASTSource(scale, {"x": "*fp32", "n": "i32", "BLOCK": "constexpr"}, {(2,): 64})
made = triton.compile(source, target=GPUTarget("cuda", 90, 32))
assert made.asm["cubin"]
""",
    {"TRITON_CACHE_DIR": "{home}/cache"},
)  # fmt: skip
TINYGRAD = Owner(
    "tinygrad", "tinygrad",
    """
from tinygrad import Tensor
assert (Tensor([1.0, 2.0]) * 3).tolist() == [3.0, 6.0]
""",
    {"CACHEDB": "{home}/cache/cache.db", "DEV": "CPU", "CPU": "1"},
)  # fmt: skip
ALL: Mapping[str, Owner] = {
    one.name: one
    for one in (
        WARP, NUMBA, PYTOOLS, OPENCV, CLESPERANTO, OPENVINO, JAX, TAICHI, GSTAICHI, QUADRANTS, TRITON,
        TINYGRAD,
    )
}  # fmt: skip
