"""Taichi's offline cache: a file for each kernel, valid only while the index has a row for it.

Source: Taichi 1.7, ``taichi/util/offline_cache.h``, ``taichi/codegen/compiled_kernel_data.cpp`` and
``taichi/compilation_manager``; checked against its files. ``T<64 hex>.tic`` is ``TIC`` and a zero, u32
architecture, u64 size of a JSON text, u64 size of the code, both of these, and the SHA-256 of the two in hex;
bytes behind that are ignored. Nothing in it names its key, so of two files of one size in each other's place
nothing shows.
A file is only written along with its row: a damaged or missing file whose row stays is compiled again at
every start. Readers and writers of the index create ``ticache.lock``, and remove it afterwards.

The index, ``ticache.tcb``, is little-endian: u64 size of it, three u16 of Taichi's version, u64 size of all
kernels, u64 their number, and for each the name of its file and its key, each after its u64 length, u64 size,
i64 seconds of its creation and last use.
"""

import hashlib
import os
import re
import stat
import struct
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.caches.files import Files, held_by_name, open_folder, read
from gpucache.caches.format import HOUR_NS, SECOND_NS, Format, HeldError, UnjudgedError
from gpucache.caches.layout import Layout
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.errors import FormatError
from gpucache.units import format_age

_HEAD, _DIGITS = struct.Struct("<4sIQQ"), 64
_ROWS, _ROW_END, _LENGTH = struct.Struct("<Q3HQQ"), struct.Struct("<Qqq"), struct.Struct("<Q")
_SCANNED_BYTES, _INDEX_BYTES = 64 << 10, 64 << 20
_MOST_BYTES = 1 << 30
_ARCHITECTURES = (
    "x64", "arm64", "js", "cuda", "metal", "opengl", "dx11", "dx12", "opencl", "amdgpu", "vulkan", "gles",
)  # fmt: skip
_TASK = re.compile(rb'"name":"(\w+?)_c\d+_\d+_kernel_\d+')


class TaichiRow(NamedTuple):
    """One kernel."""

    name: str
    key: str
    size_bytes: int
    made_s: int
    used_s: int


@dataclass(frozen=True, slots=True)
class TaichiIndex:
    """The content of an index."""

    version: tuple[int, ...]
    rows: Mapping[str, TaichiRow]

    @classmethod
    def read(cls, data: bytes) -> "TaichiIndex":
        """An index from its bytes; raises FormatError if they are inconsistent."""
        rows: dict[str, TaichiRow] = {}
        try:
            size, *version, _, count = _ROWS.unpack_from(data)
            if size != len(data):
                raise FormatError(f"it says that it has {size} bytes, and has {len(data)}")
            at = _ROWS.size
            while len(rows) < count:
                name, at = _text(data, at)
                key, at = _text(data, at)
                if name in rows:
                    raise FormatError(f"it has two rows for {name}")
                rows[name] = TaichiRow(name, key, *_ROW_END.unpack_from(data, at))
                at += _ROW_END.size
        except struct.error:
            raise FormatError("it ends in the middle of a row") from None
        return cls(tuple(version), rows)

    def written(self) -> bytes:
        rows = self.rows.values()
        body = b"".join(
            _bytes(row.name) + _bytes(row.key) + _ROW_END.pack(row.size_bytes, row.made_s, row.used_s)
            for row in rows
        )
        kernels_bytes = sum(row.size_bytes for row in rows)
        return _ROWS.pack(_ROWS.size + len(body), *self.version, kernels_bytes, len(rows)) + body


def _bytes(text: str) -> bytes:
    return _LENGTH.pack(len(text)) + text.encode("latin-1")


def _text(data: bytes, at: int) -> tuple[str, int]:
    start = at + _LENGTH.size
    end = start + _LENGTH.unpack_from(data, at)[0]
    if end > len(data):
        raise FormatError("a name in it ends behind the file")
    return data[start:end].decode("latin-1"), end


class Taichi(Format, of="taichi"):
    """The kernels that ``ti.kernel`` stores for every architecture."""

    layout = Layout(
        [rf"T([0-9a-f]{{{_DIGITS}}})\.tic"],
        own=[r"ticache\.(?:tcb|lock)", "kernel_compilation_manager/", "python_side_cache/"],
    )
    magic: ClassVar[bytes] = b"TIC\0"
    ending: ClassVar[str] = "tic"
    lock_file: ClassVar[str] = "ticache.lock"
    checksums = True
    together = 500
    distribution = "taichi"
    index = "ticache.tcb"
    target_is = "Taichi's backend"
    moving = Moving(tells="names of kernels")

    def look(self, item: Files) -> CacheEntry:
        start = item.part(item.names[0], 0, _SCANNED_BYTES)
        index = self._index
        row = index.rows.get(_name(item)) if index else None
        wrong = None if start.startswith(self.magic) and len(start) >= _HEAD.size else self._damage(start)
        _, architecture, *_ = (0, -1) if wrong else _HEAD.unpack_from(start)
        kernel = None if wrong else _TASK.search(start)
        return self.entry(item)._replace(
            program=kernel[1].decode() if kernel else "",
            target=_ARCHITECTURES[architecture] if 0 <= architecture < len(_ARCHITECTURES) else "",
            artifact_kind="" if wrong else "taichi",
            damage=wrong,
            created_ns=row.made_s * SECOND_NS if row else item.written_ns,
            last_used_ns=row.used_s * SECOND_NS if row else item.written_ns,
            toolchain=((self.owner, ".".join(map(str, index.version))),) if index else (),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        data = item.read(item.names[0], _MOST_BYTES)
        row = self._index.rows.get(_name(item)) if self._index else None
        if problem := self._damage(data):
            yield problem
        elif self._index is not None and row is None:
            detail = f"the index has no row for it, so {self.owner} ignores it, and writes it anew"
            yield Problem(FindingKind.ORPHAN, detail)
        elif row is not None and row.size_bytes != (size := _end(data) + _DIGITS):
            detail = (
                f"it has {size} bytes where the index has {row.size_bytes}, so it is of another kernel; "
                f"{self.owner} runs it, and programs get its results"
            )
            yield Problem(FindingKind.MISLABELLED, detail)

    def payload(self, item: Files) -> bytes:
        data = item.read(item.names[0], _MOST_BYTES)
        if len(data) < _HEAD.size:
            raise FormatError(f"{item.path} ends in the middle of its head")
        return data[_HEAD.size + _HEAD.unpack_from(data)[2] : _end(data)]

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        row = self._index.rows.get(_name(item)) if self._index else None
        if row is None or self._index is None:
            raise FormatError("the index has no row for it")
        index = TaichiIndex(self._index.version, {row.name: row._replace(made_s=0, used_s=0)})
        return [*super().files_to_move(item), PortableFile(self.index, index.written(), 0o644)]

    def holds(self, item: Files, names: Collection[str]) -> bool:
        """Whether the Taichi here reads the index: it ignores one of another version."""
        here = self.facts_here().get(Fact.VERSION)
        return not here or self._index is None or ".".join(map(str, self._index.version)) in here

    def merge(self, item: Files, entry: PortableEntry) -> None:
        """Merge nothing, as an index has entries of one version only."""
        raise UnjudgedError(self._other_version)

    def publish(self, entry: PortableEntry, move: Callable[[], bool]) -> bool:
        """Write the entry's file, then its row in the index, under Taichi's lock."""
        new = TaichiIndex.read(entry.files[-1].data)
        if list(new.rows) != [Path(entry.files[0].name).stem]:
            raise FormatError("its index has other rows than its own")
        now_s = self.now_ns() // SECOND_NS
        rows = {name: row._replace(made_s=now_s, used_s=now_s) for name, row in new.rows.items()}
        with self._locked():
            try:
                index = self._read()
            except FormatError:
                raise UnjudgedError(
                    f"{self.index} cannot be parsed; run 'gpucache verify --repair'"
                ) from None
            if index.rows and index.version != new.version:
                raise UnjudgedError(self._other_version)
            done = move()
            if done:
                self._write(TaichiIndex(new.version, {**index.rows, **rows}), entry.files[-1].mode)
        self.__dict__.pop("_index", None)
        return done

    def remove(self, item: Files) -> Kept | None:
        return self.remove_together([item])[0]

    def remove_together(self, items: Sequence[Files]) -> Sequence[Kept | None]:
        """Remove the rows first: without its row Taichi compiles a kernel and writes its file again."""
        try:
            with self._locked():
                self._drop({_name(item) for item in items if item.unchanged()})
                return [super(Taichi, self).remove(item) for item in items]
        except HeldError as held:
            return [Kept(str(held)) for _ in items]

    def whole(self) -> Iterator[Checked]:
        with suppress(FileNotFoundError):
            age_ns = self.now_ns() - (self.root / self.lock_file).lstat().st_mtime_ns
            if age_ns > HOUR_NS:
                detail = f"it is {format_age(age_ns)} old; while it exists {self.owner} does not read or keep"
                yield self.told(self.root / self.lock_file, Problem(FindingKind.LOCKED, detail))
        try:
            index = self._read()
        except FormatError as error:
            if (self.root / self.index).is_dir():  # reported with all other files that are not entries
                return
            detail = f"it cannot be parsed ({error}), so {self.owner} takes the cache for an empty one"
            yield self.told(self.root / self.index, Problem(FindingKind.CORRUPT, detail))
            return
        if gone := self._gone(index):
            detail = f"it has {len(gone)} of {len(index.rows)} rows without a file; {self._for_ever}"
            yield self.told(self.root / self.index, Problem(FindingKind.TRUNCATED, detail))

    def clear(self, checked: Checked) -> Checked:
        with suppress(OSError, HeldError):
            if checked.entry == str(self.root / self.lock_file):
                with open_folder(self.root) as folder:
                    if self.now_ns() - folder.lstat(self.lock_file).st_mtime_ns > HOUR_NS:
                        folder.unlink(self.lock_file)
                        return checked.fixed()
            if checked.entry == str(self.root / self.index):
                with self._locked():
                    try:
                        self._drop(self._gone(self._read()))
                    except FormatError:
                        (self.root / self.index).unlink()
                return checked.fixed()
        return super().clear(checked)

    @cached_property
    def _index(self) -> TaichiIndex | None:
        """The index; None if it is missing or invalid."""
        with suppress(OSError, FormatError):
            return self._read()
        return None

    def _read(self) -> TaichiIndex:
        try:
            with open_folder(self.root) as folder:
                return TaichiIndex.read(read(folder, self.index, _INDEX_BYTES))
        except FileNotFoundError:
            return TaichiIndex((), {})

    def _gone(self, index: TaichiIndex) -> set[str]:
        return {name for name in index.rows if not os.path.lexists(self.root / f"{name}.{self.ending}")}

    def _drop(self, names: set[str]) -> None:
        try:
            with open_folder(self.root) as folder:
                index = TaichiIndex.read(read(folder, self.index, _INDEX_BYTES))
                mode = stat.S_IMODE(folder.lstat(self.index).st_mode)
        except (FormatError, FileNotFoundError):
            return
        if names.isdisjoint(index.rows):
            return
        rows = {name: row for name, row in index.rows.items() if name not in names}
        self._write(TaichiIndex(index.version, rows), mode)

    def _write(self, index: TaichiIndex, mode: int) -> None:
        with open_folder(self.root) as folder:
            with suppress(FileNotFoundError):
                folder.unlink(f"{self.index}.new")
            folder.publish(f"{self.index}.new", folder, self.index, index.written(), mode)

    @property
    def _for_ever(self) -> str:
        return f"{self.owner} compiles it at every start and never writes it anew, as its index has it"

    @property
    def _other_version(self) -> str:
        return f"{self.index} is of another version of {self.owner}; remove it with its kernels"

    def _damage(self, data: bytes) -> Problem | None:
        if not data:
            return Problem(FindingKind.TRUNCATED, f"it is empty; {self._for_ever}")
        if not data.startswith(self.magic) or len(data) < _HEAD.size:
            return Problem(FindingKind.MISLABELLED, f"it is not a kernel of {self.owner}'s; {self._for_ever}")
        end = _end(data)
        if (missing := end + _DIGITS - len(data)) > 0:
            return Problem(FindingKind.TRUNCATED, f"{missing} of its bytes are missing; {self._for_ever}")
        if hashlib.sha256(data[_HEAD.size : end]).hexdigest().encode() != data[end : end + _DIGITS]:
            return Problem(FindingKind.CORRUPT, f"its SHA-256 does not match its content; {self._for_ever}")
        return None

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open_folder(self.root) as folder, ExitStack() as stack:
            try:
                stack.enter_context(held_by_name(folder, self.lock_file, 0o644))
            except FileExistsError:
                raise HeldError(
                    f"{self.lock_file} exists; try again once the program that made it ends"
                ) from None
            yield


class GsTaichi(Taichi, of="gstaichi"):
    """The kernels of the successor of Taichi that Genesis began; checked against files of 4.6."""

    distribution = "gstaichi"


class Quadrants(Taichi, of="quadrants"):
    """The kernels of Taichi's successor, with other file names; checked against files of 1.3."""

    layout = Layout([rf"T([0-9a-f]{{{_DIGITS}}})\.qdc"], own=[r"qdcache\.(?:qdb|lock)"])
    magic, ending = b"QDC\0", "qdc"
    index, lock_file = "qdcache.qdb", "qdcache.lock"
    distribution = "quadrants"


def _name(item: Files) -> str:
    return Path(item.names[0]).stem


def _end(data: bytes) -> int:
    """The end of the code in a file; Taichi ignores bytes behind the digest that follows."""
    _, _, json_bytes, code_bytes = _HEAD.unpack_from(data)
    return _HEAD.size + int(json_bytes) + int(code_bytes)
