"""Tables on a narrow terminal: lines are folded, and nothing that is said gets lost."""

import io
import re
from collections.abc import Iterable, Iterator, Sequence

import pytest
from rich.console import Console, RenderableType

from gpucache.answers import devices, evict, inspect, verify, warm, why
from gpucache.answers.console import write
from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Location, Problem
from gpucache.answers.evict import EvictOutcome, EvictSummary, Foreseen, Kept, Removal
from gpucache.answers.grid import PIPE_WIDTH, Grid
from gpucache.answers.inspect import ROWS_IN_A_TABLE, CacheState
from gpucache.answers.lookup import Miss, Verdict
from gpucache.answers.verify import Checked, Finding, summarise_verify
from gpucache.answers.warm import WarmOutcome, WarmResult, summarise_warm
from gpucache.answers.why import Answer
from gpucache.model import Check, Device, KeyField, Target

WIDTH = 80
KEYS = [f"{digit * 12}{'0' * 52}" for digit in "abc"]
PROGRAM = "kernels/linear-algebra/blocked-matrix-multiplication.cl"
TARGET = "opencl:nvidia-cuda/nvidia-geforce-rtx-4090-laptop-gpu"
SECOND_NS = 10**9


def _text(renderables: Iterable[RenderableType], width: int = WIDTH) -> str:
    console = Console(width=width, color_system=None, file=io.StringIO(), highlight=False)
    for renderable in renderables:
        console.print(renderable)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert all(len(line) <= width for line in text.splitlines())
    assert "…" not in text
    return text


def _column(text: str, name: str) -> str:
    """Everything below the heading of a column set left, joined without its folds and spaces.

    Of a column that is not the last, cells are without spaces.
    """
    lines = text.splitlines()
    heading = next(number for number, line in enumerate(lines) if re.search(rf"\b{name}\b", line))
    start = lines[heading].index(name)
    last = lines[heading].rstrip().endswith(name)
    body = lines[heading + 2 :]
    cells = [line[start:] for line in body[: [*body, ""].index("")]]
    return "".join(cell.replace(" ", "") if last else cell.split(" ")[0] for cell in cells)


def _entry(key: str, damage: Problem | None = None) -> CacheEntry:
    return CacheEntry(
        "gpucache", key, f"/cache/{key}", 123_456_789, 0, 0, PROGRAM, TARGET, "opencl-binary", damage=damage
    )


@pytest.mark.parametrize("result", list(WarmResult))
def test_warm_shows_result_program_target_and_reason(result: WarmResult) -> None:
    """Whatever became of an item, its result is whole, its names are folded, its reason is below."""
    reason = "" if result is WarmResult.BUILT else "the reason why"
    outcome = WarmOutcome(
        PROGRAM,
        TARGET,
        result,
        "N=4",
        KEYS[0],
        65 * SECOND_NS,
        123_456_789,
        reason,
        verdict=Verdict.KEY_CHANGED,
    )
    text = _text(warm.warm([outcome], summarise_warm([outcome])))
    assert re.search(rf"\b{result.value}\b", text)
    assert _column(text, "program") == PROGRAM and "N=4" in text
    assert f"target: {TARGET}" in text
    wide = _text(warm.warm([outcome], summarise_warm([outcome])), width=160)
    assert "1 min 5 s" in wide and "118 MiB" in wide
    words = " ".join(text.split())
    assert reason in words and f"1 {result.value}" in words


def test_warm_shows_the_first_lines_of_a_log_and_how_many_more() -> None:
    """A failure's log is cut to its first lines with the way to see all of it, which shows all of it."""
    log = "\n".join(f"error number {number}" for number in range(100))
    outcome = WarmOutcome(PROGRAM, TARGET, WarmResult.FAILED, reason="it does not compile", log=log)
    short = _text(warm.warm([outcome], summarise_warm([outcome])))
    assert "error number 0\n" in short and "error number 99" not in short
    assert f"{100 - warm.LOG_LINES} more lines; -v shows them" in short
    whole = _text(warm.warm([outcome], summarise_warm([outcome]), whole=True))
    assert all(f"error number {number}\n" in whole for number in range(100))


def test_text_is_not_read_as_markup() -> None:
    """Square brackets of a compiler are shown, not taken for colours."""
    outcome = WarmOutcome("a[bold].cl", TARGET, WarmResult.FAILED, reason="[red]no", log="x[/red] [i]")
    text = _text(warm.warm([outcome], summarise_warm([outcome])))
    assert all(part in text for part in ("a[bold].cl", "[red]no", "x[/red] [i]"))


def test_entries_keep_their_keys() -> None:
    """Each entry's key stands on one line, and its program and target are folded whole."""
    text = _text(inspect.entries([("", _entry(KEYS[0]))], SECOND_NS))
    assert KEYS[0][:12] in text and "opencl-binary" in text and "118 MiB" in text
    assert _column(text, "program") == PROGRAM
    assert f"target: {TARGET}" in text


def test_a_damaged_entry_says_so_in_the_list() -> None:
    """Where there is no program to show the damage stands in its place."""
    damaged = CacheEntry(
        "gpucache", KEYS[0], "/x", 1, 0, 0, damage=Problem(FindingKind.TRUNCATED, "12 bytes are missing")
    )
    text = _text(inspect.entries([("", damaged)], SECOND_NS))
    assert KEYS[0][:12] in text and "truncated" in text


@pytest.mark.parametrize("kind", list(FindingKind))
def test_verify_shows_finding_key_and_detail(kind: FindingKind) -> None:
    """Every kind of finding is named whole beside the key, with its program, detail and repair."""
    detail = "the entry says cubin and the payload is PTX, which is something else entirely"
    finding = Finding("gpucache", KEYS[0], kind, detail, PROGRAM, TARGET, repaired=True)
    outcomes = [Checked(KEYS[0], (finding,))]
    text = _text(verify.verify(outcomes, summarise_verify(outcomes)))
    assert KEYS[0][:12] in text and re.search(rf"\b{kind.value}\b", text)
    assert _column(text, "program") == PROGRAM
    done = "moved to quarantine" if kind.wrong else "removed"
    assert _column(text, "what") == f"{detail} ({done})".replace(" ", "")
    assert "1 checked" in text and "1 finding, 1 repaired" in text


def test_a_repair_of_the_caches_of_others_is_called_one() -> None:
    """Each has its own way of it, and no quarantine."""
    finding = Finding("pocl", "0/1", FindingKind.CORRUPT, "it is damaged", repaired=True)
    outcomes = [Checked("0/1", (finding,))]
    assert "it is damaged (repaired)" in _text(verify.verify(outcomes, summarise_verify(outcomes)))


@pytest.mark.parametrize("width", [80, PIPE_WIDTH])
def test_many_entries_are_lines_below_each_other(width: int) -> None:
    """A list of thousands of entries is drawn row by row: aligned, none broken, what is shared said once."""
    one = CacheEntry("gpucache", "k", "/k", 4096, 0, 0, "p.cu", "cuda:sm_90", "cubin", "-DN=7")
    found = [("", one._replace(key=f"{number:012}")) for number in range(ROWS_IN_A_TABLE + 2)]
    file = io.StringIO()
    write(Console(file=file, width=width, color_system=None), inspect.entries(found, 0))
    lines = file.getvalue().splitlines()
    rows = [line for line in lines if "p.cu" in line]
    assert [row[:12] for row in rows] == [entry.key for _, entry in found]
    assert {len(row) for row in rows} == {len(rows[0])}
    assert ("cuda:sm_90" in rows[0]) is (width == PIPE_WIDTH)
    assert sum(line.startswith("key ") for line in lines) == 2
    assert lines[-1] == rows[-1] and rows[-1].split()[:3] == ["000000002001", "p.cu", "-DN=7"]


def test_a_list_of_many_entries_draws_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """A table takes milliseconds for each row, minutes for all."""
    monkeypatch.setattr("rich.table.Table.add_row", None)
    one = CacheEntry("gpucache", "k", "/k", 4096, 0, 0, "p.cu")
    file = io.StringIO()
    write(Console(file=file, width=80), inspect.entries([("", one)] * (ROWS_IN_A_TABLE + 1), 0))
    assert file.getvalue().count("p.cu") == ROWS_IN_A_TABLE + 1


def test_verify_of_what_is_sound_is_one_line() -> None:
    """Where nothing was found nothing stands before the counts, not even a blank line."""
    outcomes = [Checked("a")]
    assert _text(verify.verify(outcomes, summarise_verify(outcomes))) == "1 checked, 1 sound, 0 findings\n"


def test_what_was_not_checked_is_told_once_for_each_reason() -> None:
    """Entries that share a reason share a sentence, and the sum counts them apart."""
    outcomes = [Checked(key, unchecked="no memory") for key in "abcde"]
    text = _text(verify.verify(outcomes, summarise_verify(outcomes)))
    assert text.splitlines()[0] == "a, b, c and 2 more: not checked: no memory"
    assert text.endswith("0 checked, 0 sound, 0 findings, 5 not checked\n")


def test_what_no_checksum_says_is_not_called_sound() -> None:
    """Of such an entry only the form was checked."""
    outcomes = [Checked("a"), Checked("b", checksum=False)]
    text = _text(verify.verify(outcomes, summarise_verify(outcomes)))
    assert text == "2 checked, no fault found in 2 (1 of them without a checksum), 0 findings\n"


def test_verify_shows_what_could_not_be_told() -> None:
    """A note stands beside the key of its entry, and the entry counts as sound."""
    outcomes = [Checked(KEYS[0], notes=("not comparable: a temporary path",))]
    text = _text(verify.verify(outcomes, summarise_verify(outcomes)))
    assert f"{KEYS[0][:12]}: not comparable: a temporary path" in text
    assert "1 checked, 1 sound, 0 findings" in text


def test_evict_shows_what_would_go_and_by_which_rule() -> None:
    """A planned removal keeps key, names and rule; the sum says what would stay."""
    rule = "unused for 30 d, superseded"
    foreseen, told = Foreseen(kept=2, kept_bytes=2048), evict.Evictions()
    for outcome in foreseen.of([EvictOutcome(Removal(_entry(KEYS[0]), rule), tried=False)]):
        told.add(outcome)
    text = _text(told.plan(foreseen))
    assert KEYS[0][:12] in text
    assert PROGRAM in text and f"target: {TARGET}" in text and f"rule: {rule}" in text
    assert "1 entry would go, freeing 118 MiB; 2 would stay (2.0 KiB)" in text


def _told(outcomes: Sequence[EvictOutcome], *, whole: bool = False) -> evict.Evictions:
    told = evict.Evictions(whole=whole)
    for outcome in outcomes:
        told.add(outcome)
    return told


def test_evict_names_what_could_not_be_removed() -> None:
    """An entry that changed since the scan is named; what was removed is summed up."""
    gone, stayed = (Removal(_entry(key), "stale") for key in KEYS[:2])
    outcomes = [EvictOutcome(gone), EvictOutcome(stayed, Kept("it changed since the scan"))]
    text = _text(_told(outcomes).done(EvictSummary(1, 4096, 1, 8192)))
    assert f"{KEYS[1][:12]} was not removed: it changed since the scan" in text and KEYS[0][:12] not in text
    assert "1 entry removed, 4.0 KiB freed; 1 stay (8.0 KiB)" in text


def test_evict_tells_a_reason_once_for_all_that_stay() -> None:
    """The first keys are named, all of them with ``whole``; another reason has a line of its own."""
    keys = [f"{number:064x}" for number in range(1, 6)]
    kept = [EvictOutcome(Removal(_entry(key), "stale"), Kept("it is held")) for key in keys]
    kept.append(EvictOutcome(Removal(_entry(KEYS[0]), "stale"), Kept("it changed")))
    text = _text(_told(kept).done(EvictSummary(0, 0, 6, 0)))
    assert text.count("it is held") == 1 and "and 2 more were not removed: it is held" in text
    assert f"{KEYS[0][:12]} was not removed: it changed" in text
    every = _text(_told(kept, whole=True).done(EvictSummary(0, 0, 6, 0)))
    assert every.count("000000000000") == 5 and "more" not in every


def test_devices_show_targets_whole_and_errors_as_sentences() -> None:
    """A target can be copied from its line; what is not here is said with its reason."""
    long = Target("opencl", "nvidia-cuda/rtx-4090-laptop")
    rows = [
        Device(long, "opencl", "NVIDIA GeForce RTX 4090 Laptop GPU", "570.00", True, "a GPU"),
        Device(Target("cuda", "sm_90"), "cuda", "sm_90", "", True, "NVRTC builds for it", present=False),
        Device(Target("opencl", "pocl/old"), "opencl", "old", "3.0", False, "it compiles nothing; mend it"),
        Device(None, "cuda", "CUDA driver", "", False, "the driver is broken", present=False),
    ]
    text = _text(devices.devices(rows))
    assert re.search(r"^opencl:pocl/old +old \(not available\) +3\.0\b", text, re.MULTILINE)
    assert "opencl:pocl/old: it compiles nothing; mend it" in text
    assert str(long) in text and "cuda:sm_90" in text
    assert "CUDA driver: the driver is broken" in text


def test_the_state_names_root_limit_and_problems() -> None:
    """Where the cache is, what decided that, and what is wrong with the place are all there."""
    place = Location("gpucache", "/srv/cache", "GPUCACHE_DIR", True, 1024, ("it cannot be written",))
    text = _text(inspect.state(CacheState(place, 3, 512, 3, 2, 1)))
    assert "/srv/cache (decided by GPUCACHE_DIR)" in text
    assert "512 B of 1.0 KiB" in text and "3 of 2 programs, 1 unreadable" in text
    assert "it cannot be written" in text


def _report(fields: int) -> EntryReport:
    includes = (KeyField(f"include h{number}.h", f"{number:064x}") for number in range(fields))
    return EntryReport(
        entry=_entry(KEYS[0]),
        key_fields=(KeyField("option", "-DN=4"), *includes),
        payload=(("kind", "cubin"), ("architecture", "sm_90")),
        compile_ns=SECOND_NS,
        build_log="a warning",
        tool_version="1.0",
        lowered_names=(("f<int>", "_Z1fIiEvv"),),
    )


def test_a_failure_table_is_told_by_its_codes() -> None:
    """With file, line, function and format of each check; without checks neither table nor mode."""
    table = (Check(20, "index %d", "gather"), Check(3, "", "", "other.cl"))
    text = _text(inspect.report(_report(0)._replace(checks="async", failures=table), whole=False))
    rows = [" ".join(line.split()) for line in text.splitlines()]
    assert {"checks async", "0 20 gather index %d", "1 other.cl:3"} <= set(rows)
    plain = _text(inspect.report(_report(0)._replace(checks="none"), whole=False))
    assert "Failure table" not in plain and "checks" not in plain


def test_many_checks_are_counted_until_all_are_asked_for() -> None:
    """Of many checks the first are shown and the rest counted; -v shows all."""
    many = _report(0)._replace(checks="sync", failures=tuple(Check(line, "x") for line in range(1, 101)))
    short = " ".join(_text(inspect.report(many, whole=False)).split())
    assert "23 24" in short and "24 25" not in short and "and 76 more checks; -v shows them" in short
    assert "99 100" in " ".join(_text(inspect.report(many, whole=True)).split())


def test_one_entry_is_told_whole() -> None:
    """The full key, payload, key fields, lowered names and log of an entry are there."""
    text = _text(inspect.report(_report(3), whole=False))
    parts = (KEYS[0], "-DN=4", "include h2.h", "architecture", "_Z1fIiEvv", "a warning", "1.00 s")
    assert all(part in text for part in parts)
    assert "more headers" not in text


def test_many_headers_are_counted_until_all_are_asked_for() -> None:
    """Of many headers the first are shown and the rest counted; -v shows each with its whole digest."""
    short = _text(inspect.report(_report(40), whole=False))
    assert "include h11.h" in short and "include h12.h" not in short
    assert "and 28 more headers; -v shows them" in short
    whole = _text(inspect.report(_report(40), whole=True))
    assert all(f"include h{number}.h" in whole for number in range(40))


@pytest.mark.parametrize("verdict", list(Verdict))
def test_misses_show_their_verdict(verdict: Verdict) -> None:
    """Each miss says when, of which program and target, and why."""
    record: dict[str, object] = {
        "when_ns": 0,
        "program": "k.cl",
        "target": "cuda:sm_90",
        "verdict": verdict.value,
        "detail": "because",
    }
    text = _text(inspect.misses([record], 7200 * SECOND_NS))
    assert f"2 h ago  k.cl for cuda:sm_90: {verdict.value}: because" in " ".join(text.split("\n"))


@pytest.mark.parametrize("width", [80, 120])
def test_misses_and_processes_are_broken_beside_their_ages(width: int) -> None:
    """In a terminal a long line goes on below its text, so that the ages stand alone."""
    place = "/home/somebody/projects/simulation/kernels"
    record: dict[str, object] = {
        "when_ns": 0,
        "program": f"{place}/blocked-multiplication.cl",
        "target": "opencl:intel-r-opencl/intel-r-xeon-r-processor",
        "verdict": "key-changed",
        "detail": "the define TILE: 16 -> 32; types.h changed (nearest: 3b450d5a60bf, built just now)",
    }
    process: dict[str, object] = {
        "when_ns": 0,
        "command": f"{place}/run.py {'--option value ' * 6}",
        "hits": 1,
    }
    now_ns = 7200 * SECOND_NS
    text = _text([*inspect.misses([record], now_ns), *inspect.processes([process], now_ns)], width)
    lines = [line for line in text.splitlines() if line and not line.startswith("Last")]
    assert len(lines) > 3 and all(len(line) <= width for line in lines)
    assert {line[:12] for line in lines} == {"   2 h ago  ", " " * 12}


@pytest.mark.parametrize(
    ("verdict", "detail", "told"),
    [
        (
            "key-changed",
            "another platform: A -> B; driver 1 -> 2; the option -DA=1 is gone; types.h changed; and 10 more "
            "(nearest: 3b450d5a60bf, built just now)",
            "another platform: A -> B; and 13 more",
        ),
        (
            "key-changed",
            "types.h changed; driver 1 -> 2 (nearest: 3b450d5a60bf, built just now)",
            "types.h changed; and 1 more",
        ),
        (
            "never-built",
            "k.cl was never built for opencl:pocl/cpu, but for opencl:intel/epyc: another platform: A -> B; "
            "and 10 more (nearest: 3b450d5a60bf, built just now)",
            "so far built only for opencl:intel/epyc",
        ),
        (
            "poisoned",
            "its compiler failed twice; warm --retry tries it again",
            "its compiler failed twice; warm --retry tries it again",
        ),
    ],
)
def test_a_miss_in_brief_tells_the_first_difference(verdict: str, detail: str, told: str) -> None:
    """Of many, their number, and where they all are; what is no list of differences is told whole."""
    record: dict[str, object] = {
        "when_ns": 0, "program": "k.cl", "target": "opencl:pocl/cpu", "verdict": verdict, "detail": detail
    }  # fmt: skip
    now_ns = 7200 * SECOND_NS
    _, line, *hint = _text(inspect.misses([record], now_ns, brief=True), 200).splitlines()
    assert line == f"   2 h ago  k.cl for opencl:pocl/cpu: {verdict}: {told}"
    assert hint == (["'gpucache inspect --misses' tells every difference"] if told != detail else [])
    (whole,) = _text(inspect.misses([record], now_ns), 300).splitlines()[1:]
    assert whole.endswith(f": {verdict}: {detail}")


def test_a_record_that_is_not_ours_is_shown_too() -> None:
    """A journal line without the usual fields breaks nothing."""
    assert "?" in _text(inspect.misses([{"when_ns": "soon"}], 0))


def test_a_list_without_end_is_drawn_in_tables() -> None:
    """So that no more of it is held at once than one of them; each row is in one, in the order of names."""
    found = (("", _entry(f"{number:012x}")) for number in range(2 * inspect.ROWS_IN_A_TABLE + 1))
    drawn = list(inspect.entries(found, 0))
    assert [len(one.rows) for one in drawn if isinstance(one, Grid)] == [2000, 2000, 1]


def test_a_list_begins_before_all_of_it_is_read() -> None:
    """The first table is drawn once it is known whether another follows."""
    read: list[int] = []

    def found() -> Iterator[tuple[str, CacheEntry]]:
        for number in range(5 * inspect.ROWS_IN_A_TABLE):
            read.append(number)
            yield "", _entry(f"{number:012x}")

    assert next(iter(inspect.entries(found(), 0)))
    assert len(read) <= 2 * inspect.ROWS_IN_A_TABLE


def test_an_answer_says_for_which_directory_it_is() -> None:
    """Where files of a directory are in the key, the answer names it, and says what is true elsewhere."""
    missed = Miss(Verdict.KEY_CHANGED, "value.h appeared")
    found = Answer("k.cl", TARGET, "", ("/cache",), missed, directory="/run", elsewhere=missed)
    told = " ".join(_text(why.answers([found], SECOND_NS), 200).split())
    assert "answered for a program that runs in /run" in told
    assert "for one that runs elsewhere, and for warm: key-changed: value.h appeared" in told
    plain = Answer("k.cl", TARGET, "", ("/cache",), missed)
    assert "runs in" not in _text(why.answers([plain], SECOND_NS), 200)
