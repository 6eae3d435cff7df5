"""FlashAttention 4's cache: an object file for each kernel that its CuTe sources compiled.

Source: FlashAttention of September 2026, ``flash_attn/cute/cache_utils.py``; no file written on a GPU was
available. The first directory is a SHA-256 of its sources, and the versions of Python, CUTLASS and TVM-FFI,
so older ones stay unused; below it there may be one for a kind of kernel. ``<64 hex>.o`` is a
SHA-256 of a pickled key of shapes and types, ``<64 hex>.lock`` is held by flock(2) while a process reads or
writes it, and stays. An object is written to ``.<64 hex>.<16 hex>.tmp.o`` and renamed. One that does not load
is removed and compiled again.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat, broken
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.learning_places import FlashAttentionPlaces, QuackPlaces
from gpucache.payload import PayloadKind

_DIGITS = "[0-9a-f]{64}"
_FOLDERS = (f"({_DIGITS})/", rf"({_DIGITS})/([a-z]\w*)/")
_TEMPORARY = rf"\.{_DIGITS}\.[0-9a-f]{{16}}\.tmp\.o"


class FlashAttention(FlashAttentionPlaces, FilesFormat):
    """The kernels of attention forward, backward and combined."""

    layout = Layout(
        [f"{folder}({_DIGITS})\\.{ending}" for ending in ("o", "lock") for folder in _FOLDERS],
        left=[Left(folder + _TEMPORARY, sure=True) for folder in _FOLDERS],
        signs=[_DIGITS],
        key=lambda groups: groups[-1] + hashed(groups[:-1])[:24],
    )
    wanted = {"key": "the 64 hex digits in a file's name, or more of an entry's"}
    opaque = "its files say nothing of the shapes and types that their names were made from"
    served = "its owner would load it"
    shows = "an object file"
    key_digits = 88
    folders_removed = 2

    def look(self, item: Files) -> CacheEntry:
        whole = item.names[0].endswith(".o")
        problem = None if whole else Problem(FindingKind.ORPHAN, "its object is gone, and the lock stays")
        version = (("sources", item.parts[0][:12]),)
        return self.entry(item)._replace(
            program=item.parts[1] if len(item.parts) > 1 else "",
            artifact_kind=PayloadKind.ELF.value if whole else "",
            damage=problem,
            fields=version,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        name = item.names[0]
        if name.endswith(".o"):
            yield from broken(
                name,
                item.read(name),
                PayloadKind.ELF,
                f"{self.owner} removes it and compiles it again, where it does not load",
            )

    def lock(self, item: Files) -> AbstractContextManager[None]:
        return self.holding(*item.parts, item.names[0].partition(".")[0] + ".lock")


class Quack(QuackPlaces, FlashAttention):
    """The kernels of QuACK, in objects like FlashAttention's, whose code it gave the form.

    Source: QuACK 0.6.5 (PyPI), ``quack/cache/jit.py``; no file written on a GPU was available. The first
    directory is a SHA-256 of its sources, and the versions of Python, CUTLASS and TVM-FFI.
    """
