"""The record of a build in a layer's JSON document, and the keys of the summary of an export."""

from gpucache.outcomes import Layered, LayerResult
from gpucache.render.schema import Key, Record, one_of

RECORDS = (
    Record(
        "layer build",
        "A build that a command asked for; what is asked for alike stands there once.",
        (
            Key("result", "text", f"What became of it: {one_of(LayerResult)}."),
            Key("program", "text", "The name of its first kernel, or of its file."),
            Key("target", "text or null", "What it was for; null where that is not known."),
            Key("reason", "text", "Why it was left to its compiler."),
        ),
        Layered,
    ),
)
SUMMARY = (
    Key("command", "text", "What was run."),
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
    Key("layer", "text", "The folder."),
    Key("exported", "number", "Builds that are served from there."),
    Key("left", "number", "Builds that are not."),
    Key("answers", "number", "How many it holds, those of earlier commands among them."),
    Key("size_bytes", "number", "The size of its index."),
)
