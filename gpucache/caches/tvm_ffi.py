"""TVM-FFI's inline modules: a directory for each one that ``tvm_ffi.cpp`` built, with its library.

Source: TVM-FFI 0.1.15, ``tvm_ffi/cpp/extension.py`` and ``tvm_ffi/utils/lockfile.py``; checked against its
builds. The 16 hex digits in ``NAME_<16 hex>/`` begin a SHA-256 of sources, functions and options; included
headers, compilers and TVM-FFI are not part of it, but ninja compares the command and the times of the inputs
at each start. The directory has ``NAME.so``, the objects, the sources, ``build.ninja`` and ninja's records,
and ``lock``, which stays and is held by flock(2) while a process builds. A program loads the library
unchecked.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat, broken
from gpucache.caches.layout import Layout
from gpucache.caches.ninja import BUILD, NO_MOVING, built_with, no_text
from gpucache.caches.torch_places import TvmFfiPlaces
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind

_FOLDER = r"(?P<module>[\w.-]+)_([0-9a-f]{16})"
_FILES = (
    r"(?P=module)\.(?:so|dll)",
    r"[\w.-]+\.o(?:bj)?|[\w.-]+\.cubin",
    r"build\.ninja|lock",
    r"\.ninja_(?:log|deps|lock)|[\w.-]+\.(?:cpp|c|cu|d|exp|lib)",
)
_LARGEST_BYTES = 2 << 30
_FAILS = "TVM-FFI loads it as it is, so the program ends at every start"
_ORPHAN = Problem(FindingKind.ORPHAN, "it has no library, so TVM-FFI builds it again")


class TvmFfi(TvmFfiPlaces, FilesFormat):
    """Modules of ``load_inline`` and ``load``, from FlashInfer to SGLang."""

    layout = Layout(
        [f"{_FOLDER}/(?:{names})" for names in _FILES],
        signs=[_FOLDER],
        key=lambda groups: groups[1] + groups[0].encode().hex(),
    )
    wanted = {"key": "the 16 hex digits in a directory's name, or more of an entry's"}
    opaque = (
        "the digits in a directory's name are a hash of sources and options, and ninja decides whether it is "
        "built again; compare two entries by 'gpucache inspect --why KEY KEY'"
    )
    served = "TVM-FFI would ask ninja, which builds it again if the command or an input changed"
    shows = "a module of TVM-FFI's"
    folders_removed = 1
    moving = NO_MOVING

    def look(self, item: Files) -> CacheEntry:
        """The module's name, and whether its library exists."""
        library = _library(item)
        return self.entry(item)._replace(
            program=item.parts[-1][:-17],
            artifact_kind=PayloadKind.ELF.value if library else "",
            damage=None if library else _ORPHAN,
            shows=BUILD in item.seen,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """Whether the library and the objects are whole ELF files."""
        if not _library(item):
            yield _ORPHAN
        for name in item.names:
            if name.endswith((".so", ".o")):
                end = _FAILS if name.endswith(".so") else "the next link of the module fails"
                yield from broken(name, item.read(name, _LARGEST_BYTES), PayloadKind.ELF, end)
        yield from no_text(item)

    def payload(self, item: Files) -> bytes:
        """The library."""
        if library := _library(item):
            return item.read(library, _LARGEST_BYTES)
        raise FormatError(f"{item.folder} contains no library")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        """The build inputs that ``build.ninja`` lists: compilers, options, sources."""
        yield from built_with(item)

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """The lock that TVM-FFI holds while it builds."""
        return self.holding(*item.parts, "lock")


def _library(item: Files) -> str:
    """The name of the library; empty if there is none."""
    return next((name for name in item.names if name.endswith((".so", ".dll"))), "")
