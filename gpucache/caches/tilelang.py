"""TileLang's cache: kernels with their libraries, the device binaries in these, and tuning results.

Source: TileLang 0.1.15, ``tilelang/cache/kernel_cache.py``, ``tilelang/cache/binary_cache.py`` and
``tilelang/autotuner/param.py``. Kernels for CUDA and for the CPU, and binaries, were checked against its
files; tuning results, other backends, and the form before April 2026, ``KEY/`` in the root, are known from
the sources only. Each version has a directory with ``PLATFORM/kernels/KEY/`` with both sources, a library or
cubin, ``params.json`` and, today, ``manifest.json`` with the size and SHA-256 of each, which TileLang
compares; ``PLATFORM/autotuner/KEY/`` with the best configuration and a pickled function as well; and
``cuda-binaries/KEY/``, a cubin with ``metadata.json``. A key is a SHA-256 of inputs that are not stored.
Directories are created below ``.staging`` and renamed, without locks; nothing is ever evicted.
"""

import json
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import VERSION, Layout, Left
from gpucache.caches.portable import Moving, PortableFile
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind, describe
from gpucache.payload.source import kernel_names

_KEY, _STAGED = "([0-9a-f]{64})", r"[0-9a-f]{64}_(?P<pid>\d+)_[0-9a-f]{8}"
_VERSION, _PLATFORM = VERSION, r"[a-z]+-\w+"
_KERNELS, _TUNED = (f"{_VERSION}/{_PLATFORM}/{one}/{_KEY}" for one in ("kernels", "autotuner"))
_FOLDERS = (_KERNELS, _TUNED, rf"{_VERSION}/(?:cuda|ascend)-binaries/{_KEY}", _KEY)
_BINARY = r"(?:executable|kernel_lib|launcher_lib)\.so|kernel\.(?:cubin|fatbin|ptx|bin|o)"
_SOURCES = r"(?:(?:wrapped_|device_|host_)?kernel|launcher)\.(?:cu|cpp|py)"
_LISTS = (
    r"(?:params|manifest|metadata|resource_usage|best_config|out_idx|latency)\.json|(?:params|function)\.pkl"
)
_LOADED = rf"{_BINARY}|kernel\.py"
_NAMES = f"{_BINARY}|{_SOURCES}|{_LISTS}"
_PICKLE = "function.pkl"
_NEEDED = {
    "kernels": ("params.", "device_kernel.", "host_kernel."),
    "autotuner": ("params.", "best_config.json", "latency.json", _PICKLE),
    "cuda-binaries": ("metadata.json",),
    "ascend-binaries": ("metadata.json",),
}
"""For each directory, how the names of an entry's files begin, apart from its binary."""
_CHECKING = (0, 1, 15)
"""A version with manifests; one of August 2026 had none."""
_SCANNED_BYTES, _LIST_BYTES = 256 << 10, 1 << 20
_AGAIN = "TileLang compiles it again"
_NEVER = "TileLang compiles it at every start, and never writes it anew"
_FAILS = "TileLang opens it nevertheless, so the program ends with an error at every start"
_SHOWN = "TileLang serves the kernel all the same, and shows this in the place of its source"


class TileLang(Format, of="tilelang"):
    """The kernels that TileLang compiled, for itself and for models and servers that use it."""

    layout = Layout(
        [f"{folder}/(?:{names})" for names in (_BINARY, _SOURCES, _LISTS) for folder in _FOLDERS],
        left=[
            Left(rf"{_VERSION}/{_PLATFORM}/\.staging/{_STAGED}/(?:{_NAMES})"),
            Left(rf"{_VERSION}/\.staging/\w+-binaries/[0-9a-f]{{64}}\.(?P<pid>\d+)\.\w+/(?:{_NAMES})"),
        ],
        own=[rf"{_VERSION}/{_PLATFORM}/frontend/"],
        signs=_FOLDERS,
    )
    wanted = {"key": "hex digits of a key, which TILELANG_VERBOSE=1 makes TileLang print"}
    opaque = (
        "an entry keeps the sources that TileLang generated, but not the function's own text or its "
        "options; compare the sources of two entries, or set TILELANG_VERBOSE=1"
    )
    distribution = "tilelang"
    moving = Moving(
        tells="source text",
        sources=True,
        note="Tuning results stay, as they have a program's function as a pickle, in which any code may be.",
    )
    folders_removed = 1
    bare = "removes that as well, or fails at it"

    def look(self, item: Files) -> CacheEntry:
        data = item.part(item.names[0], 0, _SCANNED_BYTES)
        info = describe(data)
        if (at := data.find(b"\x7fELF", 4)) > 0 and describe(data[at:]).kind is PayloadKind.CUBIN:
            info = describe(data[at:])._replace(kind=info.kind)
        source = next((name for name in item.names if re.match(r"(?:device_)?kernel\.(?:cu|cpp)", name)), "")
        kernels = kernel_names(item.part(source, 0, _SCANNED_BYTES)) if source else iter(info.kernels or ())
        problem = _missing(item)
        return self.entry(item)._replace(
            program=next(kernels, ""),
            target=info.target,
            artifact_kind="" if info.kind is PayloadKind.UNKNOWN else info.kind.value,
            fields=(("holds", _family(item)),),
            damage=problem,
            toolchain=(("TileLang", item.parts[0]),) if len(item.parts) > 1 else (),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        if problem := _missing(item):
            yield problem
            return
        end = _end(item)
        try:
            told = _told(item)
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            yield Problem(FindingKind.CORRUPT, f"its list of digests cannot be parsed; {end}")
            return
        if lost := next((name for name in told if name not in item.seen and re.fullmatch(_NAMES, name)), ""):
            yield Problem(FindingKind.TRUNCATED, f"{lost} is gone; {end}")
        if "manifest.json" in item.seen and not any(re.fullmatch(_LOADED, name) for name in told):
            yield Problem(FindingKind.CORRUPT, f"its list of digests names no binary; {end}")
        for name in item.names:
            if name not in told and not re.fullmatch(_BINARY, name):
                continue
            data = item.read(name)
            size, digest = told.get(name, (None, None))
            because = _SHOWN if re.fullmatch(_SOURCES, name) and len(data) == size else end
            if not data or (size is not None and len(data) != size):
                yield Problem(FindingKind.TRUNCATED, f"{name} has {len(data)} bytes; {because}")
            elif digest is not None and sha256(data).hexdigest() != digest:
                yield Problem(FindingKind.CORRUPT, f"{name} is not as TileLang wrote it; {because}")
            elif digest is None and (wrong := _broken(data)):
                yield Problem(FindingKind.CORRUPT, f"{name} is broken: {wrong}; {because}")

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        if _PICKLE in item.seen:
            raise FormatError("it has a function as a pickle, which can be any code; let it be tuned there")
        return super().files_to_move(item)

    def has_checksum(self, item: Files) -> bool:
        return "manifest.json" in item.seen

    def payload(self, item: Files) -> bytes:
        if re.fullmatch(_BINARY, item.names[0]):
            return item.read(item.names[0])
        raise FormatError(f"{item.folder} has no binary")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        """Digests of the generated sources; two entries with equal digests differ in inputs not stored."""
        for name in item.names:
            if re.fullmatch(_SOURCES, name):
                yield f"SHA-256 of {name}", sha256(item.read(name)).hexdigest()
        yield "function and options", "not stored by TileLang"


def _family(item: Files) -> str:
    return item.parts[-2] if len(item.parts) > 1 else "kernels"


def _broken(data: bytes) -> str | None:
    info = describe(data)
    return "it is not a compiled binary" if info.kind is PayloadKind.UNKNOWN else info.problem


def _end(item: Files) -> str:
    family = _family(item)
    return _FAILS if family == "autotuner" else _NEVER if family.endswith("-binaries") else _AGAIN


def _missing(item: Files) -> Problem | None:
    """The missing files of an entry without which TileLang rejects it, or accepts it and fails."""
    needed = _NEEDED[_family(item)] if len(item.parts) > 1 else ("params.",)
    if needed == _NEEDED["kernels"] and _numbers(item.parts[0]) >= _CHECKING:
        needed = (*needed, "manifest.json")
    gone = next((one for one in needed if not any(name.startswith(one) for name in item.names)), "")
    if not gone and not re.fullmatch(_LOADED, item.names[0]):
        gone = "its binary"
    return Problem(FindingKind.TRUNCATED, f"{gone.rstrip('.')} is gone; {_end(item)}") if gone else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d{1,9}", version)[:3]))


def _told(item: Files) -> dict[str, tuple[object, object]]:
    """The size and SHA-256 of its files by name, from an entry itself; raises the parser's errors."""
    if "manifest.json" in item.seen:
        listed = json.loads(item.read("manifest.json", _LIST_BYTES))["files"]
    elif "metadata.json" in item.seen:
        listed = {item.names[0]: json.loads(item.read("metadata.json", _LIST_BYTES))}
    else:
        return {}
    return {str(name): (one["size"], one["sha256"]) for name, one in listed.items()}
