"""The records of JSON documents, but those that tell of starts: every key in its order."""

from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind
from gpucache.answers.evict import EvictOutcome
from gpucache.answers.export import Exported
from gpucache.answers.inspect import Advice, AdviceKind, CacheState, Written
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Finding, Note
from gpucache.answers.warm import WarmOutcome, WarmResult
from gpucache.answers.why import Answer, Build, Reach, Reply, ReplyState, Served, TargetDifference
from gpucache.keys import Difference
from gpucache.model import Device, KeyField
from gpucache.render.schema import Key, Record, one_of, within

PROGRAM = Key("program", "text", "The program's name.")
VARIANT = Key(
    "variant",
    "text",
    "What tells it from other builds of the program, such as T=float; with warm --misses the noted key, "
    "with warm --recording the first digits of what was recorded.",
)
CACHE = Key("cache", "text", "The cache's name, as --cache takes it.")
_SIZE = Key("size_bytes", "number", "Bytes on disk.")
_DIFFERENCE = (
    Key("field", "text", "The key field, such as define N.", "label"),
    Key(
        "before",
        "text or null",
        "Its value in the nearest or first entry; null where it is not there.",
        "left",
        blank=True,
    ),
    Key(
        "now",
        "text or null",
        "Its value now or in the second entry; null where it is not there.",
        "right",
        blank=True,
    ),
)
_DIFFERENCES = Key("differences", "list of difference", "The key fields that differ from the nearest entry.")
_ENTRY = (
    CACHE,
    Key("key", "text", "The cache key, or what the cache's owner calls the entry by."),
    PROGRAM,
    Key("target", "text", "The target; empty where the cache does not tell."),
    VARIANT,
    Key("artifact_kind", "text", "What was compiled: cubin, ptx, opencl-binary and others."),
    _SIZE,
    Key("created", "text", "When it was written, in UTC: 2026-11-21T22:31:01Z.", "created_ns"),
    Key("last_used", "text", "When it was last used, likewise.", "last_used_ns"),
    Key("path", "text", "Its file, or the file it is a part of."),
    Key("damage", "text or null", "Why it cannot be read."),
    Key(
        "fields", "table of text", "The key fields that a scan reads, by name; what evict --unlike compares."
    ),
)
STATE = (
    *within("location", [CACHE]),
    Key("root", "text", "Where it lives; empty where no place is known.", "location.root"),
    Key(
        "decided_by",
        "text",
        "What named that place: an option, a variable, or default.",
        "location.decided_by",
    ),
    Key("enabled", "true or false", "Whether its owner uses it.", "location.enabled"),
    Key("limit_bytes", "number or null", "The bound that its owner keeps.", "location.limit_bytes"),
    Key("problems", "list of text", "What is wrong with the place, a sentence each.", "location.problems"),
    Key("entries", "number", "Entries in it."),
    _SIZE,
    Key("files", "number", "Files of entries."),
    Key("programs", "number", "Programs that the entries are of."),
    Key("damaged", "number", "Entries that cannot be read."),
    Key("role", "text", "Which of a system's caches it is; empty where there is one.", "location.role"),
    Key("findings", "list of text", "What a scan sees wrong, a sentence each."),
    Key(
        "stale_entries",
        "number or null",
        "Entries that nobody here reads again, which evict --stale removes; null where that was not asked.",
        "stale.entries",
    ),
    Key("stale_bytes", "number or null", "Their bytes.", "stale.size_bytes"),
    Key("stale_why", "list of text", "Why nobody does, a clause each.", "stale.why"),
    Key("beside_bytes", "number", "Of our own cache: what records and leftovers take beside the entries."),
)

RECORDS = (
    Record(
        "target",
        "A device or compiler of devices.",
        (
            Key("target", "text or null", "What --target takes; null where a driver is broken."),
            Key("backend", "text", "opencl or cuda."),
            Key("name", "text", "The device's own name."),
            Key("driver_version", "text", "The driver's version."),
            Key("available", "true or false", "Whether programs can be compiled for it here."),
            Key("present", "true or false", "Whether the device itself is here."),
            Key("detail", "text", "What it is in words, or why it is not available."),
            Key(
                "toolchain",
                "table of text or null",
                "The key fields of the compiler, by name.",
                "toolchain.fields",
            ),
        ),
        Device,
    ),
    Record(
        "item",
        "A program for a target, as warm left it.",
        (
            Key("result", "text", f"What became of it: {one_of(WarmResult)}."),
            PROGRAM,
            Key("target", "text or null", "The target; null where none could be chosen."),
            VARIANT,
            Key("key", "text or null", "The cache key; null where none could be made."),
            Key("compile_ms", "number or null", "How long compiling took, now or when it was built."),
            Key("size_bytes", "number or null", "Bytes of its entry."),
            Key("verdict", "text or null", f"Why it was not found: {one_of(Verdict)}."),
            Key("reason", "text", "The same as a sentence, or why it failed."),
            Key("lacks_kernels", "true or false", "Whether nothing in the artifact can be launched."),
            Key("log", "text", "What the compiler said."),
        ),
        WarmOutcome,
    ),
    Record(
        "written entry",
        "An entry that was just written; with --watch each is a line of its own.",
        (
            *within("entry", _ENTRY),
            Key("root", "text", "Where its cache lies."),
            Key("when", "text", "When that was seen, in UTC.", "when_ns"),
            Key("writers", "table of text", "Who still had it open for writing: commands by process."),
            Key(
                "before_bytes", "number or null", "The size of an entry that grew, before; null if it is new."
            ),
        ),
        Written,
    ),
    Record("state", "A cache and its place.", STATE, CacheState),
    Record("entry", "An entry of a cache.", _ENTRY, CacheEntry),
    Record(
        "whole entry",
        "An entry with everything it stores about itself.",
        (
            *within("entry", _ENTRY),
            Key("key_fields", "list of key field", "Everything that could change the binary, in order."),
            Key("payload", "table of text", "What the bytes say of themselves."),
            Key(
                "provenance",
                "list of key field",
                "Where it came from, which is not part of the key.",
                lambda one: [KeyField(*pair) for pair in one.provenance],
            ),
            Key("compile_ms", "number or null", "How long compiling took."),
            Key("build_log", "text", "What the compiler said."),
            Key("tool_version", "text", "The version of gpucache that wrote it."),
            Key("lowered_names", "table of text", "The symbol of each name expression."),
            Key(
                "local_sizes",
                "list of text",
                "The local sizes it is compiled for, such as 16x16.",
                lambda one: ["x".join(map(str, size)) for size in one.local_sizes],
            ),
            Key("checks", "text or null", "Its checks: none, sync or async; null where none can be."),
            Key(
                "failure_table",
                "list of check",
                "The checks that were compiled in, by their codes.",
                lambda one: list(enumerate(one.failures)),
            ),
        ),
        EntryReport,
    ),
    Record(
        "check",
        "A check in a kernel, of which a failure tells the code.",
        (
            Key("code", "number", "Its number, from 0.", "0"),
            Key(
                "file", "text or null", "What a #line calls its file; null for the program itself.", "1.file"
            ),
            Key("line", "number", "Its line in that.", "1.line"),
            Key(
                "function",
                "text or null",
                "The kernel or device function that it stands in, where it is known.",
                "1.function",
            ),
            Key("message", "text", "The format of its message; empty where it has none.", "1.message"),
        ),
    ),
    Record(
        "key field",
        "A name and a value.",
        (Key("label", "text", "Its name."), Key("value", "text", "Its value.")),
        KeyField,
    ),
    Record("difference", "A key field that differs.", _DIFFERENCE, Difference),
    Record(
        "target difference",
        "A key field that differs between two machines.",
        (Key("target", "text", "The target it is a field of."), *within("difference", _DIFFERENCE)),
        TargetDifference,
    ),
    Record(
        "answer",
        "Whether a program would be found, and if not why.",
        (
            PROGRAM,
            Key("target", "text or null", "The target; null where none could be chosen."),
            VARIANT,
            Key("consulted", "list of text", "The roots that were asked, in order."),
            Key(
                "not_asked",
                "list of text",
                "Why a root that is named was not asked, a sentence each.",
                lambda one: [sentence for _, sentence in one.not_asked],
            ),
            Key("verdict", "text", f"hit, or {one_of(Verdict)}.", "found.verdict"),
            Key("detail", "text", "The verdict as a sentence; empty for a hit.", "miss.detail"),
            *within("miss", [_DIFFERENCES]),
            Key(
                "key",
                "text or null",
                "The key of the entry that would be used.",
                lambda one: one.found.key if one.hit else None,
            ),
            Key("nearest", "text or null", "The key of the entry that differs least.", "miss.nearest"),
            Key("written", "list of build", "What was built under this name for the target, newest first."),
            Key("under_run", "list of build", "Those of them for programs that call NVRTC themselves."),
            Key(
                "directory",
                "text or null",
                "Where the program is taken to run, if its compiler finds files there.",
            ),
            Key(
                "elsewhere",
                "text or null",
                "The verdict for one that runs elsewhere, where directory is not null.",
                "elsewhere.verdict",
            ),
            Key("layers", "list of layer", "The caches below ours that the program passes."),
        ),
        Answer,
    ),
    Record(
        "build",
        "An entry that was built.",
        (Key("key", "text", "Its key."), Key("created", "text", "When.", "created_ns")),
        Build,
    ),
    Record(
        "layer",
        "A cache that a program passes on its way to the compiler.",
        (
            CACHE,
            Key("state", "text", f"What it does: {one_of(ReplyState)}."),
            Key("detail", "text", "The same as a sentence."),
        ),
        Reply,
    ),
    Record(
        "reach",
        "Whether another system's cache would answer what --want says.",
        (
            CACHE,
            Key("wanted", "text", "What was asked for, in a few words."),
            Key("verdict", "text", f"{one_of(Served, Verdict)}; a false-hit was made from other inputs."),
            Key("detail", "text", "The verdict as a sentence."),
            Key("nearest", "text or null", "The key of the entry that was found, or of the nearest."),
            _DIFFERENCES,
        ),
        Reach,
    ),
    Record(
        "miss",
        "A miss as it was written down.",
        (
            Key("kind", "text", "Always miss."),
            Key("when_ns", "number", "When, in nanoseconds since 1970."),
            PROGRAM,
            Key("target", "text", "The target."),
            Key("key", "text", "The cache key that was not found."),
            Key("verdict", "text", one_of(Verdict) + "."),
            Key("detail", "text", "The verdict as a sentence."),
            Key(
                "differences",
                "list of recorded difference",
                "What differs from the nearest entry; at most 8.",
            ),
            Key("command", "text", "The program that asked."),
            Key("pid", "number", "Its process."),
            Key("noted", "true or false", "Whether it was left for warm --misses."),
        ),
    ),
    Record(
        "recorded difference",
        "A key field that differs, as it was written down.",
        (
            Key("label", "text", "The key field."),
            Key("left", "text or null", "Its value in the nearest entry."),
            Key("right", "text or null", "Its value in the program that missed."),
        ),
    ),
    Record(
        "process",
        "What a process counted.",
        (
            Key("kind", "text", "Always process."),
            Key("when_ns", "number", "When it ended, in nanoseconds since 1970."),
            Key("command", "text", "The program."),
            Key("pid", "number", "Its process."),
            Key("hits", "number", "What it found."),
            Key("misses", "number", "What it did not find."),
        ),
    ),
    Record(
        "advice",
        "What the keys of a program suffer from.",
        (
            Key("kind", "text", one_of(AdviceKind) + "."),
            PROGRAM,
            Key("target", "text", "The target."),
            Key("detail", "text", "A sentence."),
            Key("fields", "list of text", "The key fields it is about."),
            Key("entries", "number", "How many entries it is about.", lambda one: len(one.keys)),
        ),
        Advice,
    ),
    Record(
        "finding",
        "Something that verify found.",
        (
            CACHE,
            Key("entry", "text", "The entry's key, or the file's name where it has none."),
            Key("kind", "text", one_of(FindingKind) + "."),
            Key("wrong", "true or false", "Whether it gives exit 3 without --strict.", "kind.wrong"),
            PROGRAM,
            Key("target", "text", "The target; empty where it is not known."),
            Key("detail", "text", "A sentence."),
            Key("repaired", "true or false", "Whether --repair mended it."),
        ),
        Finding,
    ),
    Record(
        "note",
        "What verify tried and could not tell.",
        (Key("entry", "text", "The entry's key."), Key("note", "text", "A sentence.")),
        Note,
    ),
    Record(
        "removal",
        "An entry that a filter chose.",
        (
            *within("removal.entry", _ENTRY),
            Key("rule", "text", "The filter.", "removal.rule"),
            Key("removed", "true or false", "Whether it is gone.", lambda one: one.removed and one.tried),
            Key("kept_because", "text or null", "Why it stays, where its owner keeps it.", "kept.reason"),
        ),
        EvictOutcome,
    ),
    Record(
        "exported file",
        "A cache file that was written.",
        (
            CACHE,
            Key("file", "text", "The file."),
            Key("entries", "number", "Entries in it."),
            _SIZE,
            Key("key", "text or null", "The key of the one entry, where there is one."),
            Key("sources", "list of source", "Where the entries came from."),
            Key("notes", "list of text", "What the file's owner will make of it, a sentence each."),
        ),
        Exported,
    ),
    Record(
        "source",
        "A file whose entries were exported.",
        (Key("file", "text", "The file.", "0"), Key("entries", "number", "How many came from it.", "1")),
    ),
)
"""Every record but those of bench; those that others hold follow them."""
