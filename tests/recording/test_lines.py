"""Lines of a recording: they are read back as written, unions are unions, and damaged ones are refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.recording.builds import (
    LIST_CAP,
    TEXT_CAP,
    DamagedLineError,
    RecordedBuild,
    Recording,
    Seen,
    build_line,
    read_line,
    seen_line,
    union,
)
from tests.recording.builds import BUILDS, ONE, SEEN, alike

Three = tuple[Recording, Recording, Recording]


@given(BUILDS, SEEN)
def test_a_build_reads_back(build: RecordedBuild, seen: Seen) -> None:
    """A line has all facts of a build, whatever characters are in its texts."""
    read = read_line(build_line(build, seen))
    assert (read.build, read.seen, read.of) == (build, seen, build.digest)


@given(SEEN)
def test_what_was_seen_later_reads_back(seen: Seen) -> None:
    """A short line adds to a build by its digest."""
    read = read_line(seen_line(ONE.digest, seen))
    assert (read.build, read.seen, read.of) == (None, seen, ONE.digest)


@given(alike())
def test_a_union_does_not_depend_on_order(three: Three) -> None:
    """Files may be read in any order, and in any groups."""
    one, other, third = three
    assert one.union(other) == other.union(one)
    assert one.union(other).union(third) == one.union(other.union(third))
    assert union(three).rows() == union(reversed(three)).rows()


@given(alike())
def test_a_union_with_itself_changes_nothing(three: Three) -> None:
    """A recording that is read twice, or copied into itself, is unchanged."""
    whole = union(three)
    assert whole.union(whole) == whole
    assert all(whole.union(part) == whole for part in three)


@given(SEEN, SEEN)
def test_a_union_loses_nothing_that_was_seen(one: Seen, other: Seen) -> None:
    """Sizes and kinds are those of either, and the first command is the earlier one's."""
    both = one.union(other)
    assert both.local_sizes == one.local_sizes | other.local_sizes
    assert (both.built, both.refused) == (one.built or other.built, one.refused or other.refused)
    assert all(
        each.first is None or (both.first is not None and both.first <= each.first) for each in (one, other)
    )


@given(SEEN)
def test_counters_are_no_part_of_a_digest(seen: Seen) -> None:
    """The same build seen otherwise is the same build."""
    assert read_line(build_line(ONE, seen)).of == read_line(build_line(ONE, Seen())).of


@given(st.data())
def test_a_changed_line_is_read_or_refused(data: st.DataObject) -> None:
    """Any bytes are a valid line or a damaged line, and nothing else is raised."""
    line = bytearray(build_line(ONE, Seen()))
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_line(bytes(line[: data.draw(st.integers(0, len(line)))]))
    except DamagedLineError as error:
        assert str(error)


_BAD: dict[str, list[object]] = {
    "source": ["../../etc/passwd", 7, "a" * 63, "a" * 64 + "\n"],
    "folders": [["../up"], ["/etc"], ["0/../x"], ["0//x"], ["0/"], ["."], [""], ["x" * 256], ["a\0b"]],
    "headers": [
        [{"path": "0/../../x", "digest": "b" * 64, "number": 0}],
        [{"path": "0/x", "digest": "b" * 64, "number": -1}],
        [{"path": "0/x", "digest": "b" * 64, "number": True}],
        [{"path": "/".join("a" * 257), "digest": "b" * 64, "number": 0}],
        [["0/x", "b" * 64, 0]],
    ],
    "includes": [[{"name": "a.h", "digest": "b"}], [["a.h", None]], [{"digest": None}]],
    "options": ["-DN=1", [["-DN=1"]], ["a\0b"], ["a" * (TEXT_CAP + 1)], [""] * (LIST_CAP + 1)],
    "language": ["fortran", None],
    "toolchain": [[["one"]], [["a", "b", "c"]], [["a", 1]], {"a": "b"}],
    "target": ["opencl", "cuda:sm_90", "opencl:"],
    "artifact_kind": ["exe"],
    "memory_headers": [[["a.h", "nothing"]]],
    "made_up": [1, "true"],
    "local_sizes": [[["twice", size]] for size in ([0], [1, 2, 3, 4], ["8"], [1 << 40], [1.0], 8)],
    "roots": ["/", [["a", 1]], [[""] * (LIST_CAP + 1)]],
    "calls": [[["/"]], [{"roots": [], "directory": "/"}]],
    "first": [[1], [-1, "a"], [1, "a" * 5000], "now"],
    "compile_ns": [-1, 1 << 63, 1.5],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, bad in _BAD.items() for value in bad])
def test_a_field_that_does_not_fit_is_refused(name: str, value: object) -> None:
    """Paths stay below their directory, digests are digests, and every length and number is bounded."""
    values = json.loads(build_line(ONE, Seen()))
    values["seen" if name in values["seen"] else "build"][name] = value
    with pytest.raises(DamagedLineError, match=name):
        read_line(json.dumps(values).encode())


_LINE = json.loads(build_line(ONE, Seen()))


@pytest.mark.parametrize(
    ("part", "name"), [(part, name) for part in ("build", "seen") for name in _LINE[part]]
)
def test_a_missing_field_is_told(part: str, name: str) -> None:
    """Older lines have no questions, some no calls or no first; any other missing field is damage."""
    values = {**_LINE, part: {field: value for field, value in _LINE[part].items() if field != name}}
    if name in {"calls", "questions", "first"}:
        assert read_line(json.dumps(values).encode()).of == ONE.digest
    else:
        with pytest.raises(DamagedLineError, match=f"no '{name}'"):
            read_line(json.dumps(values).encode())


def test_a_path_that_leads_elsewhere_is_told_as_such() -> None:
    """The message describes the expected text, and not the pattern that it does not match."""
    values = {**_LINE, "build": {**_LINE["build"], "folders": ["../up"]}}
    with pytest.raises(
        DamagedLineError, match=r"^Expected a path that stays below its base.* at build.folders\[0\]$"
    ):
        read_line(json.dumps(values).encode())


def test_a_newer_format_is_told_as_such() -> None:
    """A line of another version is not read in part."""
    with pytest.raises(DamagedLineError, match="newer gpucache"):
        read_line(json.dumps({**_LINE, "gpucache recording": 2}).encode())
