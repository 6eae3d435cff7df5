"""The compiler cache of Intel's GPU driver, for OpenCL, Level Zero and ocloc.

Source: intel/compute-runtime of 2026, ``programmers-guide/COMPILER_CACHE.md``, ``compiler_cache.cpp`` and
``compiler_cache_linux.cpp``; no cache of an Intel GPU was seen. A file is called by 16 hex digits of a hash
over compiler, options, device and input, lies in the place or two folders of a digit below it, and holds the
device binary alone. ``config.file`` is the size of all as u64, and the lock (flock) around every change; the
driver evicts by it, so a removal corrects it. An empty file is a miss. The place that the variable names has
to be there, or the driver caches nothing.
"""

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from gpucache.caches.files import Files, open_folder, read, read_part, take_lock
from gpucache.caches.files_format import BinaryFormat
from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.format import HOUR_NS, HeldError
from gpucache.caches.layout import Layout, Left
from gpucache.caches.places import Home, Place, Var
from gpucache.errors import FormatError
from gpucache.outcomes import Checked, FindingKind, Kept, Problem
from gpucache.payload import PayloadInfo, PayloadKind

_KEY, _KINDS = "([0-9a-f]{16})", "(?:cl|l0|ocloc)_cache"
_TOTAL, _TOTAL_BYTES = "config.file", 8
_PATIENCE_S = 10
_DEFAULT_BYTES = 1 << 30
_OTHER = (b"CTNI", b"!<ar")
"""How binaries begin in the format with tokens for patches, and in archives for several devices."""


class IntelNeo(BinaryFormat):
    """What the driver's compiler made, a file for each program."""

    name = "intel-neo"
    title = "compiler cache of Intel's GPU driver"
    owner = "Intel's GPU driver"
    driver = True
    place = Place(
        (
            Var("NEO_CACHE_DIR"),
            Var("XDG_CACHE_HOME", "neo_compiler_cache"),
            Home(".cache/neo_compiler_cache"),
        ),
        move="set NEO_CACHE_DIR to a folder that is there",
        nowhere="Intel's GPU driver keeps nothing without a home folder; set NEO_CACHE_DIR",
        off={"NEO_CACHE_PERSISTENT": ("0",)},
        opt_in=True,
    )
    layout = Layout(
        [rf"{_KEY}\.{_KINDS}", rf"[0-9a-f]/[0-9a-f]/{_KEY}\.{_KINDS}"],
        left=[Left(rf"{_KINDS}\.\w{{6}}", HOUR_NS), Left(rf"[0-9a-f]/[0-9a-f]/{_KINDS}\.\w{{6}}", HOUR_NS)],
        signs=[r"config\.file", rf"{_KEY}\.{_KINDS}", rf"[0-9a-f]/[0-9a-f]/{_KEY}\.{_KINDS}"],
        own=[
            r"config\.file",
            "stats",
            "[0-9a-f]/stats",
            "[0-9a-f]/[0-9a-f]/stats",
            r"[0-9a-f]{16}\.(?:trace|input)",
        ],
    )
    wanted = {"key": "the 16 hex digits of an entry's name, or the first of them"}
    opaque = (
        "its entries say nothing of what their keys were made from; with NEOReadDebugKeys=1 and "
        "BinaryCacheTrace=1 the driver writes HASH.trace and HASH.input beside them, which can be compared"
    )
    absent = "no entry has this key: it was never compiled here, or was evicted, of which no record is kept"
    served = "the driver would serve it"
    key_digits = 16
    kinds = frozenset({PayloadKind.INTEL_GPU, PayloadKind.ELF, PayloadKind.SPIRV, PayloadKind.LLVM_BITCODE})
    consequence = "the driver loads it, and the program fails, at every start"
    shows = "a binary for Intel's GPUs"
    _was_held = False

    @classmethod
    def limit_bytes(cls, environ: Mapping[str, str]) -> int | None:
        """The size above which the driver evicts by last use; 1 GiB unless it is set, and 0 for none."""
        text = environ.get("NEO_CACHE_MAX_SIZE", "")
        size = int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else _DEFAULT_BYTES
        return size or None

    def unwrap(self, data: bytes, *, whole: bool) -> tuple[bytes, Problem | None]:
        """The file as it is; one that is empty is compiled again."""
        if whole and not data:
            return data, Problem(FindingKind.TRUNCATED, "it is empty, so the driver compiles it again")
        return data, None

    def _wrong(self, binary: bytes, info: PayloadInfo, *, whole: bool) -> Problem | None:
        """What is wrong with a binary; of the older format and of archives nothing is known here."""
        return None if binary.startswith(_OTHER) else super()._wrong(binary, info, whole=whole)

    def remove(self, item: Files) -> Kept | None:
        """The file, and its size from the sum of all."""
        kept = super().remove(item)
        if kept is None:
            self._subtract(sum(status.st_size for status in item.seen.values()))
        return kept

    @contextmanager
    def lock(self, item: Files) -> Iterator[None]:  # noqa: ARG002 - one for all
        """The driver's lock, where there is one yet."""
        try:
            with open_folder(self.root) as folder:
                fd = folder.open_file(_TOTAL)
        except FileNotFoundError:
            yield
            return
        try:
            if not take_lock(fd, 0 if self._was_held else _PATIENCE_S):
                self._was_held = True  # or a thousand entries would wait for hours
                raise HeldError("the driver's lock is held; try again once the program that holds it is done")
            yield
        finally:
            os.close(fd)

    def whole(self) -> Iterator[Checked]:
        """A sum of all sizes that does not read."""
        try:
            with open_folder(self.root) as folder:
                if len(read(folder, _TOTAL, _TOTAL_BYTES)) == _TOTAL_BYTES:
                    return
                why = f"it has not the {_TOTAL_BYTES} bytes of one"
        except FileNotFoundError:
            return
        except FormatError as error:
            why = str(error)
        detail = f"it is the sum of all sizes and does not read ({why}), so the driver evicts by none"
        yield self.told(self.root / _TOTAL, Problem(FindingKind.CORRUPT, detail))

    def _subtract(self, size_bytes: int) -> None:
        """Correct the sum of all sizes, if there is one; the lock is held."""
        with suppress(FileNotFoundError, FormatError), open_folder(self.root) as folder:
            old = read_part(folder, _TOTAL, 0, _TOTAL_BYTES)
            if len(old) == _TOTAL_BYTES:
                left = max(0, int.from_bytes(old, "little") - size_bytes)
                mode = stat.S_IMODE(folder.lstat(_TOTAL).st_mode)
                with os.fdopen(folder.open_for_writing(_TOTAL, os.O_WRONLY, mode), "wb") as file:
                    file.write(left.to_bytes(_TOTAL_BYTES, "little"))


SYSTEM = ForeignSystem(IntelNeo)
