"""What bench writes into files: JSON with all that was measured, Markdown that says only what is meant."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from gpucache.answers.bench import BenchCase
from gpucache.answers.bench_export import SUFFIXES, export

COUNTS = {"cases": 4, "faster": 2, "no_difference": 0, "undecided": 0, "degraded": 1, "failed": 1}
"""Each verdict is counted under its name, also those that no case came to."""
COMMAND = ["gpucache", "bench", "fft.cl", "--target", "opencl:pocl/cpu", "-D", "TEXT=a b"]
FINGERPRINT = {
    "gpucache": "1.2.0",
    "cpu": "Intel(R) Xeon(R)",
    "command": COMMAND,
    "variables": {"POCL_DEBUG": "```"},
}


def _markdown(cases: Sequence[BenchCase], fingerprint: Mapping[str, object] = FINGERPRINT) -> str:
    return export(".md", cases, fingerprint).decode()


def _table(markdown: str, heading: str) -> list[list[str]]:
    """The rows of the table below a heading's first cell, split where Markdown splits them."""
    lines = markdown.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {heading} |"))
    rows = lines[start : lines.index("", start)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", row)[1:-1]] for row in rows]


def test_json_has_everything(cases: list[BenchCase]) -> None:
    """The document names its schema and command and holds fingerprint, cases, every sample, and counts."""
    document = json.loads(export(".json", cases, FINGERPRINT))
    assert list(document) == ["schema", "command", "fingerprint", "outcomes", "summary"]
    assert (document["schema"], document["command"]) == (1, "bench")
    assert document["fingerprint"] == FINGERPRINT
    assert [case["program"] for case in document["outcomes"]] == [case.program for case in cases]
    assert [len(case["samples"]) for case in document["outcomes"]] == [len(case.samples) for case in cases]
    assert document["outcomes"][0]["samples"][0]["phases"]["compile"] == 1890
    assert document["summary"] == COUNTS


def test_markdown_has_a_row_for_each_arm(cases: list[BenchCase]) -> None:
    """The table has cold, warm and the other arms of each case, with ratios and intervals."""
    heading, _, *rows = _table(_markdown(cases), "program")
    assert {len(row) for row in rows} == {len(heading)}
    assert rows[0] == [
        "`fft.cl`",
        "`opencl:pocl/cpu`",
        "cold",
        "2.81 s",
        "2.69 s",
        "5.04 s",
        "10",
        "1x",
        "faster",
    ]
    assert rows[1][2:8] == ["warm", "129 ms", "123 ms", "230 ms", "10", "**21.9x** (18.2x to 23.0x)"]
    assert [row[2] for row in rows] == ["cold", "warm", "as-is", "pyopencl", *["cold", "warm"] * 2, "-"]
    assert rows[-1][-1] == "**failed**" and rows[6][-1] == "**degraded**"


def test_markdown_says_how_to_do_it_again(cases: list[BenchCase]) -> None:
    """The command stands in a block of its own, quoted for a shell; without one there is no such block."""
    whole = _markdown(cases)
    assert "```sh\ngpucache bench fft.cl --target opencl:pocl/cpu -D 'TEXT=a b'\n```" in whole
    assert "```sh\ngpucache bench x.cl\n```" in _markdown(cases, {"command": "gpucache bench x.cl"})
    assert "Reproduce" not in _markdown(cases, {})


def test_markdown_has_verdicts_phases_and_notes(cases: list[BenchCase]) -> None:
    """Below the table each case has its verdict, its phases and what else is worth knowing."""
    text = _markdown(cases)
    assert "## fft.cl on opencl:pocl/cpu\n\nfaster: 21.9x (18.2x to 23.0x)\n" in text
    assert ["compile", "1.89 s", "-"] in _table(text, "phase")
    assert "- warming cost 5.20 s; each start saves 2.67 s: it pays after 2 starts\n" in text
    assert "- it was fully warm after run 2, as run 3 wrote nothing new\n" in text


def test_markdown_folds_the_fingerprint(cases: list[BenchCase]) -> None:
    """The environment is whole, in a fenced block that its own values cannot end, folded away."""
    text = _markdown(cases)
    folded = text[text.index("<details>") : text.index("</details>")]
    block = re.search(r"\n(`{3,})json\n(.*)\n\1\n", folded, re.DOTALL)
    assert block is not None and json.loads(block[2]) == FINGERPRINT
    assert block[1] not in block[2]


def test_markdown_is_not_written_by_names(program: BenchCase, failed: BenchCase) -> None:
    """Bars, quotes, angle brackets and line ends in names and reasons stay text in their place."""
    odd = replace(failed, program="a|b`c\n# d.cu", target="<b>*x*")
    text = _markdown([program, odd], {})
    row = _table(text, "program")[-1]
    assert row[:3] == ["`` a\\|b`c # d.cu ``", "`<b>*x*`", "-"]
    assert "\n## a\\|b\\`c # d.cu on \\<b\\>\\*x\\*\n" in text
    assert (
        "\nfailed: a cold start failed: \\<built-in\\>:3:1: error: unknown type 'flaot' \\& more 1 error\n"
        in text
    )


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_undecodable_names_can_be_written(program: BenchCase, suffix: str) -> None:
    """A name with bytes that are no text makes a file that can be written, whatever its ending."""
    odd = replace(program, program="k\udcff.cl", notes=("k\udcff.cl",))
    assert export(suffix, [odd], {"command": "k\udcff.cl"})


def test_endings_are_told_apart(cases: list[BenchCase]) -> None:
    """Capitals do not matter, and an ending that stands for nothing is refused with those that do."""
    assert export(".JSON", cases, {}) == export(".json", cases, {})
    with pytest.raises(ValueError, match=r"\.json, \.md, \.png"):
        export(".txt", cases, {})
