"""The manual pages of section 7 (other caches, keys and misses, checks and batches, fleets), and what all
pages share: the form of their text, the examples of each verb, and the words of documents.

Owns their sentences. Places are read from the registry and reasons from the verdicts.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum
from typing import NamedTuple

from gpucache import __version__
from gpucache.answers.bench import BenchVerdict
from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.run import RunResult
from gpucache.answers.schema import words
from gpucache.answers.transfer import PullResult, PushResult
from gpucache.answers.warm import WarmResult
from gpucache.caches.registry import SYSTEMS, described, moves
from gpucache.errors import ExitCode

_ESCAPES = str.maketrans(
    {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}
)
_WIDTH = 72
_PLACEHOLDER = re.compile(r"[A-Z]{2,}")


def title(name: str, section: int, headline: str) -> Iterator[str]:
    """How a page begins; the headline is a phrase without a capital and a full stop."""
    yield f'.TH {escaped(name.upper())} {section} "" "gpucache {__version__}" "gpucache manual"'
    yield from (".nh", ".ad l", ".SH NAME")
    phrase = (headline[:1].lower() + headline[1:]).rstrip(".")
    yield rf"{escaped(name)} \- {escaped(phrase)}"


def heading(words: str) -> str:
    """The heading of a section."""
    return f".SH {escaped(words)}"


def subheading(words: str) -> str:
    """The heading of a part of a section."""
    return f".SS {escaped(words)}"


def synopsis(command: str, pieces: str) -> str:
    """A command in bold, with the placeholders for the user's words in italics."""
    arguments = _PLACEHOLDER.sub(r"\\fI\g<0>\\fR", escaped(pieces))
    return rf"\fB{escaped(command)}\fR {arguments}"


def paragraphs(texts: Iterable[str]) -> Iterator[str]:
    """Filled paragraphs."""
    for number, text in enumerate(texts):
        if number:
            yield ".PP"
        yield filled(text)


def verbatim(text: str) -> Iterator[str]:
    """Indented lines, as they are."""
    yield from (".PP", ".RS 4", ".nf", *(escaped(line) for line in text.splitlines()), ".fi", ".RE")


def listing(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Terms in bold, each with its meaning."""
    for term, meaning in rows:
        yield from (".TP", rf"\fB{escaped(term)}\fR", filled(meaning))


def options(rows: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Options as Click spells them, such as ``-j, --jobs N``: names in bold, values in italics."""
    for spelled, meaning in rows:
        *others, last = spelled.split(", ")
        name, _, value = last.partition(" ")
        bold = ", ".join(rf"\fB{escaped(one)}\fR" for one in (*others, name))
        yield from (".TP", rf"{bold} \fI{escaped(value)}\fR" if value else bold, filled(meaning))


def reference(name: str, section: int) -> str:
    """Another page."""
    return rf"\fB{escaped(name)}\fR({section})"


def see_also(pages: Sequence[tuple[str, int]]) -> Iterator[str]:
    """The section that names other pages."""
    yield from (heading("SEE ALSO"), ",\n".join(reference(*page) for page in pages))


def filled(text: str) -> str:
    """Text that a page may break as it likes."""
    return "\n".join(
        map(escaped, textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False))
    )


def escaped(text: str) -> str:
    """Text escaped so that roff prints it as it is."""
    plain = text.translate(_ESCAPES)
    return rf"\&{plain}" if plain.startswith(".") else plain


CACHES = "gpucache-caches"
KEYS = "gpucache-keys"
CHECKS = "gpucache-checks"
FLEET = "gpucache-fleet"
PAGES = ((CACHES, 7), (KEYS, 7), (CHECKS, 7), (FLEET, 7))

_OTHER_CACHES = (
    "gpucache inspect lists every cache that it knows on this machine, the largest first, and totals the "
    "stale entries: this environment has another driver or compiler, their Python was removed, or a newer "
    "version of the owning program replaced it, and nothing of theirs was used for 30 days. --cache NAME, "
    "--cache PLACE or --cache NAME:PLACE puts a verb on one cache, and --cache all on all of them.",
    "Nothing in a cache is ever loaded, unpickled or executed. A removal keeps to the rules and locks of the "
    "owner, and leaves files whose names are not the owner's.",
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
    "Programs that call NVRTC themselves under gpucache run have separate keys that "
    "include the source's base name, because a hit must return the same log and symbol names.",
    "Of a SPIR-V module every byte is in the key, also what follows its last instruction, and each "
    "specialization constant that was set: its number, its size and its bytes. A constant that is set to its "
    "default value makes another key than one that is not set.",
    "Every binary is checked against its checksum at each hit. A damaged entry is a miss.",
)
_OWNERS = (
    "With TRITON_CACHE_MANAGER=gpucache.triton:CacheManager Triton 3 keeps its kernels in this cache: all "
    "files of a kernel are one entry, published as one, checked at each hit, and looked up in "
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
    "On a miss, one process compiles; others that need the same key wait for it. The library returns the "
    "result at once, and a thread publishes the entry and logs the reason. Call "
    "gpucache.opencl.flush() or gpucache.cuda.flush() before os._exit, which "
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
_INDEXES = (
    "GPUCACHE_CHECK_INDEX(out, i) compares an index with the size that the queue knows of a buffer, without "
    "a number in the source; before a loop one check of its largest index is enough. It takes parameters of "
    "the kernel alone. To check every access of a kernel that nobody changed, for a single run, use "
    "Oclgrind, which interprets OpenCL kernels and is some 1,000 times slower, or NVIDIA's compute-sanitizer "
    "on a GPU."
)
_BATCH = (
    "Batch, in gpucache.opencl and gpucache.cuda, makes one program of many sources: one compile, one entry, "
    'one load. routine = batch.add(source, name="a.cl") compiles nothing; the first routine.kernel("a") '
    "compiles all sources that were added. The includes and functions with which all sources begin are in "
    "the program once. Sources that could change the meaning of each other, such as two that declare the "
    "same name, are compiled one by one, and the log names the conflict. With checks= each source still "
    "reports failures by its own name and lines.",
)

_FLEET = (
    "Recipes for many machines that share one store. Each is a whole script: STORE is the URL or the "
    "directory of the store, app.py your program, which gpucache run serves as it is.",
    "gpucache key fleet.key makes a pair of keys, once. FLEET_PUBLIC_KEY is the line that it prints, which "
    "every machine may know. FLEET_KEY is the line in fleet.key; only jobs that may push get it. With "
    "--shared other users can read a store in a directory; other stores have their own permissions.",
)
_IN_CI = (
    "A job takes what earlier jobs built, runs the program, and sends what is new. On a runner without the "
    "GPU that a program needs, use gpucache warm with a manifest, or with a recording from a machine that "
    "has one (gpucache-record(1)), in the place of gpucache run.",
)
CI_JOB = """\
export GPUCACHE_DIR="$PWD/cache"
export GPUCACHE_TRUSTED_KEYS="$FLEET_PUBLIC_KEY"
gpucache pull "$STORE" --best-effort
gpucache run -- python app.py
if [ -n "${FLEET_KEY:-}" ]; then
    trap 'rm -f fleet.key' EXIT
    (umask 077 && printf '%s\\n' "$FLEET_KEY" > fleet.key)
    gpucache push "$STORE" --key fleet.key --shared
fi"""
_OF_FORKS = (
    "Give the secret FLEET_KEY and the right to write to the store to jobs of protected branches alone. The "
    "job of a pull request from a fork has neither: it pulls, compiles what is new, and pushes nothing. "
    "Entries that no key of GPUCACHE_TRUSTED_KEYS signed are never used.",
)
_IN_A_POD = (
    "An init container fills a volume, and the program starts with hits. Both use the image of the program, "
    "as pull compares the compilers that it finds, run as one user, and mount the volume at /caches. Their "
    "root may be read-only, and the init container needs no network but the store's. It runs:",
)
INIT_CONTAINER = 'gpucache pull "$STORE" --cache all --to /caches --best-effort'
_STARTS = (
    "It has GPUCACHE_TRUSTED_KEYS set. The container of the program, which may mount the volume read-only, "
    "runs:"
)
MAIN_CONTAINER = """\
set -a; . /caches/gpucache.env; set +a
exec gpucache run -- python app.py"""
_ONLY_HITS = (
    "With GPUCACHE_REQUIRE=1 a build that misses fails, so a start that succeeds proves that nothing was "
    "compiled. Without it a program whose init container pulled nothing compiles as usual.",
)
_ON_NODES = (
    "Many nodes start at once, each with an empty disk, and ask the store for each program as they come to "
    "it. For sbatch:",
)
NODES_JOB = """\
#!/bin/sh
#SBATCH --nodes=64 --ntasks-per-node=1
export GPUCACHE_REMOTE="$STORE"
export GPUCACHE_TRUSTED_KEYS="$FLEET_PUBLIC_KEY"
export GPUCACHE_REMOTE_TIMEOUT_MS=10000 GPUCACHE_RUN_TIMEOUT_MS=40000
srun sh -c '
    export GPUCACHE_DIR="$TMPDIR/gpucache"
    exec gpucache run -- python app.py'"""
_LOAD = (
    "TMPDIR is a local disk of the node. A node asks for an entry with at most two small requests: 64 "
    "processes with 10 programs each made 1,280 requests for 3.8 MB, so one web server for a directory is "
    "enough (STORE=https://..., filled by its path). All nodes ask in the same seconds, so replies take "
    "longer than usual, hence the time limits.",
    "The ranks of an MPI program in Python need no store and no disk. Rank 0 builds, all call "
    "gpucache.restore(comm.bcast(gpucache.bundle() if comm.rank == 0 else None)), and their builds then hit "
    "in memory; restore writes nothing on their nodes. It serves gpucache.install(), gpucache.opencl and "
    "gpucache.cuda, not run.",
)

_PREEMPTED = (
    "A job on a node that may be taken away at any moment sends what it compiles while it runs, also of "
    "other systems such as Triton, so that the next node begins where it was. (Extra: remote.)",
)
PREEMPTED_JOB = """\
export GPUCACHE_TRUSTED_KEYS="$FLEET_PUBLIC_KEY"
gpucache pull "$STORE" --cache all --best-effort
exec gpucache run --push "$STORE" -- python app.py"""
_SIDECAR = (
    "The entries that appear within two seconds are checked, signed and sent together. 'gpucache push URL "
    "--cache all --follow' does the same in a container beside the job; it ends at SIGTERM, after the rest "
    "was sent. The key is that of GPUCACHE_SIGNING_KEY. Of 200 jobs that were killed at random moments, none "
    "lost an entry that was older than three seconds, in a store on the same machine.",
)
_KERNELS = (
    "The kernels of a server that uses Triton depend on the shapes of its requests, so starts of the server "
    "do not compile all of them, and the first real requests wait. Record a day of it on any GPU, and warm "
    "what was recorded in the image of each GPU, where none is needed:",
)
KERNELS_JOB = """\
gpucache record -o recording -- python app.py
gpucache warm --recording recording --target cuda:sm_100"""
_UPGRADED = (
    "After a driver's upgrade the first program of each kind compiles again. This unit of systemd and its "
    "path unit do that at the upgrade, for the user of the program; libcuda.so.1 stands for the library of "
    "your driver. It builds what was recorded, and what programs missed:",
)
UPGRADED_UNIT = """\
# /etc/systemd/system/gpucache-warm.service
[Service]
Type=oneshot
User=app
ExecStart=gpucache warm --misses --recording /var/lib/app/recording

# /etc/systemd/system/gpucache-warm.path
[Path]
PathChanged=/usr/lib/x86_64-linux-gnu/libcuda.so.1
[Install]
WantedBy=paths.target"""
_SNAPSHOTS = (
    "vLLM and SGLang can also start from a snapshot of a process that has finished its start: CRIU keeps "
    "the memory of the host, cuda-checkpoint that of the GPU. By their documents a snapshot skips loading "
    "weights, compiling and capturing graphs together, and fits one kind of GPU, driver, software and "
    "configuration, as it is the process itself. Choose it where many equal servers start often and every "
    "second counts; choose caches where GPUs, drivers or versions differ, where programs change, where the "
    "place for a snapshot of all memory is missing, and for training. Both go together: the start that is "
    "snapshotted happens after every change, and a cache makes it short. No snapshot was measured here.",
)

_BEFORE = (
    "gpucache devices --save FILE writes the profile of a machine. With profiles of all kinds of machines "
    "and the recordings of the programs, any machine tells before a deployment which would miss, and why:",
)
FLEET_CHECK = """\
gpucache warm --check --recording app --cache "$STORE" \\
    $(printf -- '--device-profile %s ' fleet/*.json)"""
_COMMANDS = (
    "It exits with 3 if any would miss, and prints the fewest commands that build all that is missing, each "
    "with the machines that have the compiler for it. Run each on one of them, then the push that it names, "
    "and check again. Save a profile with the variables of the job: a variable that reaches the compiler "
    "and that the recording lacks makes the check skip a program.",
)


class Failure(NamedTuple):
    """What goes wrong in a fleet, the words that gpucache prints, and the remedy."""

    what: str
    said: str
    """STORE stands for the store, KEY for the id of a key."""
    remedy: str


FAILURES = {
    "path": Failure(
        "A source is in another directory",
        "key-changed: it contains paths and was built in other directories",
        "Entries built with -lineinfo or -G contain the paths of headers. Use the same paths on all "
        "machines, or leave the option out. For other systems pull lists the entries whose install path "
        "differs.",
    ),
    "cpu": Failure(
        "The CPU of a machine differs",
        "key-changed: the CPU has other instruction sets",
        "Entries of OpenCL for CPUs fit one set of features, and pull leaves the others in the store. Push "
        "from a machine of each kind: entries for several kinds are kept side by side. gpucache warm --check "
        "--device-profile FILE says so before a deployment.",
    ),
    "user": Failure(
        "The init container runs as root, the program does not",
        "the cache root /caches/gpucache cannot be opened: Permission denied; fix its permissions, or name "
        "your own directory with --root or GPUCACHE_DIR",
        "Run both as one user, or set GPUCACHE_OWNER_UID in the init container to the uid of the program.",
    ),
    "volume": Failure(
        "The volume belongs to root, the init container does not run as root",
        "/caches/gpucache.env cannot be written (Permission denied); fix its permissions",
        "Let the volume belong to the user or a group of the containers, in Kubernetes by fsGroup.",
    ),
    "down": Failure(
        "The bucket is down",
        "STORE cannot be reached; check its address and the network, or the proxy",
        "The same with 'GPUCACHE_REMOTE is not used:' before it in a program, once in each process. Nothing "
        "else happens: with --best-effort pull exits 0, and programs compile. Start the job again later.",
    ),
    "slow": Failure(
        "The store is too slow",
        "GPUCACHE_REMOTE is not asked for a minute: waiting for STORE took",
        "The numbers follow: asking took a second more than its hits saved, so the process compiles. Raise "
        "both limits for starts of many nodes, as above.",
    ),
    "unsigned": Failure(
        "A job without the key pushed to a store that it may write to",
        ", which is not trusted; add the public key of the machine that pushed it to GPUCACHE_TRUSTED_KEYS",
        "Do not. The job signed with a key of its own. Pull takes the other entries and exits with 3, unless "
        "with --best-effort. Take the right to write there from forks.",
    ),
    "leaked": Failure(
        "A pull request has seen the key",
        "it is signed by the key KEY, which is not trusted",
        "This is what pull prints once FLEET_PUBLIC_KEY is that of a new pair on all machines, of each "
        "entry. Nothing that the old key signed is used any more. Push with the new key.",
    ),
    "readable": Failure(
        "The key file is readable by others",
        "other users may read the secret key fleet.key; run: chmod 600 fleet.key",
        "Write it below umask 077, as above.",
    ),
}


def pages() -> Iterator[tuple[str, Iterator[str]]]:
    """The lines of each page, by its name."""
    yield CACHES, _caches()
    yield KEYS, _keys()
    yield CHECKS, _checks()
    yield FLEET, _fleet()


def _caches() -> Iterator[str]:
    yield from title(CACHES, 7, "the compile caches that gpucache knows")
    yield heading("DESCRIPTION")
    yield from paragraphs(_OTHER_CACHES)
    yield heading("SYSTEMS")
    yield from listing((name, described(name)) for name in SYSTEMS)
    yield heading("MOVING")
    yield from paragraphs(_MOVING)
    yield from listing((name, moves(name)) for name in SYSTEMS)
    verbs = ("inspect", "evict", "export", "push", "pull")
    yield from see_also([(f"gpucache-{verb}", 1) for verb in verbs])


def _keys() -> Iterator[str]:
    yield from title(KEYS, 7, "the parts of a key, and the reasons of misses")
    yield heading("KEYS")
    yield from paragraphs((*_KEY, *_OWNERS))
    yield heading("MISSES")
    yield from paragraphs(_MISS)
    yield heading("REASONS")
    yield from listing(words(Verdict))
    yield from see_also([("gpucache-inspect", 1), ("gpucache-warm", 1), ("gpucache-run", 1)])


def _checks() -> Iterator[str]:
    yield from title(CHECKS, 7, "checks inside kernels, and batches of small programs")
    yield heading("CHECKS")
    yield from paragraphs(_CHECKS)
    yield from verbatim(KERNEL)
    yield from (".PP", filled(_LAUNCH))
    yield from verbatim(LAUNCHER)
    yield from (".PP", filled("The program ends with:"))
    yield from verbatim(FAILURE)
    yield from (".PP", filled(_INDEXES))
    yield heading("BATCHES")
    yield from paragraphs(_BATCH)
    yield from see_also([("gpucache-warm", 1), ("gpucache-bench", 1)])


def _fleet() -> Iterator[str]:
    yield from title(FLEET, 7, "recipes for many machines that share caches")
    yield heading("DESCRIPTION")
    yield from paragraphs(_FLEET)
    yield heading("CONTINUOUS INTEGRATION")
    yield from paragraphs(_IN_CI)
    yield from verbatim(CI_JOB)
    yield from (".PP", *paragraphs(_OF_FORKS))
    yield heading("CONTAINERS")
    yield from paragraphs(_IN_A_POD)
    yield from verbatim(INIT_CONTAINER)
    yield from (".PP", filled(_STARTS))
    yield from verbatim(MAIN_CONTAINER)
    yield from (".PP", *paragraphs(_ONLY_HITS))
    yield heading("NODES")
    yield from paragraphs(_ON_NODES)
    yield from verbatim(NODES_JOB)
    yield from (".PP", *paragraphs(_LOAD))
    yield heading("JOBS THAT MAY BE KILLED")
    yield from paragraphs(_PREEMPTED)
    yield from verbatim(PREEMPTED_JOB)
    yield from (".PP", *paragraphs(_SIDECAR))
    yield heading("KERNELS OF SERVERS")
    yield from paragraphs(_KERNELS)
    yield from verbatim(KERNELS_JOB)
    yield heading("UPGRADES OF DRIVERS")
    yield from paragraphs(_UPGRADED)
    yield from verbatim(UPGRADED_UNIT)
    yield heading("SNAPSHOTS OF ENGINES")
    yield from paragraphs(_SNAPSHOTS)
    yield heading("MACHINES THAT WOULD MISS")
    yield from paragraphs(_BEFORE)
    yield from verbatim(FLEET_CHECK)
    yield from (".PP", *paragraphs(_COMMANDS))
    yield heading("FAILURES")
    for what, said, remedy in FAILURES.values():
        yield from (*listing([(f"{what}:", said)]), ".IP", filled(remedy))
    yield from see_also([(f"gpucache-{verb}", 1) for verb in ("push", "pull", "key", "run", "warm")])


_STORE_UNUSABLE = "the store cannot be reached or refuses, or a cache cannot be used or only partly be read"
EXIT_CODES: dict[str, dict[ExitCode, str]] = {
    "push": {
        ExitCode.DONE: "the store has every entry that was selected, except those that are refused (RESULTS)",
        ExitCode.USAGE: "no such store, cache, entry or key file, or an extra that is not installed",
        ExitCode.FINDINGS: "an entry is damaged and was not sent, or the store has objects that are garbage",
        ExitCode.CACHE_UNUSABLE: _STORE_UNUSABLE,
    },
    "pull": {
        ExitCode.DONE: "the caches have every entry that fits the machine, also if none does; and whatever "
        "happens with --best-effort, unless the command line is wrong or the command is interrupted",
        ExitCode.USAGE: "the directory is not a store; no such cache or key; or an extra is not installed",
        ExitCode.FINDINGS: "an entry is not signed by a trusted key, is damaged or could not be written, or "
        "the store has objects that are garbage; all others were pulled",
        ExitCode.CACHE_UNUSABLE: f"there is no store at the URL, {_STORE_UNUSABLE}",
    },
    "key": {
        ExitCode.DONE: "both files were written, or the public key was printed",
        ExitCode.USAGE: "a file of that name exists or cannot be written; with --public, it is not a secret "
        "key or others may read it; or the extra 'remote' is not installed",
    },
}
"""By verb, its exit codes where they mean more than for all verbs; the common ones are not repeated."""

WORDS: dict[str, tuple[str, type[StrEnum]]] = {
    "warm": ("RESULTS", WarmResult),
    "inspect": ("VERDICTS", Verdict),
    "verify": ("FINDINGS", FindingKind),
    "run": ("RESULTS", RunResult),
    "bench": ("VERDICTS", BenchVerdict),
    "push": ("RESULTS", PushResult),
    "pull": ("RESULTS", PullResult),
}
"""The words in a verb's output, by verb and under their heading."""
