"""The manual pages of section 7: other caches, keys and misses, checks and batches.

Owns their sentences. Places are read from the registry and reasons from the verdicts.
"""

from collections.abc import Iterator

from gpucache.answers.lookup import Verdict
from gpucache.answers.schema import words
from gpucache.caches.registry import SYSTEMS, described, moves
from gpucache.cli import roff

CACHES = "gpucache-caches"
KEYS = "gpucache-keys"
CHECKS = "gpucache-checks"
PAGES = ((CACHES, 7), (KEYS, 7), (CHECKS, 7))

_OTHER_CACHES = (
    "gpucache inspect lists every cache that it knows on this machine, the largest first, and totals the "
    "stale entries: their driver changed, their Python was removed, or a newer version of the owning program "
    "replaced it and they have been unused for a week. --cache NAME, --cache PLACE or --cache NAME:PLACE "
    "puts a verb on one cache, and --cache all on all of them.",
    "Nothing in a cache is ever loaded, unpickled or executed. A removal keeps to the rules and locks of the "
    "owner, and leaves files that the owner would not name so.",
    "Which keys and fields --why and --unlike understand depends on the system: inspect shows the fields of "
    "an entry. An application may keep its cache in another place; name that place.",
)
_MOVING = (
    "gpucache push sends entries to a store, and gpucache pull writes those that programs of another machine "
    "would hit. Pull compares the facts that decide about a hit, if the entry names them and the machine "
    "shows them, and lists those it could not compare. After a plain copy of the files programs often miss, "
    "or hit a wrong entry, as some entries contain their own path.",
    "For each system: whether its entries move, the facts they reveal to readers of the store, and the "
    "facts that pull cannot compare, so that you keep the machines alike in them.",
)
_KEY = (
    "A key is a digest of everything that can change the binary, and of nothing else: the source and every "
    "header that the compiler could read, by content and never by time or place; the options in their order; "
    "the device, the driver, and the compiler with its build; the environment variables and settings files "
    "that reach the compiler. On Linux 5.7 or newer, warm traces the files that the compiler opens, and "
    "refuses to cache a build that read a file its key does not cover.",
    "Moving or touching files changes no key, and neither do CR LF line ends. A build that embeds the paths "
    "of its headers (-lineinfo, -G, assert) or computes with them (sizeof(__FILE__)) is kept for their "
    "directories. The names of the headers that a program includes are remembered, so the next start "
    "compares them and searches nothing.",
    "Local sizes are not part of a key: a build with local sizes also serves programs that name none. They "
    "matter to compilers that build late: PoCL compiles again at the first launch with each new local size, "
    "unless warm or the program named that size.",
    "Programs that call NVRTC themselves under gpucache run have separate keys, because a hit returns "
    "the same log and symbol names, so the base name of the source is part of them.",
    "Every binary is checked against its checksum at each hit. A damaged entry is a miss.",
)
_OWNERS = (
    "With TRITON_CACHE_MANAGER=gpucache.triton:CacheManager Triton 3 keeps its kernels in this cache: all "
    "files of a kernel are one entry, published as one, checked at each hit, and asked for in "
    "GPUCACHE_REMOTE. Triton reads them from TRITON_CACHE_DIR, where the directory of a kernel appears "
    "complete or not at all. GPUCACHE_MAX_SIZE does not bound that directory; remove it or use gpucache "
    "evict --cache triton, and kernels still hit. Where nothing can be kept, Triton's own cache is used.",
    "After gpucache.cupy.install() CuPy 14 keeps its kernels in this cache. cuda.core does so with "
    "Program.compile(cache=gpucache.cuda.ProgramCache()).",
    "The keys of these three are opaque. An entry of Triton also has the target, the "
    "options and digests of source and installation: gpucache inspect shows them, gpucache inspect --why "
    "KEY KEY compares two kernels, and a miss names the differences from the nearest one.",
)
_MISS = (
    "A program that misses compiles in its own process, and only one of all processes that want the same key "
    "does so; the others wait for it. The library returns the result at once, and a thread publishes the "
    "entry and logs the reason. Call gpucache.opencl.flush() or gpucache.cuda.flush() before os._exit, which "
    "would lose the entry, or before the same process reads the log or the cache.",
    "PoCL takes seconds for a binary where the program itself starts in milliseconds. So the program builds "
    "plainly there, and the request is noted: gpucache warm --misses builds it for the next start, and "
    "GPUCACHE_LEARN=1 does so when the program has ended (not if it is process 1 of a container).",
    "warm compiles in separate processes. If a compiler crashes, hangs or runs out of memory, only that "
    "program fails; after two tries it is skipped for a week, or until its key changes, or until --retry.",
    "With GPUCACHE_REQUIRE=1 the first miss is an error that says the same. Below gpucache run and in an "
    "exported layer that build fails, and its log says why.",
)
_CHECKS = (
    "Kernels that include <gpucache/check.h> can check their own work. Checks compile to nothing unless they "
    "are enabled, by checks= in Python or by gpucache warm --checks: with async a kernel that starts after a "
    "failure returns at once, and the host looks on request; with sync the host looks after every launch. "
    "The header begins with the rules, also for barriers and device functions; python -c 'from "
    "gpucache.checks import INCLUDE; print(INCLUDE)' prints its directory.",
)
KERNEL = """\
#include <gpucache/check.h>
kernel void gather(
    GPUCACHE_CHECKED global int *where, global int *out, int n)
{
    GPUCACHE_BEGIN;
    int i = where[get_global_id(0)];
    GPUCACHE_CHECK(i >= 0 && i < n, "index %d of %d", i, n);
    out[get_global_id(0)] = i;
}"""
_LAUNCH = (
    "CheckedQueue (OpenCL) and CheckedStream (CUDA) launch such kernels with their own arguments, and report "
    "the first failure:"
)
LAUNCHER = """\
from pathlib import Path
import numpy, pyopencl
from gpucache.opencl import CheckedQueue, build_program

context = pyopencl.create_some_context(interactive=False)
program = build_program(
    context, Path("gather.cl").read_text(), name="gather.cl",
    checks="async", local_sizes=[(64,)],
)
flags = pyopencl.mem_flags
where = numpy.arange(1, 129, dtype=numpy.int32)  # one too far
index = pyopencl.Buffer(context, flags.COPY_HOST_PTR, hostbuf=where)
out = pyopencl.Buffer(context, flags.READ_WRITE, where.nbytes)
queue = CheckedQueue(pyopencl.CommandQueue(context))
sizes = (128,), (64,)
queue.launch(program.gather, *sizes, index, out, numpy.int32(128))
queue.synchronise()"""
FAILURE = """\
KernelCheckError: gather.cl, line 7: index 128 of 128
(kernel gather, work-item 127, 0, 0)"""
_BATCH = (
    "Batch, in gpucache.opencl and gpucache.cuda, makes one program of many sources: one compile, one entry, "
    'one load. routine = batch.add(source, name="a.cl") compiles nothing; the first routine.kernel("a") '
    "compiles all sources that were added. The includes and functions with which all sources begin are in "
    "the program once. Sources that could change the meaning of each other, such as two that declare the "
    "same name, are compiled one by one, and the log names the conflict. With checks= each source still "
    "reports failures by its own name and lines.",
)


def pages() -> Iterator[tuple[str, Iterator[str]]]:
    """The lines of each page, by its name."""
    yield CACHES, _caches()
    yield KEYS, _keys()
    yield CHECKS, _checks()


def _caches() -> Iterator[str]:
    yield from roff.title(CACHES, 7, "the compile caches that gpucache knows")
    yield roff.heading("DESCRIPTION")
    yield from roff.paragraphs(_OTHER_CACHES)
    yield roff.heading("SYSTEMS")
    yield from roff.listing((name, described(name)) for name in SYSTEMS)
    yield roff.heading("MOVING")
    yield from roff.paragraphs(_MOVING)
    yield from roff.listing((name, moves(name)) for name in SYSTEMS)
    verbs = ("inspect", "evict", "export", "push", "pull")
    yield from roff.see_also([(f"gpucache-{verb}", 1) for verb in verbs])


def _keys() -> Iterator[str]:
    yield from roff.title(KEYS, 7, "the parts of a key, and the reasons of misses")
    yield roff.heading("KEYS")
    yield from roff.paragraphs((*_KEY, *_OWNERS))
    yield roff.heading("MISSES")
    yield from roff.paragraphs(_MISS)
    yield roff.heading("REASONS")
    yield from roff.listing(words(Verdict))
    yield from roff.see_also([("gpucache-inspect", 1), ("gpucache-warm", 1), ("gpucache-run", 1)])


def _checks() -> Iterator[str]:
    yield from roff.title(CHECKS, 7, "checks inside kernels, and batches of small programs")
    yield roff.heading("CHECKS")
    yield from roff.paragraphs(_CHECKS)
    yield from roff.verbatim(KERNEL)
    yield from (".PP", roff.filled(_LAUNCH))
    yield from roff.verbatim(LAUNCHER)
    yield from (".PP", roff.filled("The program ends with:"))
    yield from roff.verbatim(FAILURE)
    yield roff.heading("BATCHES")
    yield from roff.paragraphs(_BATCH)
    yield from roff.see_also([("gpucache-warm", 1), ("gpucache-bench", 1)])
