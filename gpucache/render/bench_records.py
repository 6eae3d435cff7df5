"""The records of JSON documents that tell of starts: those of bench, and of a command that warms."""

from gpucache.answers.growth import Growth
from gpucache.outcomes.bench import (
    Arm,
    ArmResult,
    BenchCase,
    BenchVerdict,
    BreakEven,
    CachedPart,
    CheckedCase,
    CheckedMeans,
    Ratio,
    Sample,
    SettleRun,
    Spread,
)
from gpucache.render.records import CACHE, PROGRAM, VARIANT
from gpucache.render.schema import Key, Record, one_of, within
from gpucache.units import to_ms

_SPREAD = (
    Key("median_ms", "number", "The median start."),
    Key("low_ms", "number", "The fastest."),
    Key("high_ms", "number", "The slowest."),
    Key("runs", "number", "How many starts there were."),
    Key("outliers", "number", "How many of them lie far from the others."),
)
RECORDS = (
    Record(
        "case",
        "A program on a target, or a command, cold against warm.",
        (
            PROGRAM,
            Key("target", "text", "The target; empty for a command."),
            VARIANT,
            Key("verdict", "text", one_of(BenchVerdict) + "."),
            Key("reason", "text", "Why it is not faster; empty where it is."),
            Key("cold", "spread or null", "Starts with nothing cached."),
            Key("warm", "spread or null", "Starts with everything cached."),
            Key("ratio", "ratio or null", "Cold divided by warm."),
            Key("cached_part", "cached part or null", "The same of what a cache can change of a start."),
            Key("phases", "list of phase", "The parts of a start, in order."),
            Key("arms", "list of arm", "The other starts that were timed."),
            Key("break_even", "break-even or null", "After how many starts warming has paid."),
            Key(
                "notes",
                "list of text",
                "What else is worth knowing, a sentence each.",
                lambda one: (*one.caveats, *one.notes),
            ),
            Key("growth", "list of growth", "What a cold start writes into which cache."),
            Key("interrupted", "true or false", "Whether it was stopped before all was measured."),
            Key("redirects", "table of text", "The variables that put caches elsewhere."),
            Key("samples", "list of sample", "Every start, in the order they were taken."),
        ),
        BenchCase,
    ),
    Record("spread", "How long some starts took, in milliseconds.", _SPREAD, Spread),
    Record(
        "ratio",
        "One kind of starts divided by another, pair by pair.",
        (
            Key("median", "number", "The median of the pairs."),
            Key("low", "number", "The low end of its 95 % interval."),
            Key("high", "number", "The high end."),
        ),
        Ratio,
    ),
    Record(
        "cached part",
        "The phases of starts that a cache can change: all but starting the process and making a context.",
        (
            Key("cold", "spread", "With nothing cached."),
            Key("warm", "spread", "With everything cached, or as the arm finds it."),
            Key("ratio", "ratio", "Cold divided by warm."),
        ),
        CachedPart,
    ),
    Record(
        "checked kernel",
        "A kernel of the suite on one target, without checks and with them.",
        (
            Key("target", "text", "The target."),
            Key("kernel", "text", "The kernel; empty where the target failed."),
            Key("kind", "text", "What is typical of it."),
            Key("runs", "number", "Samples of each mode."),
            Key(
                "none_ms",
                "number or null",
                "The median without checks.",
                lambda one: None if one.error else one.none_ns,
            ),
            Key("sync", "ratio or null", "The mode sync divided by none."),
            Key("async", "ratio or null", "The mode async divided by none.", "asynchronous"),
            Key("error", "text", "Why the target was not timed; empty where it was."),
        ),
        CheckedCase,
    ),
    Record(
        "checked mean",
        "How many times as long kernels take with checks.",
        (
            Key("target", "text", "The target."),
            Key("sync", "number", "In the mode sync."),
            Key("async", "number", "In the mode async.", "asynchronous"),
        ),
        CheckedMeans,
    ),
    Record(
        "run",
        "A run of a command that warms caches.",
        (
            Key("run", "number", "Which run, from 1.", "number"),
            Key("duration_ms", "number", "How long it took."),
            Key("added", "list of growth", "What it added to which cache.", "growth"),
            Key("error", "text or null", "Why it failed."),
        ),
        SettleRun,
    ),
    Record(
        "growth",
        "What a cache gained.",
        (
            CACHE,
            Key("entries", "number", "Entries that were not there."),
            Key("size_bytes", "number", "Bytes that were not there."),
            Key("names", "list of text", "Some of the entries."),
        ),
        Growth,
    ),
    Record(
        "phase",
        "A part of a start.",
        (
            Key("phase", "text", "Its name, such as compile.", "0"),
            Key("cold_ms", "number or null", "Its median in cold starts.", "1"),
            Key("warm_ms", "number or null", "Its median in warm starts.", "2"),
        ),
    ),
    Record(
        "arm",
        "Starts beside the cold and the warm ones.",
        (
            Key("arm", "text", f"What they find cached, and by whom: {one_of(Arm)}, or a peer of --against."),
            *within("spread", _SPREAD),
            Key("ratio", "ratio", "Cold starts divided by these."),
            Key("cached_part", "cached part or null", "The same of what a cache can change of a start."),
            Key("reason", "text", "Why they are not what they seem to be; empty where they are."),
        ),
        ArmResult,
    ),
    Record(
        "break-even",
        "What warming costs and saves.",
        (
            Key("warming_ms", "number", "What warming cost."),
            Key("saving_ms", "number", "What each warm start saves."),
            Key("starts", "number", "After how many starts it has paid."),
        ),
        BreakEven,
    ),
    Record(
        "sample",
        "One start.",
        (
            Key("arm", "text", f"What it finds cached, and by whom: {one_of(Arm)}, or a peer of --against."),
            Key("total_ms", "number", "How long it took."),
            Key(
                "phases",
                "table of number",
                "How long each part took, in milliseconds.",
                lambda one: {name: to_ms(ns) for name, ns in one.phases},
            ),
            Key("hit", "true or false", "Whether our own cache answered."),
            Key("missed", "text or null", "Why our own cache did not answer, where it was asked."),
            Key("growth", "list of growth", "What it wrote into which cache."),
            Key("output", "text or null", "SHA-256 of what it printed, with --same-output."),
            Key("error", "text or null", "Why it failed."),
        ),
        Sample,
    ),
)
