"""Warp's kernel cache: a directory for each module, with its source, its binaries and its launch data.

Source: Warp 1.19, ``warp/_src/context.py`` and ``warp/_src/build.py``; checked against its files. Each
version of Warp has a directory with ``wp_MODULE_HASH/``, with 7 hex digits of a hash over kernels, functions,
structures and options, and in it files of that name: ``.cpp`` or ``.cu``, ``.meta`` (a JSON object of each
kernel's shared memory) and a binary per device (``.sm80.cubin``, ``.sm80.ptx``, ``.cpu0eee9287.o``). Older
Warps had no digits after ``cpu``. A directory is written under a temporary name and renamed; a hit requires
only the files, and nothing is ever removed. ``lto/`` has code for matrix functions.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

from gpucache.answers.entries import FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat, broken
from gpucache.caches.format import HOUR_NS, Look
from gpucache.caches.layout import VERSION, Layout, Left, hashed
from gpucache.caches.systems import WarpPlaces
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind

_FOLDER = rf"({VERSION})/wp_(?P<module>[\w.<>-]+)_(?P<digits>[0-9a-f]{{7}})"
_FILE = "wp_(?P=module)_(?P=digits)"
_META_BYTES = 16 << 20
_LARGEST_BYTES = 1 << 30
_DEVICE = re.compile(r"_[0-9a-f]{7}\.(cpu|sm\d+[a-z]?)[0-9a-f]*\.")
_BINARIES = {".cubin": PayloadKind.CUBIN, ".ptx": PayloadKind.PTX, ".o": PayloadKind.ELF}
_FAILS = "Warp takes it for a hit, so the program fails at every start"


class Warp(WarpPlaces, FilesFormat):
    """The modules that Warp compiled, for CPUs and GPUs."""

    layout = Layout(
        [
            rf"{_FOLDER}/{_FILE}(?:\.\w+)?\.(?:cubin|ptx|o)",
            rf"{_FOLDER}/{_FILE}(?:\.\w+)?\.meta",
            rf"{_FOLDER}/{_FILE}\.(?:cu|cpp)",
        ],
        left=[Left(rf"{_FOLDER}_p(?P<pid>\d+)(?:_t\d+)?/{_FILE}[\w.]+", HOUR_NS)],
        signs=[_FOLDER],
        own=[f"{VERSION}/lto/"],
        key=lambda groups: groups[2] + hashed(groups[:2])[:33],
    )
    wanted = {"key": "the 7 hex digits that Warp prints when it loads a module, or those of an entry"}
    opaque = (
        "an entry keeps the source that Warp generated and nothing else of its hash; compare the sources of "
        "two entries of a module"
    )
    shows = "a binary of a Warp module"
    key_digits = 40
    folders_removed = 1

    def look(self, item: Files) -> Look:
        """Module, version of Warp and devices, from the names."""
        version, folder = item.parts[-2:]
        module, devices = folder[len("wp_") : -len("_0123456")], _devices(item)
        kinds = [_BINARIES.get(Path(name).suffix) for name in item.names]
        problem = None
        if not any(kinds):
            detail = "its folder holds no binary, so Warp compiles the module again"
            problem = Problem(FindingKind.ORPHAN, detail)
        elif not any(name.endswith(".meta") for name in item.names):
            detail = "its .meta file is gone, so Warp compiles the module again"
            problem = Problem(FindingKind.TRUNCATED, detail)
        return Look(
            program=module,
            target=" ".join(devices),
            kind=next((kind.value for kind in kinds if kind), ""),
            problem=problem,
            used_ns=item.used_ns,
            toolchain=(("Warp", version),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """Each binary whole, and whether the ``.meta`` reads."""
        if problem := self.look(item).problem:
            yield problem
        for name in item.names:
            kind = _BINARIES.get(Path(name).suffix)
            if name.endswith(".meta"):
                try:
                    if not isinstance(json.loads(item.read(name, _META_BYTES)), dict):
                        raise ValueError("it is no object")
                except (ValueError, RecursionError) as error:
                    yield Problem(FindingKind.CORRUPT, f"{name} does not read ({error}); {_FAILS}")
            elif kind is not None:
                yield from broken(name, item.read(name, _LARGEST_BYTES), kind, _FAILS)

    def payload(self, item: Files) -> bytes:
        """The first of its binaries."""
        if Path(item.names[0]).suffix not in _BINARIES:
            raise FormatError(f"{item.folder} holds no binary")
        return item.read(item.names[0], _LARGEST_BYTES)


def _devices(item: Files) -> list[str]:
    found = [match[1] for name in item.names if (match := _DEVICE.search(name))]
    return sorted({"cpu" if one == "cpu" else f"cuda:sm_{one[2:]}" for one in found})


FORMAT = Warp
