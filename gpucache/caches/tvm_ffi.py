"""TVM-FFI's inline modules: a directory for each one that ``tvm_ffi.cpp`` built, with its library.

Source: TVM-FFI 0.1.15, ``tvm_ffi/cpp/extension.py`` and ``tvm_ffi/utils/lockfile.py``; checked against its
builds. The 16 hex digits in ``NAME_<16 hex>/`` begin a SHA-256 of sources, functions and options; included
headers, compilers and TVM-FFI are not part of it, but ninja compares the command and the times of the inputs
at each start. The directory has ``NAME.so``, the objects, the sources, ``build.ninja`` and ninja's records,
and ``lock``, which stays and is held by flock(2) while a process builds. A program loads the library
unchecked.
"""

from contextlib import AbstractContextManager

from gpucache.answers.entries import CacheEntry
from gpucache.caches.files import Files
from gpucache.caches.layout import Layout
from gpucache.caches.ninja import BUILD, NinjaFormat
from gpucache.caches.torch_places import TvmFfiPlaces
from gpucache.payload import PayloadKind

_FOLDER = r"(?P<module>[\w.-]+)_([0-9a-f]{16})"
_FILES = (
    r"(?P=module)\.(?:so|dll)",
    r"[\w.-]+\.o(?:bj)?|[\w.-]+\.cubin",
    r"build\.ninja|lock",
    r"\.ninja_(?:log|deps|lock)|[\w.-]+\.(?:cpp|c|cu|d|exp|lib)",
)


class TvmFfi(TvmFfiPlaces, NinjaFormat):
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
    fails = "TVM-FFI loads it as it is, so the program ends at every start"

    def look(self, item: Files) -> CacheEntry:
        return self.entry(item)._replace(
            program=item.parts[-1][:-17],
            artifact_kind=PayloadKind.ELF.value if self.library(item) else "",
            damage=self.orphan(item),
            shows=BUILD in item.seen,
        )

    def lock(self, item: Files) -> AbstractContextManager[None]:
        return self.holding(*item.parts, "lock")
