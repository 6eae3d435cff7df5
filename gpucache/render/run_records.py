"""The record of a command's build in JSON documents, and the keys of the summary of a run of one."""

from gpucache.answers.lookup import Verdict
from gpucache.answers.run import Intercepted, RunResult
from gpucache.render.schema import Key, Record, one_of

RECORDS = (
    Record(
        "command build",
        "A build that a command asked for.",
        (
            Key("result", "text", f"What became of it: {one_of(RunResult)}."),
            Key("program", "text", "The name of its first kernel; empty for a call that builds no source."),
            Key("target", "text or null", "What it was for; null where that is not known."),
            Key("key", "text or null", "The cache key; null where none could be made."),
            Key("build_ms", "number", "How long the command waited for it."),
            Key("saved_ms", "number", "Of a hit, how long compiling took when it was built."),
            Key(
                "all_kernels",
                "true or false",
                "Of a hit, whether that compiled all of its kernels, as it is done for late compilers.",
            ),
            Key("verdict", "text or null", f"Why it was not found: {one_of(Verdict)}."),
            Key("reason", "text", "The same as a sentence, or why it was not kept or served."),
        ),
        Intercepted,
    ),
)
OF_A_COMMAND = (
    Key("command", "text", "The command."),
    Key("exit_code", "number", "How it ended; 128 and the number of a signal that ended it.", "ended.code"),
    Key("signal", "number", "The signal that ended it; 0 where none did.", "ended.signal"),
    Key("alone", "text", "Why it ran as without gpucache; empty where it did not.", "ended.alone"),
    Key("loaded", "true or false", "Whether a library of gpucache was loaded into it.", "ended.loaded"),
    Key(
        "unanswered",
        "list of text",
        "Its processes that asked as another user, and had no answer.",
        "ended.refused",
    ),
)
"""The keys of every summary of a command: its name, its end, and how gpucache reached it."""
SUMMARY = (
    *OF_A_COMMAND,
    Key("builds", "number", "How many builds it asked for, without those that were passed."),
    Key("hits", "number", "Builds that were served."),
    Key("misses", "number", "Builds that were not there."),
    *(
        Key(name, "number", f"Builds whose result is {name}.")
        for name in ("kept", "noted", "failed", "passed", "refused")
    ),
    Key("build_ms", "number", "How long at least one was under way; those of parallel threads count once."),
    Key("saved_ms", "number", "How long compiling the hits took when they were built."),
    Key(
        "ahead_ms",
        "number",
        "What of saved_ms went into compiling all kernels, of which a command alone compiles those it uses.",
    ),
    Key("binaries", "number", "Programs it made from binaries, such as those of a cache of its own."),
    Key("wanted", "number", "Programs noted to be built later, or once more for other local sizes."),
    Key("learned", "number", "How many of these were built after its end."),
)
