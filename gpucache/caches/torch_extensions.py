"""PyTorch's C++ and CUDA extensions: a directory for each module that ``torch.utils.cpp_extension`` built.

Source: PyTorch 2.13, ``torch/utils/cpp_extension.py`` and ``torch/utils/file_baton.py``; checked against its
builds. Below the root there is a directory for each Python and CUDA (``py312_cu126``, ``py311_cpu``), unless
``TORCH_EXTENSIONS_DIR`` names the root; each module has ``NAME.so`` (``NAME_v1.so`` after a change in one
process), the objects, ``build.ninja`` and ninja's records. PyTorch writes ``build.ninja`` at each start and
lets ninja decide by the command and the times of its inputs. A file ``lock`` exists while a process builds;
others wait for its removal without end (pytorch#189245), so a killed build stops every start.
"""

import re
from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat, broken
from gpucache.caches.format import HOUR_NS, HeldError
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.ninja import BUILD, NO_MOVING, built_with, no_text
from gpucache.caches.torch_places import TorchExtensionsPlaces
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind
from gpucache.units import format_age

_PYTHON = r"(py\d+\w*_(?:cu\d+|cpu|rocm?[\w.]*|xpu))"
_MODULE = r"(?P<module>[A-Za-z_][\w.-]*)"
_LOCK = "lock"
_FILES = (
    r"(?P=module)(?:_v\d+)?\.(?:so|pyd)",
    r"[\w.-]+\.o(?:bj)?",
    r"build\.ninja",
    _LOCK,
    r"\.ninja_(?:log|deps|lock)|[\w.-]+\.(?:cpp|cu|cuh|h|hip|d|exp|lib|hpp|cc)",
)
_MADE = re.compile(r"\.(?:so|pyd|o|obj)$|^\.ninja_")
_FAILS = "PyTorch imports it as it is, so the program ends at every start"
_LARGEST_BYTES = 2 << 30


class TorchExtensions(TorchExtensionsPlaces, FilesFormat):
    """Modules of ``load`` and ``load_inline``, from exllama to DeepSpeed."""

    layout = Layout(
        [f"{place}{_MODULE}/(?:{names})" for names in _FILES for place in (f"{_PYTHON}/", "")],
        signs=[_PYTHON],
        key=lambda groups: hashed(groups) + hashed(groups[::-1])[:24],
    )
    wanted = {"key": "hex digits of an entry, as 'gpucache inspect' lists them"}
    opaque = (
        "a module is found by its name alone, and ninja decides whether it is built again; compare two "
        "entries by 'gpucache inspect --why KEY KEY', or run 'ninja -d explain' in its directory"
    )
    served = "PyTorch would ask ninja, which builds it again if the command or an input changed"
    shows = "a module of PyTorch's"
    folders_removed = 1
    moving = NO_MOVING
    trusts_variables = True  # below TORCH_EXTENSIONS_DIR a module is a directory of any name

    def look(self, item: Files) -> CacheEntry:
        """Module, Python and CUDA from the names; whether a library exists, and whether a lock stops it."""
        library = _library(item)
        return self.entry(item)._replace(
            program=item.parts[-1],
            target=item.parts[-2] if len(item.parts) > 1 else "",
            artifact_kind=PayloadKind.ELF.value if library else "",
            damage=self._lock_problem(item) or (None if library else _ORPHAN),
            shows=BUILD in item.seen,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        """The lock, and whether the libraries and objects are whole ELF files."""
        if locked := self._lock_problem(item):
            yield locked
        elif not _library(item):
            yield _ORPHAN
        for name in item.names:
            if name.endswith((".so", ".o")):
                end = _FAILS if name.endswith(".so") else "the next link of the module fails"
                yield from broken(name, item.read(name, _LARGEST_BYTES), PayloadKind.ELF, end)
        yield from no_text(item)

    def payload(self, item: Files) -> bytes:
        """The newest library."""
        if library := _library(item):
            return item.read(library, _LARGEST_BYTES)
        raise FormatError(f"{item.folder} contains no library")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:  # noqa: ARG002
        """The build inputs that ``build.ninja`` lists: compilers, options, sources."""
        yield from built_with(item)

    def remove(self, item: Files) -> Kept | None:
        """Remove a module, unless a process builds it."""
        if _LOCK in item.seen and not self._is_stale(item):
            raise HeldError("a process builds it; try again once that is done")
        return super().remove(item)

    def _is_stale(self, item: Files) -> bool:
        """Whether a killed build left the lock: for an hour no compile has ended, nor was the lock made.

        Sources do not count: each start that waits for the lock has written them again.
        """
        made = (one for name, one in item.seen.items() if name == _LOCK or _MADE.search(name))
        return max(one.st_mtime_ns for one in made) < self.now_ns() - HOUR_NS

    def _lock_problem(self, item: Files) -> Problem | None:
        if _LOCK not in item.seen:
            return None
        age = format_age(self.now_ns() - item.seen[_LOCK].st_mtime_ns)
        if self._is_stale(item):
            detail = f"a killed build left its lock {age} ago, so programs that need the module wait for ever"
            return Problem(FindingKind.MISPLACED, detail, paths=(_LOCK,))
        detail = f"a process locked it {age} ago: it builds the module, or was killed"
        return Problem(FindingKind.LOCKED, detail)


_ORPHAN = Problem(FindingKind.ORPHAN, "it has no library, so PyTorch builds it again")


def _library(item: Files) -> str:
    """The newest library; empty if there is none."""
    every = [name for name in item.names if name.endswith((".so", ".pyd"))]
    return max(every, key=lambda name: (item.seen[name].st_mtime_ns, name), default="")
