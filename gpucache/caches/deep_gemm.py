"""DeepGEMM's cache: a directory for each kernel, with its CUDA source and the cubin built from it.

Source: DeepGEMM of June 2026, ``csrc/jit/compiler.hpp`` and ``csrc/jit/kernel_runtime.hpp``, and 1.0,
``deep_gemm/jit/compiler.py``; it compiles only for the present GPU, and no cache written by it was available.
``cache/kernel.NAME.DIGITS/`` contains ``kernel.cu`` and ``kernel.cubin``, and further files that variables
request; 1.0 had a library, ``kernel.so``, and ``kernel.args``. The digits are a hash of name, compiler,
options and source, of which only the source is stored. A directory is created below ``tmp/`` and renamed; no
lock is taken, nothing has a checksum, and nothing is ever removed. A directory without source or cubin ends
every program that requests its kernel, and so does a cubin that the driver cannot load.
"""

from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.binary_format import BinaryFormat
from gpucache.caches.files import Files
from gpucache.caches.layout import Layout, Left
from gpucache.keys import digest
from gpucache.payload import PayloadKind

_FOLDER = r"cache/kernel\.\w+\.([0-9a-f]{32}|[0-9a-f]{12})"
_NEEDED = (("kernel.cu", "kernel.cubin"), ("kernel.cu", "kernel.so", "kernel.args"))
"""The files that a directory must contain, today and in 1.0."""
_SOURCE_BYTES = 16 << 20


class DeepGemm(BinaryFormat, of="deep-gemm"):
    """The matrix products that DeepGEMM compiled, for itself and for servers of language models above it."""

    layout = Layout(
        [rf"{_FOLDER}/kernel\.(?:cubin|so)", rf"{_FOLDER}/kernel\.(?:cu|args|ptx|sass)"],
        left=[
            Left(r"tmp/(?P<pid>\d+)(?:-[0-9a-f]{8}){3}/kernel\.(?:cubin|cu)"),
            Left(r"tmp/(?:nvcc|file)\.tmp\.[0-9a-f-]{36}\.[0-9a-f]{12}.*", sure=True),
        ],
        signs=[_FOLDER, "tmp/.+-.+"],
    )
    folders_removed = 1
    bare = "ends every program that asks for its kernel"
    opaque = (
        "an entry keeps its source, but not the compiler and the options that are in the key as well; "
        "compare the sources of two entries, or set DG_JIT_DEBUG=1"
    )
    kinds = frozenset({PayloadKind.CUBIN, PayloadKind.ELF})
    consequence = "DeepGEMM loads it nevertheless, so the program ends with an error at every start"

    def look(self, item: Files) -> CacheEntry:
        name = item.parts[-1].split(".")[1]
        if problem := _missing(item):
            return self.entry(item)._replace(program=name, damage=problem)
        return super().look(item)._replace(program=name)

    def check(self, item: Files) -> Iterator[Problem]:
        if problem := _missing(item):
            yield problem
        else:
            yield from super().check(item)

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        """A digest of the source; two entries of a kernel with equal digests differ in inputs not stored."""
        source = digest(item.read("kernel.cu", _SOURCE_BYTES)) if "kernel.cu" in item.seen else "it is gone"
        yield "kernel", entry.program
        yield "SHA-256 of the source", source
        yield "compiler and options", "not stored by DeepGEMM"


def _missing(item: Files) -> Problem | None:
    needed = _NEEDED["kernel.so" in item.seen or "kernel.args" in item.seen]
    gone = next((name for name in needed if name not in item.seen), "")
    if not gone:
        return None
    detail = (
        f"{gone} is gone, at which DeepGEMM ends the program at every start ('Corrupted JIT cache directory')"
    )
    return Problem(FindingKind.TRUNCATED, detail)
