"""The manual pages of section 5: the manifest, and the documents that ``--json`` answers with.

Owns their sections. Must not hold a field or a key: those are read from the manifest's grammar and
from the schema of the documents.
"""

from collections.abc import Iterable, Iterator

from gpucache.answers.document import record_name
from gpucache.answers.schema import ANSWERS, Answered, Document, Error, meanings, records
from gpucache.cli import roff
from gpucache.manifest import FIELDS

MANIFEST = "gpucache-manifest"
JSON = "gpucache-json"
_WHAT_A_MANIFEST_IS = (
    "A manifest lists programs and how they are built, for gpucache warm --manifest FILE and gpucache bench "
    "--manifest FILE. It is a TOML file in UTF-8, of any name, with one table [[program]] for each program "
    "and at most one table [defaults], whose fields count for all programs. Names of files and folders are "
    "relative to the manifest's folder. A field or table of another name is an error that names the line.",
    "What is said on the command line is added: -I, -D, --option and --local-size count for every program.",
)
SAMPLE = """\
[defaults]
include = ["include"]

[[program]]
source = "kernels/*.cl"
defines = { N = 4 }
variants = { T = ["float", "double"] }
local_sizes = [[64], [16, 16]]

[[program]]
source = "kernels/scale.cu"
options = ["-std=c++17"]
targets = ["cuda:sm_80", "cuda:sm_90", "cuda:compute_90"]
name_expressions = ["scale<float>"]
"""
"""A manifest as people write them."""
_WHAT_A_DOCUMENT_IS = (
    "With --json, a verb answers with one JSON document on standard output, also where it could not run; "
    "'inspect --watch' with an object on each line, of which the last says what ended it. "
    "Names are in snake_case and end in their units: _ms is milliseconds, _ns nanoseconds, _bytes bytes. "
    "Every key is always there; what is not known is null, or empty text. A byte of a file name that is not "
    "UTF-8 is escaped as an unpaired surrogate.",
)


def pages() -> dict[str, str]:
    """The pages by file name."""
    return {f"{MANIFEST}.5": _text(_manifest()), f"{JSON}.5": _text(_json())}


def _manifest() -> Iterator[str]:
    yield from roff.title(MANIFEST, 5, "programs to warm")
    yield roff.heading("DESCRIPTION")
    yield from roff.paragraphs(_WHAT_A_MANIFEST_IS)
    yield roff.heading("FIELDS")
    for field in FIELDS:
        where = "" if field.shared else " In [[program]] alone."
        yield from roff.listing([(f"{field.name} = {field.example}", field.meaning + where)])
    yield roff.heading("EXAMPLES")
    yield roff.filled(
        "Each OpenCL program is built twice for every device, the CUDA program for three targets:"
    )
    yield from roff.verbatim(SAMPLE)
    yield from roff.see_also([("gpucache-warm", 1), ("gpucache-bench", 1), ("gpucache", 1)])


def _json() -> Iterator[str]:
    yield from roff.title(JSON, 5, "what gpucache answers with --json")
    yield roff.heading("DESCRIPTION")
    yield from roff.paragraphs(_WHAT_A_DOCUMENT_IS)
    yield roff.heading("DOCUMENT")
    yield from roff.listing(_rows(Document))
    yield from (".PP", roff.filled("Where a command could not run there is one more key, error, with:"))
    yield from roff.listing(_rows(Error))
    yield roff.heading("ANSWERS")
    for answered in ANSWERS:
        yield from _answered(answered)
    yield roff.heading("RECORDS")
    for kind in records():
        meaning = (kind.__doc__ or "").partition("\n\n")[0]
        yield from (roff.subheading(record_name(kind)), roff.filled(meaning))
        yield from roff.listing(_rows(kind))
    yield from roff.see_also([("gpucache", 1)])


def _answered(one: Answered) -> Iterator[str]:
    outcomes = f"Outcomes: {record_name(one.outcome)}. " if one.outcome else "No outcomes. "
    yield from (roff.subheading(f"gpucache {one.asked}"), roff.filled(f"{outcomes}{one.meaning} Summary:"))
    yield from roff.listing(_rows(one.summary)) if one.summary else ()


def _rows(kind: type) -> Iterator[tuple[str, str]]:
    return ((key.name, f"({key.form.words}) {meaning}") for key, meaning in meanings(kind))


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
