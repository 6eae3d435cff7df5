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
from typing import NamedTuple

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.answers.verify import Checked
from gpucache.caches.files import Files, held_by_name, open_folder, read
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.format import HOUR_NS, SECOND_NS, HeldError, UnjudgedError
from gpucache.caches.layout import Layout
from gpucache.caches.portable import Fact, Moving, PortableEntry, PortableFile
from gpucache.caches.systems import TaichiPlaces
from gpucache.errors import FormatError
from gpucache.units import format_age

_MAGIC, _HEAD, _DIGITS = b"TIC\0", struct.Struct("<4sIQQ"), 64
_INDEX, _LOCK, _NEW = "ticache.tcb", "ticache.lock", "ticache.tcb.new"
_ROWS, _ROW_END, _LENGTH = struct.Struct("<Q3HQQ"), struct.Struct("<Qqq"), struct.Struct("<Q")
_SCANNED_BYTES, _INDEX_BYTES = 64 << 10, 64 << 20
_MOST_BYTES = 1 << 30
_ARCHITECTURES = (
    "x64", "arm64", "js", "cuda", "metal", "opengl", "dx11", "dx12", "opencl", "amdgpu", "vulkan", "gles",
)  # fmt: skip
_TASK = re.compile(rb'"name":"(\w+?)_c\d+_\d+_kernel_\d+')
_OTHER_VERSION = f"{_INDEX} is of another version of Taichi; clear it with 'ti cache clean'"
_FOR_EVER = "Taichi compiles it at every start and never writes it anew, as its index has it"


class Row(NamedTuple):
    """One kernel."""

    name: str
    """The name of its file without the ending."""
    key: str
    size_bytes: int
    made_s: int
    used_s: int


@dataclass(frozen=True, slots=True)
class Index:
    """The content of an index."""

    version: tuple[int, ...]
    rows: Mapping[str, Row]
    """Rows by the name of their file."""

    @classmethod
    def read(cls, data: bytes) -> "Index":
        """An index from its bytes; raises FormatError if they are inconsistent."""
        rows: dict[str, Row] = {}
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
                rows[name] = Row(name, key, *_ROW_END.unpack_from(data, at))
                at += _ROW_END.size
        except struct.error:
            raise FormatError("it ends in the middle of a row") from None
        return cls(tuple(version), rows)

    def written(self) -> bytes:
        """The bytes of this index."""
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


class Taichi(TaichiPlaces, FilesFormat):
    """The kernels that ``ti.kernel`` stores for every architecture."""

    layout = Layout([rf"T([0-9a-f]{{{_DIGITS}}})\.tic"], own=[r"ticache\.(?:tcb|lock)"])
    wanted = {"key": "hex digits of the name of an entry's file, behind the T"}
    opaque = "its entries do not record the inputs of their keys, so only key=HEX can be queried"
    checksums = True
    shows = "a Taichi kernel"
    together = 500
    distribution = "taichi"
    index = _INDEX
    target_is = "Taichi's backend"
    moving = Moving(tells="names of kernels")

    def look(self, item: Files) -> CacheEntry:
        start = item.part(item.names[0], 0, _SCANNED_BYTES)
        index = self._index
        row = index.rows.get(_name(item)) if index else None
        wrong = None if start.startswith(_MAGIC) and len(start) >= _HEAD.size else _damage(start)
        _, architecture, *_ = (0, -1) if wrong else _HEAD.unpack_from(start)
        kernel = None if wrong else _TASK.search(start)
        return self.entry(item)._replace(
            program=kernel[1].decode() if kernel else "",
            target=_ARCHITECTURES[architecture] if 0 <= architecture < len(_ARCHITECTURES) else "",
            artifact_kind="" if wrong else "taichi",
            damage=wrong,
            created_ns=row.made_s * SECOND_NS if row else item.written_ns,
            last_used_ns=row.used_s * SECOND_NS if row else item.written_ns,
            shows=wrong is None or not start,
            toolchain=(("Taichi", ".".join(map(str, index.version))),) if index else (),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        data = item.read(item.names[0], _MOST_BYTES)
        row = self._index.rows.get(_name(item)) if self._index else None
        if problem := _damage(data):
            yield problem
        elif self._index is not None and row is None:
            detail = "the index has no row for it, so Taichi ignores it, and writes it anew"
            yield Problem(FindingKind.ORPHAN, detail)
        elif row is not None and row.size_bytes != (size := _end(data) + _DIGITS):
            detail = (
                f"it has {size} bytes where the index has {row.size_bytes}, so it is of another kernel; "
                "Taichi runs it, and programs get its results"
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
        index = Index(self._index.version, {row.name: row._replace(made_s=0, used_s=0)})
        return [*super().files_to_move(item), PortableFile(_INDEX, index.written(), 0o644)]

    def holds(self, item: Files, names: Collection[str]) -> bool:
        """Whether the Taichi here reads the index: it ignores one of another version."""
        here = self.facts_here().get(Fact.VERSION)
        return not here or self._index is None or ".".join(map(str, self._index.version)) in here

    def merge(self, item: Files, entry: PortableEntry) -> None:
        """Nothing: one index has the entries of one version."""
        raise UnjudgedError(_OTHER_VERSION)

    def publish(self, entry: PortableEntry, move: Callable[[], bool]) -> bool:
        """Its file, then its row in the index, below Taichi's lock."""
        new = Index.read(entry.files[-1].data)
        if list(new.rows) != [Path(entry.files[0].name).stem]:
            raise FormatError("its index has other rows than its own")
        now_s = self.now_ns() // SECOND_NS
        rows = {name: row._replace(made_s=now_s, used_s=now_s) for name, row in new.rows.items()}
        with self._locked():
            try:
                index = self._read()
            except FormatError:
                raise UnjudgedError(f"{_INDEX} cannot be parsed; run 'gpucache verify --repair'") from None
            if index.rows and index.version != new.version:
                raise UnjudgedError(_OTHER_VERSION)
            done = move()
            if done:
                self._write(Index(new.version, {**index.rows, **rows}), entry.files[-1].mode)
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
            age_ns = self.now_ns() - (self.root / _LOCK).lstat().st_mtime_ns
            if age_ns > HOUR_NS:
                detail = f"it is {format_age(age_ns)} old; while it exists Taichi does not read or keep"
                yield self.told(self.root / _LOCK, Problem(FindingKind.LOCKED, detail))
        try:
            index = self._read()
        except FormatError as error:
            if (self.root / _INDEX).is_dir():  # reported with all other files that are not entries
                return
            detail = f"it cannot be parsed ({error}), so Taichi takes the cache for an empty one"
            yield self.told(self.root / _INDEX, Problem(FindingKind.CORRUPT, detail))
            return
        if gone := self._gone(index):
            detail = f"it has {len(gone)} of {len(index.rows)} rows without a file; {_FOR_EVER}"
            yield self.told(self.root / _INDEX, Problem(FindingKind.TRUNCATED, detail))

    def clear(self, checked: Checked) -> Checked:
        with suppress(OSError, HeldError):
            if checked.entry == str(self.root / _LOCK):
                with open_folder(self.root) as folder:
                    if self.now_ns() - folder.lstat(_LOCK).st_mtime_ns > HOUR_NS:
                        folder.unlink(_LOCK)
                        return checked.fixed()
            if checked.entry == str(self.root / _INDEX):
                with self._locked():
                    try:
                        self._drop(self._gone(self._read()))
                    except FormatError:
                        (self.root / _INDEX).unlink()
                return checked.fixed()
        return super().clear(checked)

    @cached_property
    def _index(self) -> Index | None:
        """The index; None if it is missing or invalid."""
        with suppress(OSError, FormatError):
            return self._read()
        return None

    def _read(self) -> Index:
        try:
            with open_folder(self.root) as folder:
                return Index.read(read(folder, _INDEX, _INDEX_BYTES))
        except FileNotFoundError:
            return Index((), {})

    def _gone(self, index: Index) -> set[str]:
        return {name for name in index.rows if not os.path.lexists(self.root / f"{name}.tic")}

    def _drop(self, names: set[str]) -> None:
        try:
            with open_folder(self.root) as folder:
                index = Index.read(read(folder, _INDEX, _INDEX_BYTES))
                mode = stat.S_IMODE(folder.lstat(_INDEX).st_mode)
        except (FormatError, FileNotFoundError):
            return
        if names.isdisjoint(index.rows):
            return
        rows = {name: row for name, row in index.rows.items() if name not in names}
        self._write(Index(index.version, rows), mode)

    def _write(self, index: Index, mode: int) -> None:
        with open_folder(self.root) as folder:
            with suppress(FileNotFoundError):
                folder.unlink(_NEW)
            folder.publish(_NEW, folder, _INDEX, index.written(), mode)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open_folder(self.root) as folder, ExitStack() as stack:
            try:
                stack.enter_context(held_by_name(folder, _LOCK, 0o644))
            except FileExistsError:
                raise HeldError(f"{_LOCK} exists; try again once the program that made it ends") from None
            yield


def _name(item: Files) -> str:
    return Path(item.names[0]).stem


def _end(data: bytes) -> int:
    """The end of the code in a file; Taichi ignores bytes behind the digest that follows."""
    _, _, json_bytes, code_bytes = _HEAD.unpack_from(data)
    return _HEAD.size + int(json_bytes) + int(code_bytes)


def _damage(data: bytes) -> Problem | None:
    if not data:
        return Problem(FindingKind.TRUNCATED, f"it is empty; {_FOR_EVER}")
    if not data.startswith(_MAGIC) or len(data) < _HEAD.size:
        return Problem(FindingKind.MISLABELLED, f"it is not a Taichi kernel; {_FOR_EVER}")
    end = _end(data)
    if (missing := end + _DIGITS - len(data)) > 0:
        return Problem(FindingKind.TRUNCATED, f"{missing} of its bytes are missing; {_FOR_EVER}")
    if hashlib.sha256(data[_HEAD.size : end]).hexdigest().encode() != data[end : end + _DIGITS]:
        return Problem(FindingKind.CORRUPT, f"its SHA-256 does not match its content; {_FOR_EVER}")
    return None
