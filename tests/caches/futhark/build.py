"""Cache files, logs and questions as Futhark's programs would leave them, built from the format."""

import struct
from collections.abc import Iterable
from pathlib import Path

from gpucache.answers.entries import CacheEntry, Location
from gpucache.answers.why import Reach
from gpucache.caches.futhark.format import key_of
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others

SYSTEM = of_others("futhark")

SOURCE = b'extern "C" __global__ void main_segmap(int *out) { out[threadIdx.x] = 1; }\n'
OPTIONS = (
    b"-arch",
    b"compute_80",
    b"-default-device",
    b"--disable-warnings",
    b"-Dmax_thread_block_size=1024",
    b"-Dmax_shared_memory=165888",
    b"-Dmax_registers=65536",
    b"-Dset_main_tile_size_6=0",
    b"-Dval_main_tile_size_6=16",
    b"-DLOCKSTEP_WIDTH=32",
    b"-DMAX_THREADS_PER_BLOCK=1024",
    b"-I/usr/local/cuda/include",
    b"-I/usr/include",
    b"-DTR_BLOCK_DIM=16",
    b"-DTR_TILE_DIM=32",
    b"-DTR_ELEMS_PER_THREAD=8",
)
OPENCL_OPTIONS = (
    b"-DLOCKSTEP_WIDTH=32 -Dmax_thread_block_size=1024 -Dmax_shared_memory=49136 -Dmax_registers=65536 "
    b"-Dset_main_tile_size_6=0 -Dval_main_tile_size_6=16 -DTR_BLOCK_DIM=16 -DTR_TILE_DIM=32 "
    b"-DTR_ELEMS_PER_THREAD=8 -cl-fp32-correctly-rounded-divide-sqrt"
)
PTX = b".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry main_segmap()\n{\n\tret;\n}\n"
SPIRV = struct.pack("<5I", 0x07230203, 0x00010000, 0, 8, 0)
KEY = key_of(OPTIONS, SOURCE)


def file_bytes(
    key: bytes = KEY, payload: bytes = PTX, *, declared: int | None = None, magic: bytes = b"FUTHARK\0"
) -> bytes:
    """A whole file, byte by byte as the format says."""
    return magic + struct.pack("<q", 48 + len(payload) if declared is None else declared) + key + payload


def open_cache(path: Path) -> Cache:
    """The cache at a path, as ``--cache`` opens it."""
    return SYSTEM.open(Location("futhark", str(path), "--cache", enabled=True))


def only_entry(path: Path) -> CacheEntry:
    (entry,) = open_cache(path).scan()
    return entry


def cuda_log(options: Iterable[bytes] = OPTIONS, *rest: bytes) -> bytes:
    """A log of ``-L`` of a CUDA program."""
    listed = b"".join(b"\t%s\n" % option for option in options)
    return (
        b"Using device #0\nNVRTC compile options:\n"
        + listed
        + b"\n"
        + b"".join(b"%s\n" % one for one in rest)
    )


def asked(path: Path, options: Iterable[bytes] = OPTIONS, **fields: bytes) -> Reach:
    """The one answer for a source and its options, with further fields."""
    wanted = {"source": (SOURCE,), "option": tuple(options)}
    wanted |= {name: (value,) for name, value in fields.items()}
    wanted = {name: values for name, values in wanted.items() if values}
    (reach,) = open_cache(path).explain(wanted)
    return reach
