"""Triton's cache: a directory for each kernel with every stage of its compilation, and a list of them.

Source: Triton 3.9, ``triton/runtime/cache.py``, ``triton/compiler/compiler.py`` and ``triton/knobs.py``. A
directory is named by the 52 characters of a SHA-256 in base 32. ``__grp__KERNEL.json`` lists its files by
their absolute places, ``KERNEL.json`` has the SHA-256 in hex, the target, every option and Triton's version,
and next to it are the source, each intermediate representation and the binary. A directory can also contain
one host library, which launches kernels, or an autotuner's measurements. Files are written under a temporary
name and renamed, no lock is taken, nothing has a checksum, and nothing is ever removed.
"""

import json
from base64 import b32decode
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files, Identity
from gpucache.caches.files_format import FilesFormat, broken
from gpucache.caches.format import HOUR_NS, Look
from gpucache.caches.layout import Layout, Left
from gpucache.caches.systems import TritonPlaces
from gpucache.errors import FormatError
from gpucache.keys import digest
from gpucache.payload import PayloadKind

_GROUP = "__grp__"
_JSON_BYTES = 1 << 20
"""The largest list, or description of a kernel, that is read; real ones have one or two kB."""
_LARGEST_BYTES = 1 << 30
_FOLDER, _FILE = "([A-Z2-7]{52})", r"\w[\w.-]*"
_LONGEST = 56
"""The length of such a name including the padding of base 32."""
_STAGES = "source|ttir|ttgir|llir|amdgcn|llvmir|spv"
_BINARIES = {
    ".cubin": PayloadKind.CUBIN,
    ".hsaco": PayloadKind.AMDGPU,
    ".ptx": PayloadKind.PTX,
    ".so": PayloadKind.ELF,
}
"""The content of files by their endings; programs run the first that exists."""
_MISSES = "Triton misses it without a word and compiles again"
_FAILS = "Triton serves it, so the program fails at every start"


class Triton(TritonPlaces, FilesFormat):
    """The kernels of ``triton.jit``, including those of Inductor, vLLM and others built on Triton."""

    layout = Layout(
        [
            rf"{_FOLDER}/{_FILE}\.(?:cubin|hsaco|ptx|so)",
            rf"{_FOLDER}/{_FILE}\.(?:{_STAGES})",
            rf"{_FOLDER}/{_FILE}\.json",
        ],
        left=[Left(rf"{_FOLDER}/tmp\.pid_[\w-]+/{_FILE}", HOUR_NS)],
        key=lambda groups: b32decode(groups[0].ljust(_LONGEST, "=")).hex(),
    )
    folders_removed = 1
    wanted = {"key": "hex digits of the hash that an entry's JSON file has, or the first of them"}
    opaque = (
        "an entry keeps its target, options and Triton's version, but neither the function's digest nor "
        "that of Triton itself, which are in the key as well; compare the entries of a kernel by "
        "'gpucache inspect --why KEY KEY'"
    )
    shows = "a list of a kernel's files"

    def look(self, item: Files) -> Look:
        """Kernel, target and options from the two JSON files."""
        group = _group(item)
        if group is None:
            return self._beside_kernels(item)
        kernel = group[len(_GROUP) : -len(".json")]
        wrong = self._misled(item, group)
        told: dict[str, Any] = {}
        if f"{kernel}.json" in item.seen and wrong is None:
            told, wrong = self._described(item, f"{kernel}.json")
        return Look(
            program=kernel,
            target=_target(told.pop("target", None)),
            kind=next((kind.value for ending, kind in _BINARIES.items() if kernel + ending in item.seen), ""),
            fields=tuple((label, _shown(value)) for label, value in told.items()),
            problem=wrong,
            used_ns=item.used_ns,
            toolchain=(("Triton", str(told.get("triton_version", ""))),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """Check the two JSON files, that no file is empty, and the binaries."""
        problem = self.look(item).problem
        if problem is not None:
            yield problem
            return
        for name, status in item.seen.items():
            kind = _BINARIES.get(Path(name).suffix)
            if not status.st_size:
                yield Problem(FindingKind.TRUNCATED, f"{name} is empty; {_FAILS}")
            elif kind is not None:
                yield from broken(name, item.read(name, _LARGEST_BYTES), kind, _FAILS)

    def payload(self, item: Files) -> bytes:
        """The binary that a program loads; for an autotuner its measurements."""
        for ending in (*_BINARIES, ".autotune.json"):
            for name in item.names:
                if name.endswith(ending):
                    return item.read(name, _LARGEST_BYTES)
        raise FormatError(f"{item.path} holds no binary")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        """A digest of the source."""
        if (source := f"{entry.program}.source") in item.seen:
            yield "SHA-256 of the source", digest(item.read(source, _LARGEST_BYTES))
        yield "digests of the function and of Triton", "not stored by Triton"

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The list first: without it Triton misses, and looks at nothing else. Files of no kernel stay."""
        lists = [name for name in names if name.startswith(_GROUP)]
        kernels = tuple(name[len(_GROUP) : -len("json")] for name in lists)
        return [
            *lists,
            *(name for name in names if name not in lists and (not lists or name.startswith(kernels))),
        ]

    def _beside_kernels(self, item: Files) -> Look:
        """Identify a directory without a list of files: a library, an autotuner's data, or half a kernel."""
        name = item.names[0]
        if any(one.endswith(".so") for one in item.names):
            return Look(program=name.partition(".")[0], kind=PayloadKind.ELF.value)
        if name.endswith(".autotune.json"):
            return Look(program=name.partition(".")[0], kind="autotuning")
        detail = f"it has no list of its files ({_GROUP}KERNEL.json); {_MISSES}"
        return Look(problem=Problem(FindingKind.ORPHAN, detail), shows=False)

    def _misled(self, item: Files, group: str) -> Problem | None:
        """The problem of the list of a kernel's files."""
        try:
            children = _object(item.read(group, _JSON_BYTES))["child_paths"]
            places = {str(name): str(place) for name, place in children.items()}
        except (ValueError, KeyError, AttributeError) as error:
            return Problem(FindingKind.CORRUPT, f"{group} does not read ({error}); {_MISSES}")
        for name, place in places.items():
            if name not in item.seen:
                return Problem(FindingKind.TRUNCATED, f"{name} is gone; {_MISSES}")
            try:
                there = Path(place).stat()
            except (OSError, ValueError):
                detail = f"{group} names {place}, which is not there, as the cache was moved; {_MISSES}"
                return Problem(FindingKind.MISPLACED, detail)
            if Identity.of(there) != Identity.of(item.seen[name]):
                detail = f"{group} names {place}, as the cache was copied; Triton serves the file there"
                return Problem(FindingKind.MISPLACED, detail)
        return None

    def _described(self, item: Files, name: str) -> tuple[dict[str, Any], Problem | None]:
        """A kernel's description, and its problem."""
        try:
            told = _object(item.read(name, _JSON_BYTES))
        except ValueError as error:
            return {}, Problem(FindingKind.CORRUPT, f"{name} does not read ({error}); {_FAILS}")
        if told.pop("hash", item.key) != item.key:
            return told, Problem(FindingKind.MISPLACED, f"{name} is of another entry; Triton serves it")
        return told, None


def _group(item: Files) -> str | None:
    return next((one for one in item.names if one.startswith(_GROUP) and one.endswith(".json")), None)


def _object(data: bytes) -> dict[str, Any]:
    """The object of a JSON text; raises ValueError."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    return found


def _target(told: object) -> str:
    if not isinstance(told, dict):
        return ""
    arch = told.get("arch", "")
    return f"{told.get('backend', '')}:{f'sm_{arch}' if isinstance(arch, int) else arch}"


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


FORMAT = Triton
