"""What each way of asking is answered with: the records of its outcomes, and the keys of its summary.

The other half of the schema; see there.
"""

from dataclasses import dataclass

from gpucache.answers.evict import EvictSummary, Foreseen
from gpucache.answers.layer import LayerSummary
from gpucache.answers.record import RecordingSummary, RecordSummary
from gpucache.answers.run import RunSummary
from gpucache.answers.verify import VerifySummary
from gpucache.answers.warm import WarmResult, WarmSummary
from gpucache.outcomes.bench import BenchVerdict, SettleSummary
from gpucache.render import bench_records, layer_records, recording_records, records, run_records
from gpucache.render.records import STATE
from gpucache.render.schema import SCHEMA, Key

RECORDS = (
    *records.RECORDS,
    *bench_records.RECORDS,
    *recording_records.RECORDS,
    *run_records.RECORDS,
    *layer_records.RECORDS,
)


@dataclass(frozen=True, slots=True)
class Answered:
    """What one way of asking is answered with: a record for each outcome, and the keys of the summary."""

    asked: str
    """As on the command line."""
    outcome: str
    """The record's name; empty where there is no outcome."""
    meaning: str
    summary: tuple[Key, ...]


_UNREAD = Key("unread", "list of text", "Why not all of the caches could be read, a sentence each; exit 5.")
_FREED = (
    Key("removed", "number", "Entries that are gone."),
    Key("freed_bytes", "number", "What that freed."),
    Key("kept", "number", "Entries that stay."),
    Key("kept_bytes", "number", "What they take."),
    Key("left", "list of text", "What --all leaves in the caches besides entries, a sentence each."),
    _UNREAD,
)
_FORESEEN = (
    Key("would_remove", "number", "Entries that would go."),
    Key("would_free_bytes", "number", "What that would free."),
    *_FREED,
)
_FOUND = (
    Key("entries", "number", "How many there are."),
    Key("size_bytes", "number", "What they take together."),
    _UNREAD,
)
_WARMED = (
    *(
        Key(result.value, "number", f"Items whose result is {result.value}.", f"counts.{result}")
        for result in WarmResult
    ),
    Key("compile_ms", "number", "What was spent on compiling."),
    Key("size_bytes", "number", "What the entries take together."),
)
_SETTLED = (
    Key("runs", "number", "How many runs there were."),
    Key("settled", "true or false", "Whether the last run added nothing."),
    Key("failed", "text or null", "Why a run failed."),
    Key("added", "list of growth", "All that was added to each cache.", "growth"),
    Key("restless", "list of growth", "What the last run still added."),
    Key("environment", "table of text", "With --into: the variables that lead a program there."),
    Key("missed", "list of text", "What was not moved, or that nothing was warmed; exit code 3."),
    Key("notes", "list of text", "What else is worth knowing, a sentence each."),
)
_VERIFIED = (
    Key("checked", "number", "Entries that were checked."),
    Key("sound", "number", "Those with nothing wrong."),
    Key("without_checksum", "number", "Those of the sound ones of which only the form could be checked."),
    Key("findings", "number", "Findings of every kind."),
    Key("wrong", "number", "Those that give exit 3."),
    Key("repaired", "number", "Those that --repair mended."),
    Key("notes", "list of note", "What was tried and could not be told."),
    Key("unchecked", "list of note", "What could not be checked, for a reason outside of it."),
    _UNREAD,
)
_RECORDED = (
    Key("builds", "number", "How many there are."),
    Key("programs", "number", "How many sources, each under its name."),
    Key("targets", "number", "How many targets they were built for."),
    Key("failed", "number", "Builds that did not compile."),
    Key("compile_ms", "number", "What all of them took together."),
    Key("without_sources", "number", "Builds of which the recording holds digests alone."),
    Key("damage", "list of passed over", "What does not read."),
)
_ASKED = (
    Key("asked", "number", "How many were asked about."),
    Key("hits", "number", "How many would be found."),
    Key("misses", "number", "How many would not."),
)

SUMMARIES: dict[str | type, tuple[Key, ...]] = {
    WarmSummary: _WARMED,
    SettleSummary: _SETTLED,
    VerifySummary: _VERIFIED,
    EvictSummary: _FREED,
    Foreseen: _FORESEEN,
    RecordingSummary: _RECORDED,
    RecordSummary: recording_records.SUMMARY,
    RunSummary: run_records.SUMMARY,
    LayerSummary: layer_records.SUMMARY,
}
"""The keys of summaries that are made of one value, by its type."""
ANSWERS = (
    Answered(
        "devices",
        "target",
        "Devices and compilers.",
        (
            Key("targets", "number", "Targets that can be built for."),
            Key("devices", "number", "Those of them whose devices are here."),
            Key("errors", "number", "Drivers and compilers that are broken."),
        ),
    ),
    Answered(
        "devices --compare A B",
        "target difference",
        "What would split a cache of both machines.",
        (Key("differences", "number", "How many there are."),),
    ),
    Answered(
        "warm",
        "item",
        "Every program for every target, with --check likewise.",
        _WARMED,
    ),
    Answered(
        "warm -- COMMAND",
        "run",
        "Every run of the command.",
        _SETTLED,
    ),
    Answered(
        "run -- COMMAND",
        "command build",
        "Every build that the command asked for, on standard error or in the file of --report.",
        run_records.SUMMARY,
    ),
    Answered(
        "record -- COMMAND",
        "unrecorded builds",
        "What was not recorded, on standard error.",
        recording_records.SUMMARY,
    ),
    Answered(
        "inspect",
        "",
        "The state of our own cache is the summary.",
        (
            *STATE,
            Key("advice", "list of advice", "What its keys suffer from."),
            Key("misses", "list of miss", "The last misses, newest first."),
            Key("processes", "list of process", "What the last processes counted, newest first."),
            Key("caches", "list of state", "The caches of others."),
            Key("total_bytes", "number", "Bytes of all of these."),
            Key("total_stale_bytes", "number", "Those of them that nobody here reads again."),
            _UNREAD,
        ),
    ),
    Answered(
        "inspect --cache NAME",
        "",
        "The caches of others.",
        (Key("caches", "list of state", "The caches that were named."), _UNREAD),
    ),
    Answered("inspect --list", "entry", "Every entry.", _FOUND),
    Answered("inspect WHAT", "whole entry", "The entries that are named; a damaged one as entry.", _FOUND),
    Answered(
        "inspect --misses",
        "miss",
        "The last misses, newest first.",
        (Key("count", "number", "How many there are."),),
    ),
    Answered("inspect --watch", "written entry", "Every entry as it is written: lines, and no document.", ()),
    Answered("inspect --recording DIR", "recorded build", "Every build that was recorded.", _RECORDED),
    Answered("inspect --why SOURCE", "answer", "Every program for every target.", _ASKED),
    Answered(
        "inspect --why KEY KEY",
        "difference",
        "What two entries differ in.",
        (
            Key("left", "text", "The key of the first."),
            Key("right", "text", "The key of the second."),
            Key("differences", "number", "How many there are."),
        ),
    ),
    Answered("inspect --why --want FIELD=VALUE", "reach", "Every cache that was asked.", _ASKED),
    Answered(
        "inspect WHAT --extract FILE",
        "entry",
        "The entry whose bytes were written.",
        (Key("file", "text", "The file."), Key("size_bytes", "number", "Its size.")),
    ),
    Answered(
        "verify",
        "finding",
        "What was found; nothing where all is sound.",
        _VERIFIED,
    ),
    Answered(
        "evict --dry-run",
        "removal",
        "What would go.",
        _FORESEEN,
    ),
    Answered("evict", "removal", "What was to go.", _FREED),
    Answered(
        "bench",
        "case",
        "Every program for every target, or the command.",
        (
            Key("cases", "number", "How many there are."),
            *(
                Key(verdict.value.replace("-", "_"), "number", f"Cases whose verdict is {verdict.value}.")
                for verdict in BenchVerdict
            ),
            Key("fail_below", "number or null", "What --fail-below asked for."),
            Key("below", "list of text", "What falls short of it, a sentence each."),
        ),
    ),
    Answered(
        "bench --checks",
        "checked kernel",
        "What checks inside kernels cost.",
        (
            Key("means", "list of checked mean", "The geometric mean over the kernels of each target."),
            Key("paper_sync", "list of number", "The range of the means in Henriksen's paper of 2021, sync."),
            Key("paper_async", "list of number", "The same for async."),
        ),
    ),
    Answered(
        "export FORMAT OUT SOURCE",
        "exported file",
        "The file that was written.",
        (Key("entries", "number", "Entries in it."),),
    ),
    Answered(
        "export layer OUT -- COMMAND",
        "layer build",
        "Every build that the command asked for, on standard error.",
        layer_records.SUMMARY,
    ),
)
"""Every way of asking, with what is answered."""

DOCUMENT = (
    Key(
        "schema",
        "number",
        f"The version of these names: {SCHEMA}. Another when a key goes or changes its meaning.",
    ),
    Key("command", "text", "The verb."),
    Key("outcomes", "list of anything", "A record for each thing that the verb did or found."),
    Key("summary", "table of anything", "The whole in numbers."),
)
ERROR = (
    Key("message", "text", "One sentence."),
    Key("exit_code", "number", "What the process ends with."),
)
"""What stands under ``error`` where a command could not run; outcomes and summary are empty then."""
