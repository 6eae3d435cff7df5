"""The places of every third-party system's caches: a row for each system.

A row is facts: names, variables, directories, switches and limits. Where an owner does more, the row is a
class with methods, from which its format inherits. Must not know any format: that is imported when there is a
cache to open.
"""

import os
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpucache.answers.entries import Location
from gpucache.caches import desktop_places, learning_places, places  # noqa: F401 - two with rows
from gpucache.caches.places import (
    ANY_BINARY,
    WINDOWS,
    XDG,
    Home,
    Medium,
    Place,
    Places,
    Temporary,
    Var,
    cached,
    mount_of,
    mounts,
    on,
    row,
    temporary_on_windows,
    user_cached,
)
from gpucache.caches.pyopencl import locations as _pyopencl  # noqa: F401 - a row, as the next
from gpucache.caches.registry import SYSTEMS
from gpucache.caches.rocfft import locations as _rocfft  # noqa: F401
from gpucache.units import format_size

SYCL_FOLDER = "libsycl_cache"
_SYCL_ON, _SYCL_DIRECTORY = "SYCL_CACHE_PERSISTENT", "SYCL_CACHE_DIR"
_SYCL_MAX_SIZE = "SYCL_CACHE_MAX_SIZE"
_MIN_IMAGE, _MAX_IMAGE = "SYCL_CACHE_MIN_DEVICE_IMAGE_SIZE", "SYCL_CACHE_MAX_DEVICE_IMAGE_SIZE"
_LITTLE_BYTES = 1 << 20
"""A limit of the whole cache below this keeps almost nothing."""
_SMALLEST_IMAGE, _LARGEST_IMAGE = 1 << 10, 1 << 30
_DIGITS = re.compile(r"\s*\+?([0-9]{1,19})(.*)", re.DOTALL)


def _sycl_number(text: str) -> int:
    """A number as libsycl reads it: the leading digits, so ``10GB`` is 10."""
    found = _DIGITS.match(text)
    return int(found[1]) if found else 0


class ImageBounds(NamedTuple):
    """The sizes of images that are cached, in bytes; 0 for no bound."""

    min_bytes: int = 0
    max_bytes: int = _LARGEST_IMAGE

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> "ImageBounds":
        upper = environ.get(_MAX_IMAGE)
        lower = _sycl_number(environ.get(_MIN_IMAGE, ""))
        return cls(lower, _LARGEST_IMAGE if upper is None else _sycl_number(upper))

    def refusal(self, size_bytes: int) -> str:
        """A sentence on why images of some size are not cached; empty if they are."""
        if self.min_bytes and size_bytes < self.min_bytes:
            side, bound, name = "below", self.min_bytes, _MIN_IMAGE
        elif self.max_bytes and size_bytes > self.max_bytes:
            side, bound, name = "above", self.max_bytes, _MAX_IMAGE
        else:
            return ""
        return (
            f"its images of {format_size(size_bytes)} ({size_bytes} bytes) are {side} {name} "
            f"({bound} bytes), so programs never cache it; change {name}"
        )


class SyclPlaces(Places):
    """Source: libsycl, ``config.hpp`` and ``persistent_device_code_cache.hpp``."""

    name = "sycl"
    title = "SYCL persistent device code cache"
    owner = "libsycl"
    unseen = "a changed byte inside a binary, or the binary of another build of the same kernels"
    place = Place(
        (
            Var(_SYCL_DIRECTORY),
            *(
                [Var("APPDATA", SYCL_FOLDER)]
                if WINDOWS
                else [
                    Var("XDG_CACHE_HOME", SYCL_FOLDER, top=True),
                    Var("HOME", f".cache/{SYCL_FOLDER}", top=True),
                ]
            ),
        ),
        remedy=f"export {_SYCL_DIRECTORY}=<directory>",
        leaf=SYCL_FOLDER,
        along=((_SYCL_ON, "1"),),
        opt_in=False,
    )
    tracing = {"SYCL_CACHE_TRACE": "7"}  # the cache on disk, in memory, and of kernel_compiler

    @classmethod
    def off(cls, environ: Mapping[str, str]) -> str:
        """The variable turns the cache on with 1 only; programs crash at other values but 0."""
        value = environ.get(_SYCL_ON)
        if environ.get(_SYCL_DIRECTORY) == "":
            return (
                f"{_SYCL_DIRECTORY} is set but empty, so programs use no cache; unset {_SYCL_DIRECTORY}, and "
                f"export {_SYCL_ON}=1"
            )
        if value in (None, "0"):
            return f"{_SYCL_ON} is not set to 1, so programs do not use it; export {_SYCL_ON}=1"
        return "" if value == "1" else f"{_SYCL_ON} is {value!r}, of which programs die; export {_SYCL_ON}=1"

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        return _sycl_number(environ.get(_SYCL_MAX_SIZE, "")) or None

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        empty = environ.get("XDG_CACHE_HOME") == "" and not WINDOWS
        if _SYCL_DIRECTORY not in environ and empty:
            yield f"XDG_CACHE_HOME is set but empty, so the cache is /{SYCL_FOLDER}; unset XDG_CACHE_HOME"
        for name in (_SYCL_MAX_SIZE, _MIN_IMAGE, _MAX_IMAGE):
            value = environ.get(name)
            found = _DIGITS.fullmatch(value or "")
            if value is not None and found is None:
                dies = name == _SYCL_MAX_SIZE
                effect = "of which programs die that add an entry" if dies else "which counts as 0"
                yield f"{name} is {value!r}, no number, {effect}; export {name}=<bytes>"
            elif found is not None and found[2]:
                yield f"{name} is {value!r}, which is read as {found[1]} bytes; export {name}=<bytes>"
        lower, upper = ImageBounds.of(environ)
        if lower > min(upper or _LARGEST_IMAGE, _LARGEST_IMAGE) or 0 < upper < _SMALLEST_IMAGE:
            names = " and ".join(name for name in (_MIN_IMAGE, _MAX_IMAGE) if name in environ)
            why = f"no image has {lower} to {upper} bytes ({names})"
            yield f"{why}, so nothing is cached; unset {names.replace(' and', '')}"
        if 0 < (limit := _sycl_number(environ.get(_SYCL_MAX_SIZE, ""))) < _LITTLE_BYTES:
            yield (
                f"the limit is too small: {_SYCL_MAX_SIZE} is {limit} bytes, so libsycl evicts nearly all of "
                f"it; export {_SYCL_MAX_SIZE}=1000000000"
            )


_CUDA_CORE_BELOW = "cuda-python/program-cache"
_CUDA_CORE_VARIABLE = "LOCALAPPDATA" if WINDOWS else "XDG_CACHE_HOME"
CUDA_PATH, _CUDA_DISABLE, CUDA_MAXSIZE = "CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE"
CUDA_MOVE = "set CUDA_CACHE_PATH to a directory on a local disk"
CUDA_MOST_BYTES = 4_294_967_296
_CUDA_DEFAULT_BYTES = 1 << 30  # of desktops and servers; 256 MiB on embedded ones and with older drivers
_CUDA_NUMBER = re.compile(r"[0-9]{1,19}")


class CudaDriverPlaces(Places):
    name = "cuda"
    title = "CUDA driver compute cache"
    owner = "the CUDA driver"
    driver = True
    below = {"nvidia": "", "nvrtc": ""}
    place = Place(
        (
            Var(CUDA_PATH),
            *on(
                (Home(".nv/ComputeCache"),),
                macos=(Home("Library/Application Support/NVIDIA/ComputeCache"),),
                windows=(Var("APPDATA", "NVIDIA/ComputeCache"),),
            ),
        ),
        remedy=CUDA_MOVE,
        off={_CUDA_DISABLE: ("1",)},
        along=((CUDA_MAXSIZE, str(CUDA_MOST_BYTES)),),  # so that nothing is evicted meanwhile
        leaf="ComputeCache",
        opt_in=False,
    )

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        text = environ.get(CUDA_MAXSIZE) or str(_CUDA_DEFAULT_BYTES)
        return min(int(text), CUDA_MOST_BYTES) if _CUDA_NUMBER.fullmatch(text) else None

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        text = environ.get(CUDA_MAXSIZE) or str(_CUDA_DEFAULT_BYTES)
        if not _CUDA_NUMBER.fullmatch(text):
            yield (
                f"{CUDA_MAXSIZE}={text} is not a number of bytes, and the driver's use of it is not "
                f"documented; write the digits alone, such as {CUDA_MAXSIZE}={CUDA_MOST_BYTES}"
            )
        elif int(text) > CUDA_MOST_BYTES:
            yield f"{CUDA_MAXSIZE}={text} is over the {CUDA_MOST_BYTES} that the driver allows; set that"
        elif int(text) == 0:
            yield f"{CUDA_MAXSIZE}=0 leaves no room, so every start compiles; unset it"
        if environ.get(_CUDA_DISABLE, "") not in ("", "0", "1"):
            yield (
                f"{_CUDA_DISABLE}={environ[_CUDA_DISABLE]} is not 0 or 1, and the driver's use of "
                "it is not documented; set 1 to turn the cache off, or unset it"
            )

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """Warn of a shared NFS, where jobs hung on the index according to reports."""
        yield from super().at_place(root)
        with suppress(OSError, ValueError, RuntimeError):  # a ring of links
            mount = mount_of(root.resolve(), mounts())
            if mount is not None and mount.medium is Medium.NETWORK:
                yield (
                    f"jobs that share it wait, and have hung, at its file 'index'; {CUDA_MOVE} of each node"
                )


_CUPY_VARIABLE = "CUPY_CACHE_DIR"


class CupyPlaces(Places):
    name = "cupy"
    title = "CuPy kernel cache"
    owner = "CuPy"
    unseen = "the module of another key, as a file has a checksum of its content alone"
    place = Place(
        (Var(_CUPY_VARIABLE), Home(".cupy/kernel_cache", expanded=True)),
        off={"CUPY_CACHE_IN_MEMORY": ("1",)},
        opt_in=False,
    )

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        if environ.get(_CUPY_VARIABLE) == "":
            yield f"{_CUPY_VARIABLE} is set and empty, so CuPy cannot be imported; unset it"


class IntelNeoPlaces(Places):
    name = "intel-neo"
    title = "compiler cache of Intel's GPU driver"
    owner = "Intel's GPU driver"
    driver = True
    unseen = ANY_BINARY
    place = Place(
        (
            Var("NEO_CACHE_DIR"),
            *on(cached("neo_compiler_cache"), windows=(Var("LOCALAPPDATA", "NEO/neo_compiler_cache"),)),
        ),
        remedy="set NEO_CACHE_DIR to an existing directory",
        off={"NEO_CACHE_PERSISTENT": ("0",)},
        limit=("NEO_CACHE_MAX_SIZE", 1 << 30),
    )

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        return super().limit_bytes(environ) or None


_OPTIX_SIZE = "OPTIX_CACHE_MAXSIZE"


class NumbaPlaces(Places):
    name = "numba"
    title = "Numba cache"
    owner = "Numba"
    unseen = "changed machine code, or one version of a function in the place of another"
    place = Place(
        (Var("NUMBA_CACHE_DIR"),),
        nowhere="Numba keeps its files next to each source until NUMBA_CACHE_DIR names a directory; set it",
        # Of sources in directories that cannot be written, and of notebooks.
        also=(*user_cached("numba", ""), *cached("ipython/numba_cache"), Home(".ipython/numba_cache")),
        runs=True,
    )
    tracing = {"NUMBA_DEBUG_CACHE": "1"}

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The directory that the variable names, and those for sources in directories that cannot be written;
        and next to the sources below the current directory, in which most programs keep it."""
        yield from super().found(environ)
        for root in _with_indexes() if not environ.get("NUMBA_CACHE_DIR") else ():
            told = tuple(cls.at_place(root))
            yield Location(cls.name, str(root), "the current directory", enabled=True, problems=told)


_FOLDERS_LOOKED_AT, _DEEPEST = 400, 5


def _with_indexes() -> Iterator[Path]:
    """The directories of compiled Python below the current one with files of Numba's. A home directory or
    the top of the file system is no project; of a large one only the first directories are looked at."""
    try:
        top = Path.cwd()
    except OSError:
        return
    if top in (Path(top.anchor), Path(os.path.expanduser("~"))):  # noqa: PTH111 - raises nothing
        return
    for looked, (folder, below, names) in enumerate(os.walk(top)):
        if looked == _FOLDERS_LOOKED_AT:
            return
        at = Path(folder)
        if at.name == "__pycache__" and any(name.endswith(".nbi") for name in names):
            yield at
        deep = len(at.relative_to(top).parts) == _DEEPEST or "pyvenv.cfg" in names
        below[:] = () if deep else sorted(name for name in below if not name.startswith("."))


_MANAGER = "kernel_compilation_manager"


class HashcatPlaces(Places):
    name = "hashcat"
    title = "hashcat kernel cache"
    owner = "hashcat"
    unseen = ANY_BINARY
    place = Place(
        () if WINDOWS else cached("hashcat/kernels", expanded=True),
        nowhere="on Windows hashcat keeps them next to its program; name that directory",
    )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The directory below the cache directory, or an older one in the home directory if it exists.

        hashcat takes the home directory from the user's record, and not from HOME.
        """
        environ = {name: value for name, value in environ.items() if name != "HOME"}
        older = Home(".hashcat/kernels", expanded=True).find(environ)
        for location in super().found(environ):
            if older is not None and places.is_folder(older[0].parent):
                root = older[0]
                problems = tuple(cls.at_place(root))
                yield location._replace(root=str(root), decided_by=older[1], enabled=True, problems=problems)
            else:
                yield location


_OPENCV_SHARED = Path("/var/tmp/opencv")
_OPENCV_DIRECTORY, _OPENCV_SWITCH = "OPENCV_OPENCL_CACHE_DIR", "OPENCV_OPENCL_CACHE_ENABLE"


class OpenCVPlaces(Places):
    name = "opencv"
    title = "OpenCV OpenCL cache"
    owner = "OpenCV"
    unseen = "a changed byte inside a binary"
    needs_folder_of_all = True
    place = Place(
        (
            Var(_OPENCV_DIRECTORY),
            *on(
                cached("opencv"),
                macos=(Var("TMPDIR", "opencv"), Temporary("opencv", user=False, folder="/tmp")),
                windows=temporary_on_windows("opencv"),
            ),
        ),
        off={_OPENCV_SWITCH: ("0", "false")},
    )
    tracing = {"OPENCV_LOG_LEVEL": "DEBUG"}

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        """The value that OpenCV's own message advises, but that OpenCV uses as the beginning of a name."""
        if environ.get(_OPENCV_DIRECTORY) == "disabled":
            yield (
                f"{_OPENCV_DIRECTORY}=disabled does not turn the cache off, though OpenCV advises it: "
                "the current directory gets directories whose names begin with that; unset it, and set "
                f"{_OPENCV_SWITCH}=0"
            )

    @classmethod
    def found(cls, environ: Mapping[str, str]) -> Iterator[Location]:
        """The first existing cache directory; if none exists, OpenCV uses one that all users share."""
        there = dict(environ)
        if "XDG_CACHE_HOME" in there and not places.is_folder(Path(there["XDG_CACHE_HOME"])):
            del there["XDG_CACHE_HOME"]
        for location in super().found(there):
            root = Path(location.root)
            shared = sys.platform == "linux" and location.decided_by != _OPENCV_DIRECTORY
            if shared and not places.is_folder(root.parent):
                told = (*filter(None, [cls.place.why_off(environ)]), *cls.at_place(_OPENCV_SHARED))
                location = location._replace(root=str(_OPENCV_SHARED), decided_by="default", problems=told)
            off = cls.place.why_off(environ)
            yield location._replace(enabled=not off and places.is_folder(Path(location.root)))


def folder_of_file(root: Path) -> Path:
    """The directory that a location is, or is in. Raises nothing."""
    # Path.is_dir raises below a directory that may not be entered.
    return root if os.path.isdir(root) else root.parent  # noqa: PTH112


class FutharkPlaces(Places):
    name = "futhark"
    title = "Futhark cache files"
    owner = "Futhark"
    place = Place(
        (),
        remedy="name another file with --cache-file",
        nowhere="Futhark keeps a cache only where --cache-file names one; give that file",
        lacking="Futhark names its cache file by --cache-file alone; give the program its own file "
        "there, or none",
        makes=False,
        opt_in=False,
    )

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """Problems of the directory: Futhark does not create it, and only logs that it writes nothing."""
        return super().at_place(folder_of_file(root))


_POCL_VARIABLE, _POCL_SWITCH = "POCL_CACHE_DIR", "POCL_KERNEL_CACHE"


class PoclPlaces(Places):
    """PoCL needs the place to start. Source: PoCL, lib/CL/pocl_cache.c (``pocl_cache_init_topdir``)."""

    name = "pocl"
    title = "PoCL kernel cache"
    owner = "PoCL"
    driver = True
    unseen = "a changed byte inside a kernel, or, before a launch, the bitcode of another program"
    place = Place(
        (
            Var(_POCL_VARIABLE),
            *(
                [Var("LOCALAPPDATA", "pocl"), Var("TEMP", "pocl")]
                if WINDOWS
                else [
                    Var("XDG_CACHE_HOME", "pocl/kcache"),
                    Var("HOME", ".cache/pocl/kcache", top=True),
                    Temporary("pocl", user=False, folder="/tmp", inside="kcache"),
                ]
            ),
        ),
        along=((_POCL_SWITCH, "1"),),
        runs=True,
        opt_in=False,
    )
    below = {"pocl": ""}
    tracing = {"POCL_DEBUG": "general,cache,llvm"}
    """``general`` logs each kernel that is taken from the cache or compiled, also in PoCL 3."""

    @classmethod
    def off(cls, environ: Mapping[str, str]) -> str:
        """PoCL takes every value that does not begin with 1 as off."""
        if environ.get(_POCL_SWITCH, "1").startswith("1"):
            return ""
        return (
            f"{_POCL_SWITCH}={environ[_POCL_SWITCH]} turns the cache off, as PoCL treats every value as off "
            f"that does not begin with 1, so every start compiles; unset {_POCL_SWITCH}"
        )

    @classmethod
    def variables(cls, environ: Mapping[str, str]) -> Iterator[str]:
        if environ.get(_POCL_VARIABLE) == "":
            yield f"{_POCL_VARIABLE} is set and empty, at which PoCL shows 0 devices or dies; unset it"
        named = any(map(environ.get, (_POCL_VARIABLE, "XDG_CACHE_HOME"))) or "HOME" in environ
        if not (WINDOWS or named):
            yield (
                "XDG_CACHE_HOME and HOME are not set, so it is in /tmp, which all users share: for all "
                f"but the first PoCL shows 0 devices; {cls.place.move}"
            )

    @classmethod
    def at_place(cls, root: Path) -> Iterator[str]:
        """Problems of the directory: if PoCL cannot write it, it shows no devices or builds nothing."""
        yield from super().at_place(root)
        try:
            nearest = next((path for path in (root, *root.parents) if path.exists()), root)
            folder = nearest.is_dir()
        except (OSError, ValueError):
            folder = False
            nearest = root.parent
        if folder and os.access(nearest, os.W_OK):
            return
        if nearest == root and folder:
            yield f"PoCL builds no program where it cannot write, not even a cached one; {cls.place.move}"
        else:
            yield (
                f"PoCL makes it at its start and shows 0 devices where it cannot; {cls.place.move} to a "
                "place that can be written"
            )


ROWS = (
    row(
        ("cuda.core", "cuda.core program cache", "cuda.core"),
        Var(_CUDA_CORE_VARIABLE, _CUDA_CORE_BELOW),
        Home(f"{'AppData/Local' if WINDOWS else '.cache'}/{_CUDA_CORE_BELOW}", expanded=True),
        unseen=ANY_BINARY,
        below={"nvrtc": ""},
        remedy=f"set {_CUDA_CORE_VARIABLE}, or give FileStreamProgramCache another path",
        lacking="a program that passes a path to FileStreamProgramCache keeps its cache there, whatever the "
        "environment says",
    ),
    # The programs that OptiX, a part of NVIDIA's driver, compiled for ray tracing. Source: NVIDIA's
    # ``optix_host.h`` of OptiX 7 and 8 (``optixDeviceContextSetCacheLocation`` and
    # ``...SetCacheDatabaseSizes``), and published directory listings and logs; no cache of an NVIDIA GPU was
    # available. ``optix7cache.db`` is an SQLite database, with its log and index next to it while a program
    # runs; its tables are not documented. OptiX evicts by itself, and replaces a broken database with a new
    # one.
    row(
        ("nvidia-optix", "OptiX disk cache", "OptiX"),
        Var("OPTIX_CACHE_PATH"),
        Var("LOCALAPPDATA", "NVIDIA/OptixCache") if WINDOWS else Temporary("OptixCache_", folder="/var/tmp"),
        driver=True,
        signs=(r"optix\d*cache\.db",),
        unlisted=r".*-(?:wal|shm)",
        off={_OPTIX_SIZE: ("0",)},
        limit=(_OPTIX_SIZE, None),  # whose default is not documented
    ),
    row(
        ("amd-comgr", "AMD code object manager cache", "AMD's code object manager"),
        Var("AMD_COMGR_CACHE_DIR"),
        *on(cached("comgr"), windows=(Var("LOCALAPPDATA", "cache/comgr"),)),
        driver=True,
        unseen=ANY_BINARY,
        off={"AMD_COMGR_CACHE": ("0",)},
    ),
    row(
        ("warp", "Warp kernel cache", "Warp"),
        Var("WARP_CACHE_PATH"),
        *user_cached("warp", "NVIDIA"),
        unseen="changed code inside a binary",
        runs=True,
        opt_in=False,
    ),
    row(
        ("taichi", "Taichi offline cache", "Taichi"),
        Var("TI_OFFLINE_CACHE_FILE_PATH"),
        *on(cached("taichi/ticache"), windows=(Temporary("taichi_cache/ticache", user=False, folder="C:/"),)),
        unseen="a kernel of the same size in the place of another",
        off={"TI_OFFLINE_CACHE": ("0",)},
        limit=("", 100 << 20),  # unless its program sets another size
        opt_in=False,
    ),
    row(
        ("gstaichi", "GsTaichi offline cache", "GsTaichi"),
        Var("TI_OFFLINE_CACHE_FILE_PATH", _MANAGER),
        *on(
            cached(f"gstaichi/ticache/{_MANAGER}"),
            windows=(Temporary(f"gstaichi_cache/ticache/{_MANAGER}", user=False, folder="C:/"),),
        ),
        unseen="a kernel of the same size in the place of another",
        off={"TI_OFFLINE_CACHE": ("0",)},
        leaf="taichi",  # as the variable is that of Taichi
    ),
    row(
        ("quadrants", "Quadrants offline cache", "Quadrants"),
        Var("QD_OFFLINE_CACHE_FILE_PATH", _MANAGER),
        *on(
            cached(f"quadrants/qdcache/{_MANAGER}"),
            windows=(Temporary(f"quadrants_cache/qdcache/{_MANAGER}", user=False, folder="C:/"),),
        ),
        unseen="a kernel of the same size in the place of another",
        off={"QD_OFFLINE_CACHE": ("0",)},
    ),
    row(
        ("arrayfire", "ArrayFire kernel cache", "ArrayFire"),
        Var("AF_JIT_KERNEL_CACHE_DIRECTORY"),
        *on((Var(XDG, ".arrayfire"), Home(".arrayfire")), windows=temporary_on_windows("ArrayFire")),
        tracing={"AF_TRACE": "jit"},
    ),
    row(
        ("clesperanto", "clesperanto kernel cache", "clesperanto"),
        *on((Home(".cache/clesperanto"),), windows=(Var("LOCALAPPDATA", "clesperanto"),)),
        unseen=ANY_BINARY,
        remedy="set HOME for these programs alone",
        off={"CLESPERANTO_NO_CACHE": ()},
        lacking="clesperanto keeps its cache in the home directory, which no variable but HOME moves",
    ),
    row(
        ("pytools", "pytools dictionaries", "pytools"),
        *user_cached("pytools"),
        unseen="a changed value that is still a pickle",
    ),
    row(
        ("adaptivecpp", "AdaptiveCpp JIT cache", "AdaptiveCpp"),
        Var("ACPP_APPDB_DIR"),
        Var("XDG_DATA_HOME", "acpp"),
        Home(".acpp"),
        tracing={"ACPP_DEBUG_LEVEL": "3"},
        unseen="a changed byte inside a binary, or the binary of another kernel",
    ),
    row(
        ("pycuda", "PyCUDA compiler cache", "PyCUDA"),
        Var("PYCUDA_CACHE_DIR"),
        *user_cached("pycuda", below="compiler-cache-v1"),
        unseen=ANY_BINARY,
        off={"PYCUDA_DISABLE_CACHE": ()},
        also=(Temporary("pycuda-compiler-cache-v1-uid*", user=False),),
    ),
    row(
        ("drjit", "Dr.Jit kernel cache", "Dr.Jit"),
        Var("DRJIT_CACHE_DIR"),
        Temporary("drjit", user=False) if WINDOWS else Home(".drjit"),
        unseen="a changed byte to anybody but Dr.Jit",
        limit=("DRJIT_CACHE_MAXSIZE", None),
    ),
    row(
        ("pyfr", "PyFR kernel cache", "PyFR"),
        *user_cached("pyfr"),
        unseen="a changed byte inside a binary, or that of another kernel",
        also=tuple(Var(f"PYFR_{backend}_CACHE_DIR") for backend in ("CUDA", "HIP", "OCL", "OMP")),
        remedy="set PYFR_CUDA_CACHE_DIR, PYFR_HIP_CACHE_DIR, PYFR_OCL_CACHE_DIR or PYFR_OMP_CACHE_DIR",
        limit=("", 128 << 20),
        runs=True,
    ),
    row(
        ("keops", "KeOps formula cache", "KeOps"),
        Var("KEOPS_CACHE_FOLDER"),
        unseen="a changed byte inside a library",
        nowhere="KeOps keeps it in ~/.cache/keopsVERSION until KEOPS_CACHE_FOLDER names a directory; set it",
        also=(Home(".cache/keops[0-9]*", expanded=True),),
        runs=True,
    ),
)
PLACES: Mapping[str, type[Places]] = {
    row.name: row for row in Places.__subclasses__() if row.__dict__.get("name") in SYSTEMS
}
"""The systems that are facts alone, by name."""
