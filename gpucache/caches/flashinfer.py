"""FlashInfer's cache: a directory for each module, in which ninja builds a library for some GPUs.

Source: FlashInfer 0.7, ``flashinfer/jit/core.py``, ``flashinfer/jit/cpp_ext.py`` and
``flashinfer/jit/cute_dsl_core.py``; nvcc modules were checked against its builds; modules of the CuTe DSL
(``MODULE_ARCH_cute_dsl/KERNEL.o`` with ``meta.json``) are known from the sources only. Each version has a
directory for each set of architectures, with ``cached_ops/MODULE/``: ``MODULE.so``, its objects,
``build.ninja`` and ninja's records. The name has no hash: FlashInfer writes ``build.ninja`` at each start and
lets ninja decide by the command, its inputs' times and the records, not by a file's content.
``cached_ops/tmp/MODULE.lock`` is locked with flock(2) meanwhile, and nothing is ever removed.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from hashlib import sha256
from pathlib import Path

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.layout import VERSION, Layout, Left
from gpucache.caches.ninja import BUILD, NinjaFormat, built_with
from gpucache.caches.systems import FlashInferPlaces
from gpucache.payload import PayloadKind

_ARCHS = r"(\d+[a-z]?(?:_\d+[a-z]?)*)"
_OPS = (f"({VERSION})/{_ARCHS}/cached_ops", f"{_ARCHS}/cached_ops")
"""Where modules are; versions of 2025 had no directory for the version."""
_MODULE = r"(?P<module>(?!tmp)[a-z][\w.-]*)"
_OBJECT = r"[\w.-]+\.o"
_FILES = (
    r"(?P=module)\.so",
    _OBJECT,
    r"build\.ninja|meta\.json|kernel\.json",
    rf"\.ninja_log|\.ninja_deps|{_OBJECT}\.d",
)


def _key(groups: Sequence[str]) -> str:
    return sha256("/".join(groups).encode("utf-8", "surrogateescape")).hexdigest()


class FlashInfer(FlashInferPlaces, NinjaFormat):
    """The attention kernels and others that FlashInfer built, for servers of language models above all."""

    layout = Layout(
        [f"{ops}/{_MODULE}/(?:{names})" for names in _FILES for ops in _OPS],
        left=[Left(rf"{ops}/{_MODULE}/[\w.-]+\.(?:o|json)\.tmp\.(?P<pid>\d+)") for ops in _OPS],
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
    served = "FlashInfer would ask ninja, which builds it anew where a command or an input changed"
    shows = "a module of FlashInfer's"
    fails = "FlashInfer loads it nevertheless, so the program ends or crashes at every start"
    reads_build = False

    def look(self, item: Files) -> CacheEntry:
        *version, archs, _, module = item.parts
        library, problem = self.library(item), self.orphan(item)
        if library and not item.seen[library].st_size:
            problem = Problem(FindingKind.TRUNCATED, f"{library} is empty; {self.fails}")
        built = built_with(item)
        source = next((value for label, value in built if label == "source"), "")
        return self.entry(item)._replace(
            program=module,
            target=" ".join(f"cuda:sm_{one}" for one in archs.split("_")),
            artifact_kind=PayloadKind.ELF.value if library else "",
            damage=problem,
            toolchain=(("FlashInfer", version[0]),) if version else (),
            gone=f"FlashInfer with {source}" if source and _is_gone(source) else "",
            shows=bool(built) or "meta.json" in item.seen,
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
