"""Explanations: whether a lookup would be answered, and which of its four values is in the way."""

from pathlib import Path

import pytest

from gpucache.answers.why import Reach
from gpucache.caches.rocfft.database import format_hip
from gpucache.errors import UsageError
from gpucache.keys import Difference
from tests.caches.rocfft.build import KERNEL, OTHER, SUM, code, database, hot_journal, opened, row

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


def test_a_row_with_the_whole_key_is_a_hit(tmp_path: Path) -> None:
    """A lookup of a sound row is answered, and the entry is named."""
    path = database(tmp_path / "c.db", [row("other"), row()])
    reach = ask(path)
    assert reach.hit
    assert opened(path).find(reach.nearest)[0].program == KERNEL


@pytest.mark.parametrize("name", list(KEY))
def test_what_is_not_given_is_not_compared(tmp_path: Path, name: str) -> None:
    """One value alone is enough to ask for."""
    (reach,) = opened(database(tmp_path / "c.db", [row()])).explain({name: (KEY[name],)})
    assert reach.hit


def test_what_follows_the_architecture_is_left_out(tmp_path: Path) -> None:
    """An architecture with features is looked up without them."""
    assert ask(database(tmp_path / "c.db", [row()]), arch=b"gfx90a:sramecc+:xnack-").hit


@pytest.mark.parametrize(
    ("values", "label", "stored"),
    [
        (row(arch="gfx908"), "arch", "gfx908"),
        (row(version=60141133), "hip_version", "60141133, 6.1.41133"),
        (row(total=bytes(32)), "generator_sum", "00" * 32),
    ],
)
def test_the_value_in_the_way_is_named(
    tmp_path: Path, values: tuple[object, ...], label: str, stored: str
) -> None:
    """Of the nearest row the one value that differs is reported, with what is stored and what is wanted."""
    path = database(tmp_path / "c.db", [values, row(OTHER)])  # type: ignore[list-item]
    reach = ask(path)
    wanted = {"arch": "gfx90a", "hip_version": "6.2.41133", "generator_sum": SUM.hex()}[label]
    assert reach.verdict == "key-changed"
    assert reach.differences == (Difference(label, stored, wanted),)
    assert reach.nearest


def test_the_same_kernel_is_nearer_than_a_like_one(tmp_path: Path) -> None:
    """The kernel itself for other everything is reported rather than a like one for the rest of the key."""
    path = database(tmp_path / "c.db", [row(KERNEL + "_x"), row(KERNEL, "gfx908", 1, bytes(32))])
    reach = ask(path)
    assert [item.label for item in reach.differences] == ["arch", "hip_version", "generator_sum"]


def test_the_likest_kernel_is_told(tmp_path: Path) -> None:
    """Where no row has the kernel the one with the likest name is reported."""
    path = database(tmp_path / "c.db", [row(OTHER), row(KERNEL.replace("tpt_8", "tpt_4"))])
    reach = ask(path)
    assert reach.verdict == "key-changed"
    assert [item.label for item in reach.differences] == ["kernel_name"]
    assert "tpt_4" in str(reach.differences[0].left)


def test_nothing_like_it_was_never_built(tmp_path: Path) -> None:
    """Where nothing is like what is wanted it was never built."""
    reach = ask(database(tmp_path / "c.db", [row("transpose")]))
    assert (reach.verdict, reach.differences, reach.nearest) == ("never-built", (), "")


@pytest.mark.parametrize("name", ["missing.db", "empty.db", "table.db"])
def test_a_database_without_rows_never_built_it(tmp_path: Path, name: str) -> None:
    """A file that is missing, empty or has an empty table is nobody's fault."""
    (tmp_path / "empty.db").touch()
    database(tmp_path / "table.db")
    assert ask(tmp_path / name).verdict == "never-built"


def test_a_disabled_cache_is_not_consulted(tmp_path: Path) -> None:
    """Where reading is switched off the row that is there does not help."""
    assert ask(database(tmp_path / "c.db", [row()]), enabled=False).verdict == "not-consulted"


def test_junk_is_corrupt(tmp_path: Path) -> None:
    """A file that cannot be parsed is reported as damaged, not as empty."""
    (tmp_path / "c.db").write_bytes(b"junk" * 100)
    reach = ask(tmp_path / "c.db")
    assert (reach.verdict, "not an SQLite database" in reach.detail) == ("corrupt", True)


def test_a_table_with_other_columns_is_corrupt(tmp_path: Path) -> None:
    """A table that rocFFT's select does not fit is reported as damaged."""
    reach = ask(database(tmp_path / "c.db", schema="CREATE TABLE cache_v1 (a)"))
    assert (reach.verdict, "no column" in reach.detail) == ("corrupt", True)


def test_code_for_another_gpu_is_a_false_hit(tmp_path: Path) -> None:
    """rocFFT would serve a row whose code is for another GPU, and that is not a hit."""
    reach = ask(database(tmp_path / "c.db", [row(data=code("gfx908"))]))
    assert (reach.verdict, reach.hit) == ("false-hit", False)
    assert "gfx908" in reach.detail


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
