"""The files that bench writes: JSON with all measurements, Markdown with the machine."""

import json
import re
from dataclasses import replace

import pytest

from gpucache.answers.bench_export import export
from tests.answers.cases import CASES, PROGRAM

COUNTS = {
    "cases": 4,
    "faster": 2,
    "no_difference": 0,
    "undecided": 0,
    "degraded": 1,
    "no_cache": 0,
    "failed": 1,
}
"""Each verdict is counted under its name, also at zero."""
COMMAND = ["gpucache", "bench", "fft.cl", "--target", "opencl:pocl/cpu", "-D", "TEXT=a b"]
FINGERPRINT = {
    "gpucache": "1.2.0",
    "cpu": "Intel(R) Xeon(R)",
    "command": COMMAND,
    "variables": {"POCL_DEBUG": "```"},
}


def test_json_has_everything() -> None:
    """The document has schema, command, fingerprint, CASES, every sample, and counts."""
    document = json.loads(export(".json", CASES, FINGERPRINT))
    assert list(document) == ["schema", "command", "fingerprint", "outcomes", "summary"]
    assert (document["schema"], document["command"]) == (1, "bench")
    assert document["fingerprint"] == FINGERPRINT
    assert [case["program"] for case in document["outcomes"]] == [case.program for case in CASES]
    assert [len(case["samples"]) for case in document["outcomes"]] == [len(case.samples) for case in CASES]
    assert document["outcomes"][0]["samples"][0]["phases"]["compile"] == 1890
    assert document["summary"] == COUNTS


def test_markdown_folds_the_fingerprint() -> None:
    """The environment is whole, in a fenced block that its own values cannot end, folded away."""
    text = export(".md", CASES, FINGERPRINT).decode()
    folded = text[text.index("<details>") : text.index("</details>")]
    block = re.search(r"\n(`{3,})json\n(.*)\n\1\n", folded, re.DOTALL)
    assert block is not None and json.loads(block[2]) == FINGERPRINT
    assert block[1] not in block[2]


@pytest.mark.parametrize("suffix", [".json", ".md"])
def test_undecodable_names_can_be_written(suffix: str) -> None:
    """A name with bytes that are not text can be written into a file of any suffix."""
    odd = replace(PROGRAM, program="k\udcff.cl", notes=("k\udcff.cl",))
    assert export(suffix, [odd], {"command": "k\udcff.cl"})


def test_endings_are_told_apart() -> None:
    """Case is ignored, and an unknown suffix is refused with the list of known ones."""
    assert export(".JSON", CASES, {}) == export(".json", CASES, {})
    with pytest.raises(ValueError, match=r"\.json, \.md, \.png"):
        export(".txt", CASES, {})
