"""A small sound cache of every system, made from its format, and the facts by which a test changes it.

A system that is new to ``gpucache.caches.registry`` needs one more line in ``EXAMPLES``, and every contract
of caches applies to it.
"""

import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import sha1, sha256
from pathlib import Path

from gpucache.answers.entries import CacheEntry, Location
from gpucache.assembly import open_cache
from gpucache.caches.files import Files
from gpucache.caches.interface import Cache
from gpucache.caches.known_caches import Unusable
from gpucache.caches.registry import OWN, load_system
from gpucache.errors import CacheUnusableError
from gpucache.keys import cache_key
from gpucache.model import Entry, EntryDetail, EntryHead, KeyField
from gpucache.settings import read_settings
from gpucache.store.directory import DirectoryStore
from tests.caches.adaptivecpp import build as adaptivecpp
from tests.caches.amd_comgr import build as amd_comgr
from tests.caches.arrayfire import build as arrayfire
from tests.caches.chromium import build as chromium
from tests.caches.clesperanto import build as clesperanto
from tests.caches.cuda_core import build as cuda_core
from tests.caches.cuda_driver import build as cuda_driver
from tests.caches.cupy import build as cupy
from tests.caches.cute_dsl import build as cute_dsl
from tests.caches.cutile import build as cutile
from tests.caches.cycles import build as cycles
from tests.caches.darktable import build as darktable
from tests.caches.deep_gemm import build as deep_gemm
from tests.caches.drjit import build as drjit
from tests.caches.dxvk import build as dxvk
from tests.caches.flash_attention import build as flash_attention
from tests.caches.flashinfer import build as flashinfer
from tests.caches.futhark import build as futhark
from tests.caches.ggml_opencl import build as ggml_opencl
from tests.caches.hashcat import build as hashcat
from tests.caches.helion import build as helion
from tests.caches.inductor import build as inductor
from tests.caches.intel_neo import build as intel_neo
from tests.caches.jax import build as jax
from tests.caches.manifests import build as manifests
from tests.caches.mesa import build as mesa
from tests.caches.miopen import build as miopen
from tests.caches.numba import build as numba
from tests.caches.onnxruntime_trt import build as onnxruntime_trt
from tests.caches.opencv import build as opencv
from tests.caches.opened import PTX, lay
from tests.caches.openvino import build as openvino
from tests.caches.pickled import build as pickled
from tests.caches.pocl import build as pocl
from tests.caches.pyopencl import build as pyopencl
from tests.caches.pytools import build as pytools
from tests.caches.rocfft import build as rocfft
from tests.caches.sealed import build as sealed
from tests.caches.sycl import build as sycl
from tests.caches.taichi import build as taichi
from tests.caches.tilelang import build as tilelang
from tests.caches.tinygrad import build as tinygrad
from tests.caches.torch_extensions import build as torch_extensions
from tests.caches.torch_kernels import build as torch_kernels
from tests.caches.torch_tensorrt import build as torch_tensorrt
from tests.caches.triton import build as triton
from tests.caches.tvm_ffi import build as tvm_ffi
from tests.caches.vllm import build as vllm
from tests.caches.vulkan import build as vulkan
from tests.caches.warp import build as warp
from tests.payload.build import bitcode

OLD_NS = 1_600_000_000 * 10**9
"""When everything in an example was made and used."""
ENTRIES = 3
_LATER_NS = OLD_NS + 3600 * 10**9


@dataclass(frozen=True)
class Example:
    """The entries of one system in a cache, and the damage to its files."""

    add: Callable[[Path, int], object]
    """Adds the sound entry of a number to the cache at a place, which is made if necessary."""
    payload: Callable[[int], bytes] | None
    """The extracted payload of the entry with a number; None for an opaque system."""
    place: str = ""
    """Where the cache is below a directory, as ``--cache`` takes it."""
    file: str = ""
    """The payload's file in an entry's directory; empty if the entry is that file."""
    alone: bool = True
    """Whether the directory is the system's own, so that other files in it are reported."""
    opaque: bool = False
    """Whether gpucache cannot parse its format, so that no entry is judged and none removed."""
    whole: bool = False
    """Whether the whole cache is one entry, which no program can check or fix."""

    def make(self, folder: Path, entries: int = ENTRIES) -> Path:
        """A sound cache in a directory that may not exist yet, all of it old; its place."""
        place = folder / self.place
        for number in range(entries):
            self.add(place, number)
        age(folder)
        return place

    def cut(self, entry: CacheEntry) -> None:
        path = self.file_of(entry)
        os.truncate(path, path.stat().st_size - 3)
        age(path)

    def change(self, entry: CacheEntry, content: bytes | None = None) -> None:
        """Replace the file of an entry, as a program does that builds it anew."""
        path = self.file_of(entry)
        new = path.with_name("new")
        new.write_bytes(path.read_bytes() + b"\0" if content is None else content)
        age(new)
        os.utime(new, ns=(_LATER_NS, _LATER_NS))
        new.replace(path)

    def content(self, entry: CacheEntry) -> bytes:
        """The content of the file of an entry."""
        return self.file_of(entry).read_bytes()

    def take(self, entry: CacheEntry) -> None:
        path = Path(entry.path)
        if path.is_dir():
            shutil.rmtree(path)
        elif isinstance(entry.handle, Files):
            for name in entry.handle.names:
                (path.parent / name).unlink()
        else:
            path.unlink()

    def file_of(self, entry: CacheEntry) -> Path:
        return Path(entry.path, self.file) if self.file else Path(entry.path)


class _Rows(Example):
    """Entries are rows of one database."""

    def cut(self, entry: CacheEntry) -> None:
        self._execute(entry, "UPDATE cache_v1 SET code = substr(code, 1, 10)")

    def change(self, entry: CacheEntry, content: bytes | None = None) -> None:
        if content is None:
            self._execute(entry, "UPDATE cache_v1 SET timestamp = timestamp + 60")
        else:
            super().change(entry, content)

    def take(self, entry: CacheEntry) -> None:
        self._execute(entry, "DELETE FROM cache_v1")

    def _execute(self, entry: CacheEntry, statement: str) -> None:
        rocfft.execute(Path(entry.path), f"{statement} WHERE kernel_name = '{entry.program}'")


class _Tree(Example):
    """All files together are one entry."""

    def cut(self, entry: CacheEntry) -> None:
        self.file_of(entry).unlink()


def age(place: Path) -> None:
    """Make a file, or a directory with everything in it, old, and give it the modes of one's own."""
    for path in (*sorted(place.rglob("*"), reverse=True), place):
        os.utime(path, ns=(OLD_NS, OLD_NS), follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & 0o7700)


def open_example(name: str, place: Path) -> Cache:
    """The cache of a system at a place, or the error if it cannot be opened."""
    location = Location(name, str(place), "--cache", enabled=True)
    try:
        if name == OWN:
            return open_cache(read_settings({"GPUCACHE_DIR": str(place)}))
        return load_system(name).open(location)
    except CacheUnusableError as error:
        return Unusable(location, str(error))


def _add_own(place: Path, number: int) -> None:
    fields = (KeyField("number", str(number)),)
    digest = sha256(PTX).hexdigest()
    head = EntryHead(
        f"program_{number}", "cuda:compute_90", "ptx", OLD_NS, 10**6, digest, language="cuda-c++"
    )
    entry = Entry(cache_key(fields), head, EntryDetail(fields), PTX)
    DirectoryStore(place, writable=True).publish(entry)


def _sycl(number: int) -> sycl.Made:
    return sycl.Made(image=sycl.spirv(f"kernel_{number}"))


def _add_futhark(place: Path, number: int) -> None:
    place.mkdir(parents=True, exist_ok=True)
    key = bytes([number]) + futhark.KEY[1:]
    (place / f"prog_{number}.cache").write_bytes(futhark.file_bytes(key))


def _add_rocfft(place: Path, number: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    if not place.exists():
        rocfft.database(place)
    columns = ", ".join("?" * 6)
    name = f"{rocfft.KERNEL}_{number}"
    with closing(sqlite3.connect(place)) as connection, connection:
        connection.execute(f"INSERT INTO cache_v1 VALUES ({columns})", rocfft.row(name))


_PYTHON = ".".join(map(str, sys.version_info))


def _add_pyopencl(place: Path, number: int) -> None:
    source = pyopencl.SOURCE.replace(b"7", b"%d" % number)
    folder = place / f"pyopencl-compiler-cache-v2-py{_PYTHON}"
    pyopencl.write(folder, pyopencl.keyed(source), source=source)


def _add_cuda_driver(place: Path, number: int) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    cuda_driver.file(place, "index", 5648)
    cuda_driver.binary(place, number)


def _add_file(path: str, data: bytes, place: Path, number: int) -> None:
    lay(place / path.format(number), data)


def _opaque(path: str, sign: str = "") -> Example:
    """Files with different contents at a path with a number in it, and an empty one with a known name."""

    def content(number: int) -> bytes:
        return PTX + b"// %d" % number

    def add(place: Path, number: int) -> None:
        file = place / path.format(number=number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content(number))
        if sign:
            (place / sign).touch()

    return Example(add, content, alone=False, opaque=True)


EXAMPLES: Mapping[str, Example] = {
    OWN: Example(_add_own, lambda _: PTX),
    "sycl": Example(
        lambda place, number: sycl.put(place, _sycl(number)),
        lambda number: _sycl(number).payload,
        file="0.bin",
    ),
    "futhark": Example(_add_futhark, lambda _: futhark.PTX, alone=False),
    "rocfft": _Rows(_add_rocfft, lambda _: rocfft.code("gfx90a"), "rocfft_kernel_cache.db", alone=False),
    "pyopencl": Example(_add_pyopencl, lambda _: pyopencl.binary(), file="binary"),
    "pocl": Example(
        lambda place, number: pocl.program(place, sha1(b"%d" % number).digest()),
        lambda _: bitcode(),
        file="program.bc",
    ),
    "cuda.core": Example(lambda place, number: cuda_core.place(place, b"%d" % number, PTX), lambda _: PTX),
    "cupy": Example(cupy.put, lambda _: PTX),
    "jax": Example(jax.put, lambda _: jax.EXECUTABLE),
    "triton": Example(triton.put, lambda _: triton.CUBIN),
    "intel-neo": Example(intel_neo.put, lambda _: intel_neo.BINARY),
    "mesa": Example(mesa.put, lambda _: mesa.PACKED),
    "amd-comgr": Example(amd_comgr.put, lambda _: amd_comgr.OUTPUT),
    "nvidia-optix": _opaque("optix{number}cache.db"),
    "nvidia-gl": _opaque("{number:032x}/0123456789abcdef/fedcba9876543210.toc"),
    "miopen": Example(miopen.put, lambda number: miopen.content(number)),
    "inductor": Example(inductor.put, lambda _: inductor.GRAPH),
    "torch-extensions": Example(torch_extensions.put, lambda _: torch_extensions.LIBRARY),
    "torch-kernels": Example(torch_kernels.put, lambda _: PTX),
    "helion": Example(helion.put, helion.content),
    "tvm-ffi": Example(tvm_ffi.put, lambda _: tvm_ffi.LIBRARY),
    "cute-dsl": Example(cute_dsl.put, cute_dsl.bytecode),
    "flash-attention": Example(flash_attention.put, lambda _: flash_attention.OBJECT),
    "torch-tensorrt": Example(torch_tensorrt.put, onnxruntime_trt.plan),
    "onnxruntime-trt": Example(onnxruntime_trt.put, onnxruntime_trt.plan),
    "steam": _opaque("{number}/fozpipelinesv6/steam_pipeline_cache.foz"),
    "chromium": Example(chromium.put, chromium.index, alone=False),
    "adaptivecpp": Example(adaptivecpp.put, lambda _: PTX),
    "vllm": Example(vllm.put, vllm.artifact),
    "tilelang": Example(tilelang.put, lambda _: tilelang.LIBRARY),
    "flashinfer": Example(flashinfer.put, lambda _: flashinfer.LIBRARY),
    "deep-gemm": Example(deep_gemm.put, lambda _: deep_gemm.CUBIN),
    "numba": Example(numba.put, lambda _: numba.OBJECT),
    "warp": Example(warp.put, lambda _: PTX),
    "hashcat": Example(hashcat.put, lambda _: PTX),
    "taichi": Example(taichi.put, lambda _: taichi.CODE),
    "darktable": Example(darktable.put, lambda _: PTX),
    "opencv": Example(opencv.put, lambda _: PTX),
    "clesperanto": Example(clesperanto.put, lambda _: PTX),
    "openvino": Example(openvino.put, openvino.content),
    "tinygrad": Example(tinygrad.put, lambda number: tinygrad.content(number)),
    "pytools": Example(pytools.put, lambda number: pytools.content(number)),
    "arrayfire": Example(arrayfire.put, lambda _: PTX),
    "cycles": Example(cycles.put, lambda _: PTX),
    "ggml-opencl": Example(ggml_opencl.put, lambda _: PTX),
    "dxvk": Example(dxvk.put, lambda _: dxvk.SHADER),
    "vulkan": Example(vulkan.put, lambda _: vulkan.DATA, alone=False),
    "cutile": Example(cutile.put, lambda number: cutile.content(number)),
    "pycuda": Example(partial(_add_file, "{:032x}.ptx", PTX), lambda _: PTX),
    "aiter": Example(partial(_add_file, "module_k{}.so", tvm_ffi.LIBRARY), lambda _: tvm_ffi.LIBRARY),
    "quack": Example(flash_attention.put, lambda _: flash_attention.OBJECT),
    "drjit": Example(drjit.put, lambda _: drjit.PACKED),
    "flydsl": Example(pickled.put_flydsl, lambda _: pickled.FLYDSL),
    "tilus": Example(
        partial(_add_file, "programs/{:012x}/module/lib.so", tvm_ffi.LIBRARY), lambda _: tvm_ffi.LIBRARY
    ),
    "pyfr": Example(partial(_add_file, "cuda/{:064x}", PTX), lambda _: PTX),
    "keops": Example(pickled.put_formula, lambda _: tvm_ffi.LIBRARY),
    "gstaichi": Example(taichi.put, lambda _: taichi.CODE),
    "quadrants": Example(taichi.put_quadrants, lambda _: taichi.CODE),
    "unsloth": Example(manifests.put_bundle, lambda number: manifests.content(number), alone=False),
    "b12x": Example(manifests.put_object, lambda number: manifests.content(number), alone=False),
    "mlx": Example(partial(_add_file, "0.32.4/ptx/module_{}.ptx", PTX), lambda _: PTX, alone=False),
    "hidet": Example(
        partial(_add_file, "ops/cuda_space_0/add/{:064x}/lib.so", tvm_ffi.LIBRARY), lambda _: tvm_ffi.LIBRARY
    ),
    "cudf": _opaque("rtcx_cache/{number:064x}"),
    "tt-metal": _opaque("{number}/kernels/reader/1/brisc/brisc.elf"),
    "neuron": _opaque("neuronxcc-2.24.5133.0+58f8de22/MODULE_{number}+839ddec0/model.neff"),
    "tensorrt-rtx": _opaque("runtime_cache{number}.bin"),
    **{
        name: Example(partial(sealed.put, name), partial(sealed.made, name), alone=name in ("mpv", "qt"))
        for name in sealed.MADE
    },
    "cuda": _Tree(_add_cuda_driver, None, file="index", whole=True),
}
