"""Compiled files that somebody shipped, read by their headers: nothing in them is loaded.

A file can have gigabytes of code, so only the headers of its images are read. Source of the formats:
``gpucache.payload.containers`` and ``gpucache.payload.elf``; a package of PyTorch's (``.pt2``, AOTInductor)
is a zip file with binaries and libraries in it, and so is a module of IREE's (``.vmfb``; checked against
files of its compiler 3 for CUDA, HIP, Vulkan and CPUs), with the PTX or AMD's ELF in a message of
FlatBuffers. A Metal library (``.metallib``) begins with ``MTLB``. A mega-cache of PyTorch
has any name, see ``gpucache.caches.mega_cache``; a runtime cache of TensorRT-RTX is known by its name alone.
"""

import errno
import re
import stat
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpucache.answers.shipped import PACKED, Shipped
from gpucache.caches import mega_cache
from gpucache.errors import FormatError
from gpucache.host import os_errors
from gpucache.model import Device
from gpucache.payload import PayloadKind, describe
from gpucache.payload.containers import FATBIN, PLAN_START_BYTES, images, is_plan, plan_version
from gpucache.payload.elf import COMPRESSED, bundled, sections_at
from gpucache.payload.reading import OnDisk, Reading, Source

_NAME = re.compile(
    r".+\.(?:so(?:\.[\d.]+)?|pyd|dll|pt2|cubin|fatbin|ptx|hsaco|co|engine|plan|vmfb|metallib)"
    r"|.*runtime_cache\w*\.bin"
)
_WITH_CODE = re.compile(r".+\.(?:so|cubin|fatbin|ptx|hsaco|fb)")
_IS_PROGRAM = re.compile(r".+\.(?:cl|clcpp|cu|cuh|hip|cpp|cc|c|h|hpp|py|ptx|spv|fut|gpc)")
_WHOLE_BYTES, _MEMBERS = 64 << 20, 2000
_SECTIONS = (".nv_fatbin", "__nv_relfatbin", ".hip_fatbin")
_OPAQUE = "its format is not documented, so gpucache cannot say for which devices it has code"
_AIR = "it has code in a form between, which macOS compiles for each GPU at the first start"
_LIBRARY = "a library"
_EXPECTED = {
    **dict.fromkeys(("so", "pyd", "dll"), _LIBRARY),
    **dict.fromkeys(("engine", "plan"), "an engine of TensorRT's"),
    "pt2": "a package of PyTorch's",
    "vmfb": "a module of IREE's",
    "metallib": "a Metal library",
}
_MODULE, _METAL, _WINDOWS = "module.fb", b"MTLB", b"MZ"
_TARGET = re.compile(rb"\.target (sm_\d+[af]?)\b")
_BARE = {PayloadKind.CUBIN, PayloadKind.PTX, PayloadKind.AMDGPU, PayloadKind.OFFLOAD_BUNDLE}


def is_shipped(word: str) -> bool:
    """Whether a word names such a file. Raises nothing."""
    path = Path(word)
    try:
        return path.is_file() and (_NAME.fullmatch(path.name) is not None or mega_cache.is_at(path))
    except (OSError, ValueError):
        return False


def unread(word: str) -> str:
    """Why a word that is a file, or is spelled as one, cannot be read as a compiled one, as a clause.

    Empty for other words, and for sources, which are the names of programs. Raises nothing.
    """
    path = Path(word)
    compiled, source = _NAME.fullmatch(path.name), _IS_PROGRAM.fullmatch(path.name)
    if source or is_shipped(word) or (path.name == word and not compiled):
        return ""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return "does not exist; check the path" if compiled and not path.is_symlink() else ""
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:  # no path, but perhaps a word
            return ""
        return f"cannot be read ({error.strerror}); check the path and its permissions"
    except ValueError:
        return ""
    if stat.S_ISDIR(mode):
        return "is a directory and is not a store; name the cache in it with --cache NAME:DIRECTORY"
    return "is no compiled file; name a library, a package, an engine or a binary, or a program or key"


def read_shipped(path: Path, devices: Sequence[Device] = ()) -> Shipped:
    """A file, and which devices it has code for; raises UsageError if it cannot be read."""
    damage = ""
    try:
        with path.open("rb") as stream:
            kind, code, problem = _read(path, OnDisk.of(stream))
    except OSError as error:
        raise os_errors.unreadable(str(path), error, "name a file that this user may read") from None
    except (FormatError, zipfile.BadZipFile) as error:
        kind, code, problem = "unknown", set(), f"it is damaged: {error}"
        damage = problem
    found = Shipped(
        str(path),
        kind,
        tuple(sorted((one for one in code if not one.startswith("compute_")), key=_order)),
        tuple(sorted((one for one in code if one.startswith("compute_")), key=_order)),
        problem=problem,
        damaged=bool(damage),
    )
    targets = [str(one.target) for one in devices if one.target and one.present and one.backend == "cuda"]
    ready = [one for one in targets if any(_runs(arch, one) for arch in found.machine_code)]
    later = [one for one in targets if one not in ready and any(_compiles(arch, one) for arch in found.ptx)]
    lacking = [one for one in targets if one not in (*ready, *later)] if code else []
    return found._replace(runs_on=tuple(ready), compiles_for=tuple(later), lacks=tuple(lacking))


def _read(path: Path, disk: OnDisk) -> tuple[str, set[str], str]:
    """The kind of a file, the architectures of its code, and a remark; raises FormatError, BadZipFile."""
    start = disk.cut(0, PLAN_START_BYTES)
    if start.startswith(b"PK\3\4"):
        kind, code = _package(path)
        return kind, set(code), ""
    if start.startswith(FATBIN):
        return "fatbin", set(_fatbins(disk, 0, disk.size)), ""
    if start.startswith(_METAL):
        return "metallib", set(), _AIR
    if mega_cache.begins(start):
        return "mega-cache", set(), mega_cache.described(disk)
    if start and is_plan(start):
        made = " ".join(f"{name} {version}" for name, version in plan_version(start))
        return "engine", set(), f"it is of {made}; {_OPAQUE}" if made else _OPAQUE
    info = describe(disk.cut(0, _WHOLE_BYTES))
    if info.kind in _BARE and disk.size <= _WHOLE_BYTES:
        if info.problem:
            raise FormatError(info.problem)
        found = dict(info.detail).get("architectures", info.architecture or "")
        return info.kind.value, set(filter(None, found.split(", "))), ""
    if start.startswith(b"\x7fELF"):
        return "library", set(_library(disk)), ""
    expected = _EXPECTED.get(path.name.partition(".so")[1].strip(".") or path.suffix[1:], "")
    if not start or (expected and not (expected == _LIBRARY and start.startswith(_WINDOWS))):
        raise FormatError(f"it does not begin as {expected}" if start else "it is empty")
    return "unknown", set(), _OPAQUE


def _library(disk: Source) -> Iterator[str]:
    for start, end in sections_at(disk, _SECTIONS):
        if disk.cut(start, start + 4) == FATBIN:
            yield from _fatbins(disk, start, end)
        elif disk.cut(start, start + 4) == COMPRESSED:
            yield PACKED
        else:
            yield from bundled(disk, start, end)


def _fatbins(disk: Source, start: int, end: int) -> Iterator[str]:
    for arch in images(disk, start, end):
        if arch is not None:
            yield arch


def _package(path: Path) -> tuple[str, list[str]]:
    """The kind of a zip file with code, and the architectures of the code in it."""
    found: list[str] = []
    with zipfile.ZipFile(path) as package:
        members = package.infolist()[:_MEMBERS]
        for member in members:
            if not _WITH_CODE.fullmatch(member.filename) or member.file_size > _WHOLE_BYTES:
                continue
            with package.open(member) as file:
                data = file.read(_WHOLE_BYTES)
            if member.filename.endswith(".fb"):
                found += (one.decode().replace("sm_", "compute_") for one in _TARGET.findall(data))
                data = data[max(0, data.find(b"\x7fELF")) :]
            info = describe(data)
            if info.architecture:
                found.append(info.architecture)
            elif data.startswith(b"\x7fELF"):
                found += _library(Reading(data))
            elif data.startswith(FATBIN):
                found += _fatbins(Reading(data), 0, len(data))
        return "vmfb" if any(one.filename == _MODULE for one in members) else "package", found


_ARCH = re.compile(r"(?:cuda:)?(?:sm|compute)_(\d+)(\d)([af]?)")


def _order(arch: str) -> tuple[str, int, str]:
    family, number, more = re.fullmatch(r"([a-z_]*)(\d*)(.*)", arch).groups()  # type: ignore[union-attr]
    return family, int(number or 0), more


def _runs(arch: str, target: str) -> bool:
    """Whether machine code runs on a device: of the same generation, and no newer."""
    code, device = _ARCH.fullmatch(arch), _ARCH.fullmatch(target)
    if not code or not device or code[1] != device[1]:
        return False
    return int(code[2]) <= int(device[2]) if not code[3] else code[2] == device[2]


def _compiles(arch: str, target: str) -> bool:
    """Whether the driver of a device compiles PTX of an architecture: of any that is no newer."""
    code, device = _ARCH.fullmatch(arch), _ARCH.fullmatch(target)
    if not code or not device or code[3]:
        return False
    return int(code[1] + code[2]) <= int(device[1] + device[2])
