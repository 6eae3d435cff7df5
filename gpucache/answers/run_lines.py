"""The builds that a command requested, in one line, and the reasons why builds were not stored.

Owns the words. They go to stderr, as standard output is the command's.
"""

from itertools import pairwise, takewhile

from gpucache.units import format_count, format_duration, format_list, printable

TYPE_CHECKING = False  # the one of typing; a command waits for the imports of this module
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gpucache.answers.run import Ended, Intercepted, RunSummary

INNER = "an outer 'gpucache run' was not asked"
_UNSEEN = "no OpenCL, NVRTC or hipRTC build was seen"
NOT_STARTED = 127
_NO_ROOM = (
    "if a library says 'cannot allocate memory in static TLS block', it needs more room than there is with "
    "LD_AUDIT; raise glibc.rtld.optional_static_tls in GLIBC_TUNABLES, or run it with --no-nvrtc"
)
UNSEEN = f"{_UNSEEN}; gpucache-run(1) has reasons"
NOTHING_BUILT = "no build from source was seen"


def command_name(words: "Sequence[str]") -> str:
    """The name of a command: of Python that of its script or module, so that programs are told apart.

    ``native/run.c`` has the same in C.
    """
    name = words[0]
    if name.rpartition("/")[2].startswith("python"):
        before = ["", *takewhile(lambda word: word != "-c", words[1:])]
        own = (word for option, word in pairwise(before) if option not in ("-W", "-X"))  # they have a value
        name = next((word for word in own if not word.startswith("-")), name)
    return name.rpartition("/")[2] or name


def summary_line(summary: "RunSummary", *, inner: bool = False) -> str:
    """Builds, hits, misses and the time in builds, in one line; ``inner`` for a run within a run."""
    told = "; ".join(_parts(summary))
    return f"{told}; {INNER}" if inner else told


def unseen(ended: "Ended", binaries: int = 0) -> str:
    """The reason why no build of a command was seen; ``binaries`` counts programs loaded from binaries."""
    if ended.alone:
        return f"the command ran without gpucache: {ended.alone}"
    if ended.refused:
        return f"nothing was built as this user; {refused(ended)}"
    return unbuilt(ended.code, loaded=ended.loaded, binaries=binaries)


def unbuilt(code: int, *, loaded: bool, binaries: int = 0) -> str:
    """Why a command had no build: one that failed may have ended before its first."""
    if code == NOT_STARTED and not loaded:
        return f"{_UNSEEN}; {_NO_ROOM}"
    if not loaded:
        return f"{_UNSEEN} before the command ended with exit code {code}" if code else UNSEEN
    if code and not binaries:
        return f"{NOTHING_BUILT} before the command ended with exit code {code}"
    if binaries:
        made = format_count(
            binaries, "program was loaded from a binary", "programs were loaded from binaries"
        )
        return f"{NOTHING_BUILT}; {made}, for example from PyOpenCL's own cache"
    return f"{NOTHING_BUILT}; the program's own cache may have answered, or its OpenCL loader reads no layers"


def refused(ended: "Ended") -> str:
    return f"not answered, because it runs as another user: {format_list(ended.refused, 3)}"


def learning_line(noted: int) -> str:
    """A notice that --learn is about to build, and that it takes a while."""
    return (
        f"building {format_count(noted, 'program')} with all kernels for the next run; "
        "this takes up to two minutes for each, and Ctrl-C keeps what is built"
    )


def counted(builds: int, hits: int, build_ns: int, saved_ns: int, ahead_ns: int) -> "Iterator[str]":
    """The parts of the line that are numbers: all of the line, if every build was a hit."""
    yield f"{format_count(builds, 'build')}: {format_count(hits, 'hit')}, " + format_count(
        builds - hits, "miss", "misses"
    )
    took = format_duration(build_ns)
    # A late compiler's entries have all kernels; the command alone compiles those that it launches.
    plainly = f"{'up to ' if ahead_ns else ''}{format_duration(saved_ns)}"
    if saved_ns and hits == builds:
        yield f"{took} instead of {plainly}"
    else:
        yield f"{took} in builds"
        if saved_ns:
            yield f"the hits would have taken {plainly}"


def _parts(summary: "RunSummary") -> "Iterator[str]":
    missed = 0 if summary.builds else summary.missed  # else it may be one of the builds
    counts = (summary.within, "hit", "hits"), (missed, "miss", "misses")
    told = " and ".join(format_count(*one) for one in counts if one[0])
    within = f"{told} by gpucache in the program itself" if told else ""
    if not summary.builds and not summary.passed:
        yield within or unseen(summary.ended, summary.binaries)
        return
    if not summary.builds:
        yield f"{format_count(summary.passed, 'build')} not served"
    else:
        yield from counted(summary.builds, summary.hits, summary.build_ns, summary.saved_ns, summary.ahead_ns)
    if summary.learned:
        yield f"{summary.learned} of {summary.wanted} built for the next run"
    elif summary.wanted:
        again = summary.wanted - summary.noted
        more = f", {again} for more local sizes" if again > 0 else ""
        retry = " --retry" if summary.poisoned else ""  # without it warm leaves them out for a week
        yield f"'gpucache warm --misses{retry}' builds {summary.wanted} for the next run{more}"
    if summary.failed:
        yield f"{summary.failed} did not compile"
    if summary.refused:
        yield f"{summary.refused} failed because GPUCACHE_REQUIRE is set"
    if summary.passed and summary.builds:
        yield f"{summary.passed} not served"
    if within:
        yield within
    if summary.ended.refused:
        yield refused(summary.ended)


def reasons(outcomes: "Sequence[Intercepted]", *, whole: bool) -> "Iterator[str]":
    """Why builds were not stored or not served, each reason once; with ``whole`` every build that missed."""
    from gpucache.answers.console import few, named
    from gpucache.answers.run import RunResult

    if whole:
        for one in outcomes:
            if one.result is not RunResult.HIT:
                what = named(one.program or "a call", one.target)
                yield printable(f"{what}: {one.result}: {one.reason}", None)
        return
    done = {RunResult.LEFT: "kept", RunResult.PASSED: "served", RunResult.REFUSED: "built"}
    untold = (one for one in outcomes if one.result in done)
    told = (f"not {done[one.result]}: {printable(one.reason, None)}" for one in untold)
    yield from few(list(dict.fromkeys(told)), whole=False)
