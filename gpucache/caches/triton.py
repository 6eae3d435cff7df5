"""Triton's cache: a directory for each kernel with every stage of its compilation, and a list of them.

Source: Triton 2.1 to 3.9, ``triton/runtime/cache.py`` and ``triton/compiler/compiler.py``. A directory is
named by the key of its kernel: a SHA-256 in base 32 (since 3.3), in URL-safe base 64 (3.2) or in hex (3.0 and
3.1), or before an MD5 in hex. ``__grp__KERNEL.json`` lists its files by their absolute places,
``KERNEL.json`` has the key in hex, the target, every option and since 3.3 Triton's version, and next to it
are the source, each intermediate representation and the binary. Every start reads all files of the list: the
binary as it is, the others as UTF-8, which nothing uses afterwards. A directory can also contain one host
library, which launches kernels, or an autotuner's measurements. Files are written under a temporary name and
renamed, no lock is taken, nothing has a checksum, and nothing is ever removed.
"""

import json
import os
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Any
from uuid import uuid4

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.binary_format import broken
from gpucache.caches.files import Files, Identity, allocated_bytes, publish, read
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left
from gpucache.caches.portable import Moving, PortableEntry, PortableFile
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.keys import digest
from gpucache.payload import PayloadKind

_GROUP = "__grp__"
_JSON_BYTES = 1 << 20
"""The most bytes of a list, or of a kernel's description, that are read; real ones have one or two kB."""
_LARGEST_BYTES = 1 << 30
# The last digit of 256 bits in base 32 or 64 is one of a few.
_FOLDER = "([A-Z2-7]{51}[AQ]|[0-9A-Za-z_-]{42}[048AEIMQUYcgkosw]|[0-9a-f]{64}|[0-9a-f]{32})"
_FILE = r"\w[\w.-]*"
_BASE_32 = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "0123456789abcdefghijklmnopqrstuv")
"""A table from the base 32 digits of RFC 4648 to the digits that ``int`` takes."""
_VERSIONS = {32: "2.1-2.3", 64: "3.0-3.1", 43: "3.2", 52: ""}
"""The versions of Triton whose directories have names of this length, if the length alone decides."""
_READS_ANY_LIST, _WANTS_EVERY_FILE = (3, 7), (3, 8)
"""The first versions for which a list that cannot be parsed, or one that names a missing file, is a miss."""
_WRITER = r"tmp\.pid_(?P<pid>\d+)_[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_STAGES = "source|ttir|ttgir|llir|ptx|amdgcn|llvmir"
_BINARIES = {".cubin": PayloadKind.CUBIN, ".hsaco": PayloadKind.AMDGPU, ".spv": PayloadKind.SPIRV}
_ONLY_COMPILED = frozenset({".source", ".ttir", ".ttgir", ".llir"})
_LIBRARY = ".so"
_SYMBOLS = {".cubin": ".text.{}\0", ".hsaco": "\0{}.kd\0"}
"""A text that every binary with a kernel contains, from its tables of names."""
_LAUNCHED = {"name": str, "num_warps": int, "num_ctas": int, "shared": int}
_DIGITS_OF_MD5 = 32
_WORDS = {"None": "null", "True": "true", "False": "false"}
_MISSES = "Triton misses it without a word and compiles again"
_FAILS = "Triton serves it, so the program fails at every start"


class Triton(Format, of="triton"):
    """The kernels of ``triton.jit``, including those of Inductor, vLLM and others built on Triton."""

    layout = Layout(
        [
            rf"{_FOLDER}/{_FILE}\.(?:cubin|hsaco|spv|so)",
            rf"{_FOLDER}/{_FILE}\.(?:{_STAGES})",
            rf"{_FOLDER}/{_FILE}\.json",
        ],
        left=[
            Left(rf"{_FOLDER}/{_WRITER}/{_FILE}"),
            Left(rf"{_FOLDER}/{_FILE}\.{_WRITER}"),
            Left(rf"{_WRITER}/{_FILE}"),
        ],
        key=lambda groups: _key(groups[0]),
    )
    folders_removed = 1
    opaque = (
        "an entry keeps its target, options and Triton's version, but not the function's digest or "
        "that of Triton itself, which are in the key as well; compare the entries of a kernel by "
        "'gpucache inspect --why KEY KEY'"
    )
    unseen = "a changed byte inside a binary, or the binary of another variant of the same kernel"
    distribution = "triton"
    links = ("triton", "triton-xpu", "pytorch-triton-xpu", "pytorch-triton-rocm")
    moving = Moving(
        tells="paths and source text",
        sources=True,
        note=(
            "Keys lack the values that a kernel reads from attributes of modules and, up to 3.4, from "
            "globals and closures, so a machine with other values would compute by these."
        ),
        untold=("Python",),
    )

    def look(self, item: Files) -> CacheEntry:
        group = _group(item)
        if group is None:
            return self._beside_kernels(item)
        kernel = group[len(_GROUP) : -len(".json")]
        with item.open() as folder:
            told, wrong = _described(item, folder, f"{kernel}.json")
            version = str(told.get("triton_version", "")) or _VERSIONS[len(item.parts[-1])]
            wrong = _misled(item, folder, group, version) or wrong
        return self.entry(item)._replace(
            program=kernel,
            target=_target(told.pop("target", None)),
            artifact_kind=next(
                (kind.value for ending, kind in _BINARIES.items() if kernel + ending in item.seen), ""
            ),
            fields=tuple((label, _shown(value)) for label, value in told.items()),
            damage=wrong,
            spare_bytes=sum(allocated_bytes(item.seen[name]) for name in _spare(item)),
            toolchain=(("Triton", version),),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        look = self.look(item)
        if look.damage is not None:
            yield look.damage
            return
        kernel = dict(look.fields).get("name", look.program)
        with item.open() as folder:
            for name in item.seen:
                if (ending := _ending(name)) == ".json":
                    continue
                data = read(folder, name, _LARGEST_BYTES)
                if ending in _BINARIES:
                    yield from _wrong_binary(name, data, kernel, look.target)
                elif ending == _LIBRARY:
                    yield from broken(name, data, PayloadKind.ELF, _FAILS)
                    yield from self.linked(item, name, data, _FAILS)
                elif not _is_text(data):
                    detail = f"{name} is not UTF-8, as Triton reads it at every start, so the program fails"
                    yield Problem(FindingKind.CORRUPT, detail)

    def notes(self, item: Files) -> Iterator[str]:
        yield from super().notes(item)
        for name, status in item.seen.items():
            if not status.st_size and _ending(name) not in (*_BINARIES, _LIBRARY, ".json"):
                yield f"{name} is empty, which Triton does not notice: programs use the binary alone"

    def payload(self, item: Files) -> bytes:
        for ending in (*_BINARIES, _LIBRARY, ".autotune.json"):
            for name in item.names:
                if name.endswith(ending):
                    return item.read(name)
        raise FormatError(f"{item.path} has no binary")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        if (source := f"{entry.program}.source") in item.seen:
            yield "SHA-256 of the source", digest(item.read(source))
        yield "digests of the function and of Triton", "not stored by Triton"

    def strip(self, item: Files) -> bool:
        """Remove files that only compilers read, from the list first: since 3.8 a missing file is a miss.

        The list is written as Triton writes it, so that the leftovers of a kill are known by their names.
        """
        if (group := _group(item)) is None:
            return False
        with item.open() as folder:
            told = _object(read(folder, group, _JSON_BYTES))
            places = {name: place for name, place in told["child_paths"].items() if name not in _spare(item)}
            content = json.dumps({**told, "child_paths": places}).encode()
            publish(folder, f"tmp.pid_{os.getpid()}_{uuid4()}", group, content, item.seen[group])
        return self.take(item, _spare(item))

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The order of removal: the list first, without which Triton misses. Files of no kernel are left."""
        lists = [name for name in names if name.startswith(_GROUP)]
        kernels = tuple(name[len(_GROUP) : -len("json")] for name in lists)
        return [
            *lists,
            *(name for name in names if name not in lists and (not lists or name.startswith(kernels))),
        ]

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        return [_listed(one, PurePosixPath()) for one in super().files_to_move(item)]

    def placed(self, entry: PortableEntry, root: Path) -> Sequence[PortableFile]:
        return [_listed(one, root) for one in entry.files]

    def _beside_kernels(self, item: Files) -> CacheEntry:
        """Identify a directory without a list of files: a library, an autotuner's data, or half a kernel."""
        name = item.names[0]
        if any(one.endswith(".so") for one in item.names):
            return self.entry(item)._replace(
                program=name.partition(".")[0], artifact_kind=PayloadKind.ELF.value
            )
        if name.endswith(".autotune.json"):
            return self.entry(item)._replace(program=name.partition(".")[0], artifact_kind="autotuning")
        detail = f"it has no list of its files ({_GROUP}KERNEL.json); {_MISSES}"
        return self.entry(item)._replace(damage=Problem(FindingKind.ORPHAN, detail))


def _listed(file: PortableFile, root: PurePath) -> PortableFile:
    """A file as it is, or the list of a kernel's files with its places below a root; raises FormatError."""
    folder, _, name = file.name.rpartition("/")
    if not name.startswith(_GROUP):
        return file
    try:
        told = _object(file.data)
        places = {one: str(root / folder / one) for one in told["child_paths"]}
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"{name} cannot be parsed ({error})") from None
    return file._replace(data=json.dumps({**told, "child_paths": places}).encode())


def _misled(item: Files, folder: Folder, group: str, version: str) -> Problem | None:
    """The problem of the list of a kernel's files for a version, the newest if it is unknown."""
    since = tuple(map(int, re.findall(r"\d+", version)[:2])) or _WANTS_EVERY_FILE
    try:
        children = _object(read(folder, group, _JSON_BYTES))["child_paths"]
        places = {str(name): str(place) for name, place in children.items()}
    except (ValueError, KeyError, AttributeError) as error:
        end = _MISSES if since >= _READS_ANY_LIST else "the program fails at every start"
        return Problem(FindingKind.CORRUPT, f"{group} cannot be parsed ({error}); {end}")
    missing, own = [], str(item.folder)
    for name, place in places.items():
        if name in item.seen and place == f"{own}/{name}":
            continue
        try:
            there = Path(place).stat()
        except (OSError, ValueError):
            if name in item.seen:
                detail = f"{group} names {place}, which is not there, as the cache was moved; {_MISSES}"
                return Problem(FindingKind.MISPLACED, detail)
            missing.append(name)
            continue
        if name not in item.seen or Identity.of(there) != Identity.of(item.seen[name]):
            detail = f"{group} names {place}, as the cache was copied; Triton serves the file there"
            return Problem(FindingKind.MISPLACED, detail)
    described = group.removeprefix(_GROUP)
    if described not in places:
        return Problem(FindingKind.CORRUPT, f"{group} does not name {described}; {_MISSES}")
    if since < _WANTS_EVERY_FILE and described not in missing:
        missing = [name for name in missing if _ending(name) in _BINARIES]
        end = "Triton looks for it in vain, so the program fails at every start"
    else:
        end = _MISSES
    return Problem(FindingKind.TRUNCATED, f"{missing[0]} is gone; {end}") if missing else None


def _described(item: Files, folder: Folder, name: str) -> tuple[dict[str, Any], Problem | None]:
    if name not in item.seen:
        return {}, None
    try:
        told = _object(read(folder, name, _JSON_BYTES))
    except ValueError as error:
        return {}, Problem(FindingKind.CORRUPT, f"{name} cannot be parsed ({error}); {_FAILS}")
    if told.pop("hash", item.key) != item.key:
        return told, Problem(FindingKind.MISPLACED, f"{name} is of another entry; Triton serves it")
    if len(item.parts[-1]) > _DIGITS_OF_MD5 and (lacking := _lacking(told)):
        return told, Problem(FindingKind.CORRUPT, f"{name} lacks {lacking}; {_FAILS}")
    return told, None


def _lacking(told: Mapping[str, Any]) -> str:
    """The first field of a description whose absence or type makes Triton raise an error."""
    target = told.get("target")
    if not isinstance(target, dict) or not {"backend", "arch", "warp_size"} <= target.keys():
        return "target"
    fields = _LAUNCHED if target["backend"] in ("cuda", "hip") else {"name": str}
    return next((name for name, kind in fields.items() if not isinstance(told.get(name), kind)), "")


def _key(name: str) -> str:
    match len(name):
        case 52:
            return f"{int(name.translate(_BASE_32), 32) >> 4:064x}"
        case 43:
            return urlsafe_b64decode(f"{name}=").hex()
    return name


def _wrong_binary(file: str, data: bytes, kernel: str, target: str) -> Iterator[Problem]:
    """The problems of a kernel's binary, which must have the kernel and be for the target."""
    ending = _ending(file)
    info = yield from broken(file, data, _BINARIES[ending], _FAILS)
    if info is None:
        return
    if ending in _SYMBOLS and _SYMBOLS[ending].format(kernel).encode() not in data:
        yield Problem(FindingKind.MISLABELLED, f"{file} has no kernel {kernel}; {_FAILS}")
    built = info.target
    if built and target and not (built.startswith(target) or target.startswith(built)):
        detail = f"{file} is for {built} where its description has {target}; {_FAILS}"
        yield Problem(FindingKind.MISLABELLED, detail)


def _ending(name: str) -> str:
    return name[name.rfind(".") :]


def _spare(item: Files) -> list[str]:
    """The stages of a compilation that no program uses once there is a binary."""
    binary = any(_ending(name) in _BINARIES for name in item.seen)
    return [name for name in item.seen if binary and _ending(name) in _ONLY_COMPILED]


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _group(item: Files) -> str | None:
    return next((one for one in item.names if one.startswith(_GROUP) and one.endswith(".json")), None)


def _object(data: bytes) -> dict[str, Any]:
    """The object of a JSON text; raises ValueError."""
    try:
        found = json.loads(data)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(found, dict):
        raise ValueError("it is not an object")
    return found


def _target(told: object) -> str:
    if not isinstance(told, dict):
        return ""
    arch = told.get("arch", "")
    return f"{told.get('backend', '')}:{f'sm_{arch}' if isinstance(arch, int) else arch}"


def _shown(value: object) -> str:
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, int):
        return _WORDS.get(text := str(value), text)
    return json.dumps(value)
