"""Bench cases as a file for others: JSON with every sample, Markdown for a report, a plot.

Owns which ending stands for what, and the first two; the picture is drawn in ``plots``.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence

from gpucache.answers.bench import BenchCase, BenchVerdict, summarise_bench
from gpucache.answers.bench_plots import FORMATS, plot
from gpucache.answers.bench_words import (
    Bar,
    bars,
    interval_words,
    name_of,
    remarks,
    times,
    verdict_name,
    verdict_words,
)
from gpucache.answers.document import SCHEMA, json_of
from gpucache.units import format_duration

PLOTS = tuple(f".{form}" for form in FORMATS)
SUFFIXES = (".json", ".md", *PLOTS)
_MARKS = re.compile(r"[\\`*\[\]<>|~&]|(?<!\w)_|_(?!\w)")


def export(suffix: str, cases: Sequence[BenchCase], fingerprint: Mapping[str, object]) -> bytes:
    """The content of a file with one of ``SUFFIXES``; another raises ValueError.

    The fingerprint is what is known of the machine and its software, as JSON values. Its ``command``, a
    sentence or a list of words, is shown as what reproduces the figures. Raises ImportError for a plot
    without matplotlib.
    """
    match suffix.lower():
        case ".json":
            return _json(cases, fingerprint).encode()
        case ".md":
            return "\n".join(_markdown(cases, fingerprint)).encode("utf-8", "backslashreplace")
        case drawn if drawn in PLOTS:
            return plot(cases, _command(fingerprint), drawn.removeprefix("."))
    raise ValueError(f"{suffix!r} is none of {', '.join(SUFFIXES)}")


def _json(cases: Sequence[BenchCase], fingerprint: Mapping[str, object]) -> str:
    counts: dict[str, object] = json_of(summarise_bench(cases))
    whole = {
        "schema": SCHEMA,
        "command": "bench",
        "fingerprint": dict(fingerprint),
        "outcomes": json_of(cases),
        "summary": {name: counts[name] for name in counts if "below" not in name},
    }
    return json.dumps(whole, indent=2) + "\n"


def _command(fingerprint: Mapping[str, object]) -> str:
    command = fingerprint.get("command", "")
    return shlex.join(map(str, command)) if isinstance(command, list | tuple) else str(command)


def _markdown(cases: Sequence[BenchCase], fingerprint: Mapping[str, object]) -> Iterator[str]:
    yield from ("# Start-up times: nothing cached against everything cached", "")
    yield "| program | target | start | median | lowest | highest | starts | as fast as cold | verdict |"
    yield "|---|---|---|--:|--:|--:|--:|--:|---|"
    for case in cases:
        yield from _rows(case)
    yield from (
        "",
        "Each start is a fresh process. The ratio is the median of pairs, with its 95 % interval.",
    )
    command = _command(fingerprint)
    if command:
        yield from ("", "Reproduce it with:", "", *_fenced(command, "sh"))
    for case in cases:
        yield from ("", *_section(case))
    yield from ("", "<details>", "<summary>Environment</summary>", "")
    yield from _fenced(json.dumps(dict(fingerprint), indent=2, ensure_ascii=False), "json")
    yield from ("", "</details>", "")


def _rows(case: BenchCase) -> Iterator[str]:
    verdict = verdict_name(BenchVerdict(case.verdict))
    if case.verdict in (BenchVerdict.DEGRADED, BenchVerdict.FAILED):
        verdict = f"**{verdict}**"
    names = (_code(case.program), _code(case.target) if case.target else "-")
    drawn = bars(case)
    if not drawn:
        yield _row(*names, *["-"] * 6, verdict)
    for number, bar in enumerate(drawn):
        leading, ending = (("", ""), "") if number else (names, verdict)
        yield _row(*leading, *_cells(bar), ending)


def _cells(bar: Bar) -> Iterator[str]:
    yield bar.arm
    yield from map(format_duration, (bar.spread.median_ns, bar.spread.low_ns, bar.spread.high_ns))
    yield str(bar.spread.runs)
    ratio = bar.ratio
    yield f"**{times(ratio.median, ratio)}** ({interval_words(ratio)})" if ratio else "1x"


def _section(case: BenchCase) -> Iterator[str]:
    """What a case came to, its phases, and what else is worth knowing."""
    yield from (f"## {_text(name_of(case))}", "", _text(verdict_words(case)))
    if len(case.phases) > 1:
        yield from ("", "| phase | cold | warm |", "|---|--:|--:|")
        for name, cold, warm in case.phases:
            yield _row(_text(name), *("-" if ns is None else format_duration(ns) for ns in (cold, warm)))
    said = list(remarks(case))
    if said:
        yield from ("", *(f"- {_text(remark)}" for remark in said))


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """Text on one line, escaped so that nothing in it is read as Markdown."""
    return _MARKS.sub(lambda match: f"\\{match[0]}", " ".join(text.split()))


def _code(text: str) -> str:
    """A code span for a table; the text may hold back quotes."""
    fence = "`" * (max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    edge = " " if "`" in text else ""
    return f"{fence}{edge}{' '.join(text.split())}{edge}{fence}".replace("|", "\\|")


def _fenced(text: str, language: str) -> tuple[str, str, str]:
    fence = "`" * max(3, max((len(run) for run in re.findall("`+", text)), default=0) + 1)
    return f"{fence}{language}", text, fence
