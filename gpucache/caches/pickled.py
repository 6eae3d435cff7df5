"""Caches with pickles that their owners load at a start, a class for each owner. Nothing is unpickled."""

import re
import sys
from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import pickles
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat, broken
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.learning_places import FlydslPlaces, HidetPlaces, TilusPlaces
from gpucache.caches.systems import KeopsPlaces
from gpucache.payload import PayloadKind
from gpucache.units import printable

_LARGEST_BYTES = 256 << 20


class PickledFormat(FilesFormat):
    """Entries of pickles, libraries and GPU binaries, each file of which the owner reads unchecked."""

    names: pickles.Names
    fails: str
    """The effect of a broken file; ends the sentences about that."""
    served = "its owner would load it"
    key_digits = 40
    shows = "a pickle or a library"

    def look(self, item: Files) -> CacheEntry:
        kind = "pickle" if item.names[0].endswith(("pkl", "pickle")) else PayloadKind.ELF.value
        return self.entry(item)._replace(program="/".join((*item.parts, item.names[0])), artifact_kind=kind)

    def check(self, item: Files) -> Iterator[Problem]:
        for name in item.names:
            if not name.endswith((".so", ".pkl", ".pickle")):
                continue
            data = item.read(name, _LARGEST_BYTES)
            if name.endswith(".so"):
                yield from broken(name, data, PayloadKind.ELF, self.fails)
            elif wrong := self.pickled(data):
                runs = f"{self.owner} runs it at the next start"
                end = runs if wrong.kind is FindingKind.UNTRUSTED else self.fails
                yield Problem(wrong.kind, f"{name} {wrong.detail}; {end}")

    def pickled(self, data: bytes) -> Problem | None:
        return pickles.problem(data, self.names)


_MACHINE = r"(?:Linux|Darwin|Windows)_[\w.-]+_p\d+\.\d+\.\d+"
_FORMULA = r"(?:pykeops_\w+_|keops\w*_)?[0-9a-f]{10}"


class Keops(KeopsPlaces, PickledFormat):
    """The formulas that KeOps compiled.

    Source: keopscore 2.3 (PyPI), ``keopscore/config/base_config.py`` and ``keopscore/utils/Cache.py``;
    checked against files for a CPU. A directory for each machine and Python has a library for each formula,
    its source and a text, cubins or PTX on a GPU, and ``*_cache.pkl``, which are written in place at the end
    of a program and unpickled when KeOps is imported. A file that is gone is made again; none is ever
    removed.
    """

    layout = Layout(
        [rf"({_MACHINE})/({_FORMULA})(?:\.cpython[\w-]+)?\.so", rf"({_MACHINE})/(\w+_cache)\.pkl"],
        own=[
            rf"{_MACHINE}/{_FORMULA}\.(?:cpp|nfo|cu)",
            rf"{_MACHINE}/(?:cubin|ptx)_[0-9a-f]+",
            rf"{_MACHINE}/\w*(?:keops|Keops|KeOps)\w*(?:\.[\w-]+)?\.(?:so|cpp)",
            r"build_folder_location\.txt",
        ],
        signs=[_MACHINE],
        key=hashed,
    )
    names = pickles.Names.of("KeOps", "types:SimpleNamespace")
    fails = "KeOps reads it as it is, so the program ends at every start"
    opaque = "a name is a digest of the formula and its types, which the library does not repeat"

    def look(self, item: Files) -> CacheEntry:
        return super().look(item)._replace(renewed=item.names[0].endswith(".pkl"))


_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[\w.<>]+")


class Flydsl(FlydslPlaces, PickledFormat):
    """The kernels of AMD's FlyDSL.

    Source: FlyDSL 0.5.0 (PyPI), ``flydsl/compiler/jit_{function,executor}.py``; checked against a kernel
    that it compiled for an absent GPU. A directory for each function has ``<64 hex>.pkl``, with the compiled
    module packed by zlib and the names of functions to call after it is loaded, and ``<64 hex>.lock``, which
    is held by flock(2). A file is written under a temporary name and renamed; a broken one is compiled again.
    """

    layout = Layout(
        [r"([a-z_]\w*)/([0-9a-f]{64})\.pkl", r"([a-z_]\w*)/([0-9a-f]{64})\.lock"],
        left=[Left(r"[a-z_]\w*/\.[0-9a-f]{64}\.pkl\.\w{8}\.tmp", sure=True)],
        key=lambda groups: groups[1] + hashed(groups[:1])[:8],
    )
    names = pickles.Names.of("FlyDSL", "flydsl\\.compiler\\.jit_executor:CompiledArtifact")
    wanted = {"key": "the 64 hex digits in a file's name, or the first of them"}
    key_digits = 72
    fails = "FlyDSL compiles the kernel again"
    opaque = "a name is a digest of the function's source, its arguments and the GPU, which no file repeats"

    def look(self, item: Files) -> CacheEntry:
        entry = super().look(item)._replace(program=item.parts[0])
        if item.names[0].endswith(".lock"):
            problem = Problem(FindingKind.ORPHAN, "its kernel is gone, and the lock stays")
            return entry._replace(artifact_kind="", damage=problem)
        return entry

    def pickled(self, data: bytes) -> Problem | None:
        """Those of the functions as well: Python's own are no kernel's, and a program's nobody can judge."""
        texts, problem = pickles.values(data, 1, self.names)
        named = (one for one in texts if isinstance(one, str) and _REFERENCE.fullmatch(one))
        strange = next((one for one in named if not one.startswith("flydsl.")), "")
        if problem or not strange:
            return problem
        pythons = strange.split(":")[0].partition(".")[0] in sys.stdlib_module_names
        kind = FindingKind.UNTRUSTED if pythons else FindingKind.UNSUPPORTED
        return Problem(kind, f"has FlyDSL call {printable(strange.encode())} when it is loaded")


_FILES = (
    r"lib\.so", r"(?:func_types|task)\.pickle",
    r"compile\.sh|\w+_output\.txt|source\.(?:cc|cu|hip)|candidates\.(?:txt|json)|meta\.json|task\.txt|version\.txt",
    r"\.lock",
)  # fmt: skip
_GRAPH = r"graphs/([0-9a-f]{16,64})"
_TASK = r"ops/((?:cpu|cuda|hip)_space_\d)/([a-z_]\w*)/([0-9a-f]{16,64})"


class Hidet(HidetPlaces, PickledFormat):
    """The operators that Hidet compiled.

    Source: hidet 0.6.1 (PyPI), ``hidet/option.py`` and ``hidet/drivers/build_{task,module}.py``; checked
    against files for a CPU. ``ops/`` has a directory for each configuration, task and hash, and
    ``ir_modules/`` one for each hash: ``lib.so``, ``func_types.pickle`` and more, built in place below a
    lock. They are loaded unchecked, and none is ever removed. ``graphs/`` has graphs with copies of their
    operators, which stay, as a graph without one of them may not load.
    """

    layout = Layout(
        [
            f"{place}/(?:{name})"
            for name in _FILES
            for place in (
                _TASK,
                "(ir_modules)/([0-9a-f]{16,64})",
                f"{_GRAPH}/(graph_module)",
                rf"{_GRAPH}/kernels/(\d+)",
            )
        ],
        own=[rf"{_GRAPH}/(?:\w+\.json|graph_string\.txt|weights\.npz|\.lock)"],
        signs=[_TASK, "graphs/[0-9a-f]{16,64}"],
        key=hashed,
    )
    names = pickles.Names.of(
        "Hidet",
        r"(?:tilus\.)?hidet\.(?:ir|graph)(?:\.\w+)*:_?[A-Z]\w*",
        r"numpy:dtype|numpy\.(?:_core|core)\.multiarray:scalar",
    )
    folders_removed = 1
    fails = "the program that loads it ends, at every start"
    opaque = "a name is a digest of a task, which Hidet keeps in task.txt"

    def stays(self, item: Files) -> str:
        return (
            "a graph without it may not load; remove the graph's directory"
            if item.parts[0] == "graphs"
            else ""
        )

    def look(self, item: Files) -> CacheEntry:
        whole = item.names[0] == "lib.so"
        problem = Problem(FindingKind.ORPHAN, f"it has no library, so {self.owner} builds it again")
        return self.entry(item)._replace(
            program="/".join(item.parts[:-1]),
            artifact_kind=PayloadKind.ELF.value if whole else "",
            damage=None if whole else problem,
            shows=whole,
        )


class Tilus(TilusPlaces, Hidet):
    """The programs that Tilus compiled, in libraries and pickles of Hidet's kind.

    Source: Tilus 0.2.0 (PyPI), ``tilus/drivers.py`` and ``tilus/option.py``; no file written on a GPU was
    available. ``programs/<12 hex>/`` has the text of a program and its options, which Tilus compares, and
    ``module/`` with the files. Below a checkout of Tilus it is ``.cache`` there.
    """

    layout = Layout(
        [f"programs/([0-9a-f]{{12}})/module/(?:{name})" for name in _FILES],
        own=[
            "scripts/",
            r"programs/[0-9a-f]{12}/(?:program\.txt|options\.txt|\.lock)",
            "programs/[0-9a-f]{12}/ir/",
        ],
        signs=["programs/[0-9a-f]{12}"],
        key=hashed,
    )
    opaque = "a name is a digest of the program and its options, which program.txt and options.txt have"
