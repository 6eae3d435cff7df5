"""The record of a build in a layer's JSON document, and the keys of the summary of an export."""

from gpucache.answers.layer import Layered, LayerResult
from gpucache.render.run_records import OF_A_COMMAND
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
    *OF_A_COMMAND,
    Key("layer", "text", "The folder."),
    Key("exported", "number", "Builds that are served from there."),
    Key("left", "number", "Builds that are not."),
    Key("answers", "number", "How many it holds, those of earlier commands among them."),
    Key("size_bytes", "number", "The size of its index."),
)
