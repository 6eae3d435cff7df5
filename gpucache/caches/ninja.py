"""Modules that ninja builds, each in a directory with its library, objects and ``build.ninja``."""

import re
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path
from typing import ClassVar

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.caches.binary_format import broken
from gpucache.caches.files import Files
from gpucache.caches.format import HOUR_NS, Format, HeldError
from gpucache.caches.layout import VERSION, Layout, Left, hashed
from gpucache.caches.portable import Moving
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind
from gpucache.units import format_age

BUILD = "build.ninja"
NO_MOVING = Moving(
    "ninja builds it again, as it compares absolute paths and the times of files; build it once in the image "
    "that all machines run"
)
_BUILD_BYTES, _LARGEST_BYTES = 1 << 20, 2 << 30


class NinjaFormat(Format):
    """A cache of such modules."""

    folders_removed = 1
    moving = NO_MOVING
    served = "its owner would ask ninja, which builds it again if the command or an input changed"
    fails: ClassVar[str]
    """The effect of a broken library; ends the sentences about that."""
    reads_build: ClassVar[bool] = True
    """Whether the owner reads the ``build.ninja`` that is there."""

    def look(self, item: Files) -> CacheEntry:
        return self.entry(item)._replace(
            program=item.parts[-1],
            artifact_kind=PayloadKind.ELF.value if self.library(item) else "",
            damage=self.orphan(item),
            shows=BUILD in item.seen,
        )

    def library(self, item: Files) -> str:
        """The newest library; empty if there is none."""
        every = [name for name in item.names if name.endswith((".so", ".pyd", ".dll"))]
        return max(every, key=lambda name: (item.seen[name].st_mtime_ns, name), default="")

    def orphan(self, item: Files) -> Problem | None:
        detail = f"it has no library, so {self.owner} builds it again"
        return None if self.library(item) else Problem(FindingKind.ORPHAN, detail)

    def unlinked(self, item: Files) -> str:
        return "the next link of the module fails"

    def check(self, item: Files) -> Iterator[Problem]:
        if orphan := self.orphan(item):
            yield orphan
        for name in item.names:
            if name.endswith((".so", ".o")):
                end = self.fails if name.endswith(".so") else self.unlinked(item)
                data = item.read(name, _LARGEST_BYTES)
                yield from broken(name, data, PayloadKind.ELF, end)
                if name.endswith(".so"):
                    yield from self.linked(item, name, data, end)
        if self.reads_build and BUILD in item.seen:
            try:
                item.read(BUILD, _BUILD_BYTES).decode()
            except UnicodeDecodeError:  # owners compare it with a new one at each start
                detail = f"{BUILD} is not UTF-8, at which programs that need the module end at every start"
                yield Problem(FindingKind.CORRUPT, detail)

    def payload(self, item: Files) -> bytes:
        if library := self.library(item):
            return item.read(library, _LARGEST_BYTES)
        raise FormatError(f"{item.folder} contains no library")

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        yield from built_with(item)


def built_with(item: Files) -> list[tuple[str, str]]:
    """The variables that are not empty, and the sources, in an entry's ``build.ninja`` if it has one."""
    if BUILD not in item.seen:
        return []
    text = item.part(BUILD, 0, _BUILD_BYTES).decode("utf-8", "replace").replace("$\n", "")
    found = re.findall(r"^(\w+) = (\S.*)$", text, re.MULTILINE)
    sources = re.findall(r"^build .+: (?:cuda_)?compile (.+)$", text, re.MULTILINE)
    return [
        (label, " ".join(value.split())) for label, value in (*found, *(("source", one) for one in sources))
    ]


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


class TorchExtensions(NinjaFormat, of="torch-extensions"):
    """Modules of ``load`` and ``load_inline``, from exllama to DeepSpeed.

    Source: PyTorch 2.13, ``torch/utils/cpp_extension.py`` and ``torch/utils/file_baton.py``; checked against
    its builds. Below the root there is a directory for each Python and CUDA (``py312_cu126``, ``py311_cpu``),
    unless ``TORCH_EXTENSIONS_DIR`` names the root; each module has ``NAME.so`` (``NAME_v1.so`` after a change
    in one process), the objects, ``build.ninja`` and ninja's records. PyTorch writes ``build.ninja`` at each
    start and lets ninja decide by the command and the times of its inputs. A file ``lock`` exists while a
    process builds; others wait for its removal without end (pytorch#189245), so a killed build stops every
    start.
    """

    layout = Layout(
        [f"{place}{_MODULE}/(?:{names})" for names in _FILES for place in (f"{_PYTHON}/", "")],
        signs=[_PYTHON],
        key=lambda groups: hashed(groups) + hashed(groups[::-1])[:24],
    )
    opaque = (
        "a module is found by its name alone, and ninja decides whether it is built again; compare two "
        "entries by 'gpucache inspect --why KEY KEY', or run 'ninja -d explain' in its directory"
    )
    links = ("torch",)
    fails = "PyTorch imports it as it is, so the program ends at every start"
    trusts_variables = True  # below TORCH_EXTENSIONS_DIR a module is a directory of any name

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(target=item.parts[-2] if len(item.parts) > 1 else "")

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


_FOLDER = r"(?P<module>[\w.-]+)_([0-9a-f]{16})"
_TVM_FILES = (
    r"(?P=module)\.(?:so|dll)",
    r"[\w.-]+\.o(?:bj)?|[\w.-]+\.cubin",
    r"build\.ninja|lock",
    r"\.ninja_(?:log|deps|lock)|[\w.-]+\.(?:cpp|c|cu|d|exp|lib)",
)


class TvmFfi(NinjaFormat, of="tvm-ffi"):
    """Modules of ``load_inline`` and ``load``, from FlashInfer to SGLang.

    Source: TVM-FFI 0.1.15, ``tvm_ffi/cpp/extension.py`` and ``tvm_ffi/utils/lockfile.py``; checked against
    its builds. The 16 hex digits in ``NAME_<16 hex>/`` begin a SHA-256 of sources, functions and options;
    included headers, compilers and TVM-FFI are not part of it, but ninja compares the command and the times
    of the inputs at each start. The directory has ``NAME.so``, the objects, the sources, ``build.ninja`` and
    ninja's records, and ``lock``, which stays and is held by flock(2) while a process builds. A program loads
    the library unchecked.
    """

    layout = Layout(
        [f"{_FOLDER}/(?:{names})" for names in _TVM_FILES],
        signs=[_FOLDER],
        key=lambda groups: groups[1] + groups[0].encode().hex(),
    )
    opaque = (
        "the digits in a directory's name are a hash of sources and options, and ninja decides whether it is "
        "built again; compare two entries by 'gpucache inspect --why KEY KEY'"
    )
    links = ("apache-tvm-ffi",)
    fails = "TVM-FFI loads it as it is, so the program ends at every start"

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(program=item.parts[-1][:-17])

    def lock(self, item: Files) -> AbstractContextManager[None]:
        return self.holding(*item.parts, "lock")


_ARCHS = r"(\d+[a-z]?(?:_\d+[a-z]?)*)"
_OPS = (f"({VERSION})/{_ARCHS}/cached_ops", f"{_ARCHS}/cached_ops")
"""Where modules are; versions of 2025 had no directory for the version."""
_FLASHINFER_MODULE = r"(?P<module>(?!tmp)[a-z][\w.-]*)"
_OBJECT = r"[\w.-]+\.o"
_FLASHINFER_FILES = (
    r"(?P=module)\.so",
    _OBJECT,
    r"build\.ninja|meta\.json|kernel\.json",
    rf"\.ninja_log|\.ninja_deps|{_OBJECT}\.d",
)


def _key(groups: Sequence[str]) -> str:
    return sha256("/".join(groups).encode("utf-8", "surrogateescape")).hexdigest()


class FlashInfer(NinjaFormat, of="flashinfer"):
    """The attention kernels and others that FlashInfer built, for servers of language models above all.

    Source: FlashInfer 0.7, ``flashinfer/jit/core.py``, ``flashinfer/jit/cpp_ext.py`` and
    ``flashinfer/jit/cute_dsl_core.py``; nvcc modules were checked against its builds; modules of the CuTe DSL
    (``MODULE_ARCH_cute_dsl/KERNEL.o`` with ``meta.json``) are known from the sources only. Each version has a
    directory for each set of architectures, with ``cached_ops/MODULE/``: ``MODULE.so``, its objects,
    ``build.ninja`` and ninja's records. The name has no hash: FlashInfer writes ``build.ninja`` at each start
    and lets ninja decide by the command, its inputs' times and the records, not by a file's content.
    ``cached_ops/tmp/MODULE.lock`` is locked with flock(2) meanwhile, and nothing is ever removed.
    """

    layout = Layout(
        [f"{ops}/{_FLASHINFER_MODULE}/(?:{names})" for names in _FLASHINFER_FILES for ops in _OPS],
        left=[Left(rf"{ops}/{_FLASHINFER_MODULE}/[\w.-]+\.(?:o|json)\.tmp\.(?P<pid>\d+)") for ops in _OPS],
        own=[
            "cubins/",
            *(f"{ops}/tmp/" for ops in _OPS),
            rf"{VERSION}/flashinfer_jit\.log",  # of a machine without a GPU
            *(
                ops.replace("cached_ops", name)
                for ops in _OPS
                for name in ("generated/", r"flashinfer_jit\.log")
            ),
        ],
        signs=_OPS,
        key=_key,
    )
    opaque = (
        "a module is found by its name alone, and ninja decides whether it is built anew; compare what two "
        "entries were built with by 'gpucache inspect --why KEY KEY', or run 'ninja -d explain' there"
    )
    links = ("flashinfer-python",)
    fails = "FlashInfer loads it nevertheless, so the program ends or crashes at every start"
    reads_build = False

    def look(self, item: Files) -> CacheEntry:
        *version, archs, _, _ = item.parts
        library, problem = self.library(item), self.orphan(item)
        if library and not item.seen[library].st_size:
            problem = Problem(FindingKind.TRUNCATED, f"{library} is empty; {self.fails}")
        built = built_with(item)
        source = next((value for label, value in built if label == "source"), "")
        return (
            super()
            .look(item)
            ._replace(
                target=" ".join(f"cuda:sm_{one}" for one in archs.split("_")),
                damage=problem,
                toolchain=(("FlashInfer", version[0]),) if version else (),
                gone=f"FlashInfer with {source}" if source and _is_gone(source) else "",
                shows=bool(built) or "meta.json" in item.seen,
            )
        )

    def library(self, item: Files) -> str:
        first = item.names[0]
        return first if first.endswith(".so") or (first.endswith(".o") and _is_cute(item)) else ""

    def unlinked(self, item: Files) -> str:
        if _is_cute(item):
            return "FlashInfer warns when it does not load, and compiles it again"
        return "where its time is as it was ninja does not notice, and the next link of the module fails"

    def lock(self, item: Files) -> AbstractContextManager[None]:
        return self.holding(*item.parts[:-1], "tmp", f"{item.parts[-1]}.lock")


def _is_cute(item: Files) -> bool:
    return BUILD not in item.seen and "meta.json" in item.seen


def _is_gone(source: str) -> bool:
    """Whether a path does not exist; False if that cannot be determined."""
    try:
        Path(source).stat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except (OSError, ValueError):
        return False
    return False
