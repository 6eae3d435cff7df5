"""The records of JSON documents that tell of recordings: every key in its order."""

from gpucache.answers.record import PassedOver, RecordedProgram, Unrecorded
from gpucache.render.records import PROGRAM
from gpucache.render.run_records import OF_A_COMMAND
from gpucache.render.schema import Key, Record

RECORDS = (
    Record(
        "recorded build",
        "A program as it was built for one device.",
        (
            Key("recorded", "text", "Its digest, whose first digits warm --recording has as variant."),
            PROGRAM,
            Key("language", "text", "opencl-c or cuda-c++."),
            Key("target", "text", "The target that it was built for."),
            Key("device", "table of text", "What tells its compiler from others, by name."),
            Key("options", "list of text", "Its build options, without include folders."),
            Key("name_expressions", "list of text", "The C++ names that were asked for."),
            Key("source", "text", "The SHA-256 of its source."),
            Key("headers", "number", "How many files it could include."),
            Key("kept", "true or false", "Whether the recording holds all that it is made of."),
            Key("local_sizes", "list of launch", "The local sizes of its kernels."),
            Key("artifact_kind", "text", "What was compiled: cubin, ptx, opencl-binary and others."),
            Key("compile_ms", "number", "The longest time it took; 0 where that is not known."),
            Key("failed", "true or false", "Whether it did not compile."),
            Key("first", "text or null", "When it was first seen, in UTC.", "first_ns"),
            Key("command", "text", "The command that it was first seen in."),
        ),
        RecordedProgram,
    ),
    Record(
        "launch",
        "A local size that a kernel was launched with.",
        (
            Key("kernel", "text", "The kernel's name.", "0"),
            Key("size", "list of number", "One to three numbers; none where it was left to the driver.", "1"),
        ),
    ),
    Record(
        "unrecorded builds",
        "Builds of a command that were not recorded.",
        (
            Key("reason", "text", "Why, as a sentence."),
            Key("builds", "number", "How many there were."),
        ),
        Unrecorded,
    ),
    Record(
        "passed over",
        "Something of a recording that does not read.",
        (
            Key("file", "text", "The file in the recording's folder."),
            Key("line", "number", "The line, from 1; 0 for the file itself."),
            Key("why", "text", "What is wrong with it."),
        ),
        PassedOver,
    ),
)
"""Every record of recordings; those that others hold follow them."""
SUMMARY = (
    *OF_A_COMMAND,
    Key("recording", "text", "The folder that was written."),
    Key("builds", "number", "How many builds were written, each once."),
    Key("unrecorded", "number", "How many were not."),
)
"""The keys of the summary of a command that was recorded."""
