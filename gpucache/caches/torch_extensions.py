"""PyTorch's C++ and CUDA extensions: a directory for each module that ``torch.utils.cpp_extension`` built.

Source: PyTorch 2.13, ``torch/utils/cpp_extension.py`` and ``torch/utils/file_baton.py``; checked against its
builds. Below the root there is a directory for each Python and CUDA (``py312_cu126``, ``py311_cpu``), unless
``TORCH_EXTENSIONS_DIR`` names the root; each module has ``NAME.so`` (``NAME_v1.so`` after a change in one
process), the objects, ``build.ninja`` and ninja's records. PyTorch writes ``build.ninja`` at each start and
lets ninja decide by the command and the times of its inputs. A file ``lock`` exists while a process builds;
others wait for its removal without end (pytorch#189245), so a killed build stops every start.
"""

import re

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.caches.files import Files
from gpucache.caches.format import HOUR_NS, HeldError
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.ninja import BUILD, NinjaFormat
from gpucache.caches.torch_places import TorchExtensionsPlaces
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


class TorchExtensions(TorchExtensionsPlaces, NinjaFormat):
    """Modules of ``load`` and ``load_inline``, from exllama to DeepSpeed."""

    layout = Layout(
        [f"{place}{_MODULE}/(?:{names})" for names in _FILES for place in (f"{_PYTHON}/", "")],
        signs=[_PYTHON],
        key=lambda groups: hashed(groups) + hashed(groups[::-1])[:24],
    )
    opaque = (
        "a module is found by its name alone, and ninja decides whether it is built again; compare two "
        "entries by 'gpucache inspect --why KEY KEY', or run 'ninja -d explain' in its directory"
    )
    served = "PyTorch would ask ninja, which builds it again if the command or an input changed"
    shows = "a module of PyTorch's"
    fails = "PyTorch imports it as it is, so the program ends at every start"
    trusts_variables = True  # below TORCH_EXTENSIONS_DIR a module is a directory of any name

    def look(self, item: Files) -> CacheEntry:
        return self.entry(item)._replace(
            program=item.parts[-1],
            target=item.parts[-2] if len(item.parts) > 1 else "",
            artifact_kind=PayloadKind.ELF.value if self.library(item) else "",
            damage=self.orphan(item),
            shows=BUILD in item.seen,
        )

    def orphan(self, item: Files) -> Problem | None:
        return self._lock_problem(item) or super().orphan(item)

    def remove(self, item: Files) -> Kept | None:
        if _LOCK in item.seen and not self._is_stale(item):
            raise HeldError("a process builds it; try again once that is done")
        return super().remove(item)

    def _is_stale(self, item: Files) -> bool:
        """Whether a killed build left the lock: for an hour no compile has ended and no lock was made.

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
