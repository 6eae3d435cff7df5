"""Caches of libsycl, built from its format: directories named by hashes, and the files of an entry."""

import os
import struct
import time
from dataclasses import dataclass
from pathlib import Path

from gpucache.answers.entries import CacheEntry, Location
from gpucache.answers.verify import Checked, Finding
from gpucache.caches.interface import Cache
from gpucache.caches.registry import of_others
from gpucache.caches.sycl import murmur64a
from gpucache.payload import spirv as spirv_of
from tests.caches.opened import Environs

SYSTEM = of_others("sycl")

DEVICE = b"Some OpenCL/Some GPU/OpenCL 3.0/1.2.3"
NOW_NS = 1_700_000_000_000_000_000


def spirv(*names: str, words: int = 8) -> bytes:
    """A SPIR-V module with these entry points and an empty function behind them."""
    module = struct.pack("<5I", 0x07230203, 0x00010400, 0x0006000E, 99, 0)
    for number, name in enumerate(names):
        text = name.encode() + b"\0"
        text += bytes(-len(text) % 4)
        module += struct.pack("<3I", (3 + len(text) // 4) << 16 | 15, 6, number) + text
    return module + struct.pack("<5I", 5 << 16 | 54, 1, 2, 0, 3) + struct.pack("<I", 1 << 16) * words


@dataclass(frozen=True, slots=True)
class Made:
    """The inputs of an entry."""

    image: bytes = spirv("first_kernel")
    device: bytes = DEVICE
    options: bytes = b"-cl-fast"
    spec: bytes = b""
    compiled: bytes | None = None
    """By default SPIR-V with the kernels of the image: a binary that is sound to every check."""

    @property
    def payload(self) -> bytes:
        return spirv(*spirv_of.kernel_names(self.image), words=20) if self.compiled is None else self.compiled

    @property
    def parts(self) -> tuple[str, ...]:
        return tuple(str(murmur64a(one)) for one in (self.device, self.image, self.spec, self.options))

    @property
    def source(self) -> bytes:
        return b"".join(map(framed, (self.device, self.options, self.spec, self.image)))

    @property
    def binary(self) -> bytes:
        return (1).to_bytes(8, "little") + framed(self.payload)


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(8, "little") + data


def put(root: Path, made: Made | None = None, number: int = 0) -> Path:
    """Write an entry where libsycl would, and give its directory."""
    made = made or Made()
    folder = root.joinpath(*made.parts)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{number}.bin").write_bytes(made.binary)
    (folder / f"{number}.src").write_bytes(made.source)
    (folder / f"{number}_access_time.txt").write_text(str(NOW_NS + number))
    return folder


def copy(folder: Path, number: int, onto: int) -> None:
    """Another copy of an entry in its directory."""
    for suffix in (".bin", ".src", "_access_time.txt"):
        (folder / f"{onto}{suffix}").write_bytes((folder / f"{number}{suffix}").read_bytes())


def lock(path: Path, *, age_s: float = 3600) -> None:
    path.touch()
    then = time.time() - age_s
    os.utime(path, (then, then))


def kernel_folder(root: Path) -> Path:
    names = [str(murmur64a(one)) for one in (DEVICE, b"-O2", b"source text")]
    folder = root.joinpath("ext_kernel_compiler", *names)
    folder.mkdir(parents=True)
    return folder


def opened(root: Path, *, enabled: bool = True) -> Cache:
    return SYSTEM.open(Location("sycl", str(root), "--cache", enabled=enabled))


def verified(cache: Cache) -> list[tuple[Checked, CacheEntry | None]]:
    entries = list(cache.scan())
    return [*((cache.check(entry), entry) for entry in entries), *((one, None) for one in cache.leftovers())]


def findings(root: Path) -> list[Finding]:
    return [finding for checked, _ in verified(opened(root)) for finding in checked.findings]


def told(root: Path) -> list[str]:
    return [f"{finding.kind}: {finding.detail}" for finding in findings(root)]


def repaired(root: Path) -> list[Checked]:
    """All findings after a repair, as verify shows them."""
    cache = opened(root)
    return [cache.repair(checked, entry) for checked, entry in verified(cache) if checked.findings]


def snapshot(root: Path) -> dict[str, bytes]:
    """Every file below a root, with what it holds."""
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


_ON, _SIZE = "SYCL_CACHE_PERSISTENT", "SYCL_CACHE_MAX_SIZE"
_HOME = {"HOME": "{tmp}/c"}
PLACES: Environs = {
    "by its variable": ({"SYCL_CACHE_DIR": "{tmp}/a", "XDG_CACHE_HOME": "{tmp}/b", **_HOME},),
    "by XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "{tmp}/b", **_HOME},),
    "by the home": (_HOME,),
    "an empty XDG_CACHE_HOME": ({"XDG_CACHE_HOME": "", **_HOME},),
    "no home": ({},),
    **{f"{_ON}={value}": ({**_HOME, _ON: value},) for value in ("1", "0", "true", "", "11", "yes")},
    **{f"{_SIZE}={value}": ({**_HOME, _SIZE: value},) for value in ("10GB", "0", "1000", "abc", "-1")},
    "in order": ({"SYCL_CACHE_DIR": "{tmp}", _ON: "1", _SIZE: "1000000000"},),
    "an empty variable": ({"SYCL_CACHE_DIR": "", _ON: "1", **_HOME},),
    "a relative variable": ({"SYCL_CACHE_DIR": "here"},),
}
