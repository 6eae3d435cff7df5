"""Lines of a recording: they read back as written, unions are unions, and what is damaged is refused."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpucache.recording import lines
from gpucache.recording.builds import RecordedBuild, Recording, Seen, union
from gpucache.recording.lines import DamagedLineError, build_line, read_line, seen_line
from tests.recording.builds import BUILDS, ONE, SEEN, alike

Three = tuple[Recording, Recording, Recording]


@given(BUILDS, SEEN)
def test_a_build_reads_back(build: RecordedBuild, seen: Seen) -> None:
    """A line says all that is known of a build, also where its texts hold any characters."""
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
    """A recording that is read twice, or copied into itself, says what it said."""
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
    """Whatever bytes a line has, it is a line or a damaged line, and nothing else is raised."""
    line = bytearray(build_line(ONE, Seen()))
    for _ in range(data.draw(st.integers(1, 4))):
        line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    try:
        read_line(bytes(line[: data.draw(st.integers(0, len(line)))]))
    except DamagedLineError as error:
        assert str(error)


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("source", "../../etc/passwd", "SHA-256"),
        ("source", 7, "SHA-256"),
        ("folders", ["../up"], "leads elsewhere"),
        ("folders", ["/etc"], "leads elsewhere"),
        ("headers", [{"path": "0/../../x", "digest": "b" * 64, "number": 0}], "leads elsewhere"),
        ("headers", [{"path": "0/x", "digest": "b" * 64, "number": -1}], "number"),
        ("options", "-DN=1", "not a list"),
        ("options", [["-DN=1"]], "text"),
        ("options", ["a\0b"], "text"),
        ("options", ["a" * (lines.TEXT_CAP + 1)], "at most"),
        ("options", [""] * (lines.LIST_CAP + 1), "more than"),
        ("language", "fortran", "language"),
        ("toolchain", [["one"]], "pair"),
        ("target", "opencl", "target"),
        ("target", "cuda:sm_90", "target"),
        ("artifact_kind", "exe", "kind"),
        ("memory_headers", [["a.h", "nothing"]], "SHA-256"),
    ],
)
def test_a_field_that_does_not_fit_is_told(name: str, value: object, told: str) -> None:
    """Paths stay below their folder, digests are digests, and every length has a bound."""
    values = json.loads(build_line(ONE, Seen()))
    values["build"][name] = value
    with pytest.raises(DamagedLineError, match=told):
        read_line(json.dumps(values).encode())


@pytest.mark.parametrize("size", [[0], [1, 2, 3, 4], ["8"], [1 << 40], 8])
def test_a_local_size_that_none_can_be_is_refused(size: object) -> None:
    """A size is at most three numbers above 0."""
    values = json.loads(build_line(ONE, Seen()))
    values["seen"]["local_sizes"] = [["twice", size]]
    with pytest.raises(DamagedLineError):
        read_line(json.dumps(values).encode())


def test_a_newer_format_is_told_as_such() -> None:
    """A line of another version is not half understood."""
    values = json.loads(build_line(ONE, Seen()))
    values["gpucache recording"] = 2
    with pytest.raises(DamagedLineError, match="newer gpucache"):
        read_line(json.dumps(values).encode())
