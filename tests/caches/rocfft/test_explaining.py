"""Explanations: whether a lookup would be answered, and which of its four values is in the way."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.why import Reach
from gpucache.caches.rocfft.database import format_hip
from gpucache.errors import UsageError
from tests.caches.rocfft.build import KERNEL, OTHER, SUM, Values, code, database, hot_journal, opened, row

KEY = {
    "kernel_name": KERNEL.encode(),
    "arch": b"gfx90a",
    "hip_version": b"6.2.41133",
    "generator_sum": SUM.hex().encode(),
}


def ask(path: Path, *, enabled: bool = True, **other: bytes) -> Reach:
    """The answer for the whole key, with some of its values otherwise; empty for not given."""
    values = {**KEY, **other}
    (reach,) = opened(path, enabled=enabled).explain(
        {name: (value,) for name, value in values.items() if value}
    )
    return reach


def _rows(*rows: Values) -> Callable[[Path], object]:
    return lambda path: database(path, rows)


_LIKE = KERNEL.replace("tpt_8", "tpt_4")
_OTHER_KEY = ["arch", "hip_version", "generator_sum"]
_CASES: dict[str, tuple[Callable[[Path], object], dict[str, bytes], str, list[str], str]] = {
    "the whole key": (_rows(row("other"), row()), {}, "hit", [], ""),
    "the integer of the version": (_rows(row()), {"hip_version": b"60241133"}, "hit", [], ""),
    "an architecture with features": (_rows(row()), {"arch": b"gfx90a:sramecc+:xnack-"}, "hit", [], ""),
    "another architecture": (_rows(row(arch="gfx908"), row(OTHER)), {}, "key-changed", ["arch"], ""),
    "another version": (_rows(row(version=60141133), row(OTHER)), {}, "key-changed", ["hip_version"], ""),
    "another sum": (_rows(row(total=bytes(32)), row(OTHER)), {}, "key-changed", ["generator_sum"], ""),
    "the kernel itself, nearer than a like one": (
        _rows(row(KERNEL + "_x"), row(KERNEL, "gfx908", 1, bytes(32))), {}, "key-changed", _OTHER_KEY, "",
    ),
    "the likest kernel": (_rows(row(OTHER), row(_LIKE)), {}, "key-changed", ["kernel_name"], ""),
    "nothing like it": (_rows(row("transpose")), {}, "never-built", [], ""),
    "no file": (repr, {}, "never-built", [], ""),
    "an empty file": (lambda path: path.touch(), {}, "never-built", [], ""),
    "no rows": (_rows(), {}, "never-built", [], ""),
    "junk": (lambda path: path.write_bytes(b"junk" * 100), {}, "corrupt", [], "not an SQLite database"),
    "other columns": (
        lambda path: database(path, schema="CREATE TABLE cache_v1 (a)"), {}, "corrupt", [], "no column",
    ),
    "code for another GPU": (_rows(row(data=code("gfx908"))), {}, "false-hit", [], "gfx908"),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_a_lookup_is_explained(name: str, tmp_path: Path) -> None:
    """Of the nearest row the values that differ, and what rocFFT would do."""
    make, wanted, verdict, labels, words = _CASES[name]
    make(tmp_path / "c.db")
    reach = ask(tmp_path / "c.db", **wanted)  # type: ignore[arg-type]
    assert (reach.verdict, [one.label for one in reach.differences]) == (verdict, labels)
    assert words in reach.detail and bool(reach.nearest) is (bool(labels) or "hit" in verdict)


@pytest.mark.parametrize("name", list(KEY))
def test_what_is_not_given_is_not_compared(tmp_path: Path, name: str) -> None:
    """One value alone is enough to ask for."""
    (reach,) = opened(database(tmp_path / "c.db", [row()])).explain({name: (KEY[name],)})
    assert reach.hit


def test_a_disabled_cache_is_not_consulted(tmp_path: Path) -> None:
    """Where reading is switched off the row that is there does not help."""
    assert ask(database(tmp_path / "c.db", [row()]), enabled=False).verdict == "not-consulted"


def test_a_row_without_code_is_corrupt(tmp_path: Path) -> None:
    """A row with the key and no code is told as damaged, the first of several, and only if none is sound."""
    path = database(tmp_path / "c.db", [row(data=b""), row(arch="gfx942", data=b"")])
    (first, _) = opened(path).scan()
    reach = ask(path, arch=b"")
    assert (reach.verdict, reach.nearest) == ("corrupt", first.key)
    database(tmp_path / "d.db", [row(data=b""), row(arch="gfx942")])
    assert ask(tmp_path / "d.db", arch=b"").hit


def test_rows_before_an_unfinished_change_answer(tmp_path: Path) -> None:
    """The rows that the next writer will find after rolling back are those that are looked through."""
    rows = [row(), *(row(f"kernel_{number}") for number in range(300))]
    assert ask(hot_journal(tmp_path / "c.db", rows)).hit


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({"colour": (b"red",)}, "ask for kernel_name, arch, hip_version, generator_sum"),
        ({}, "no field is given"),
        ({"kernel_name": ()}, "no field is given"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    tmp_path: Path, wanted: dict[str, tuple[bytes, ...]], words: str
) -> None:
    """A field that there is not, and no field at all, are refused with what there is."""
    with pytest.raises(UsageError, match=words):
        list(opened(tmp_path / "c.db").explain(wanted))


def test_hip_versions_are_written() -> None:
    """A HIP version is major, minor and patch in one integer."""
    assert format_hip(60241133) == "6.2.41133"
    assert format_hip(-1) == "-1"
