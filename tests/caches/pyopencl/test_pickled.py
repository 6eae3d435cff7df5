"""The reader of ``info``: what PyOpenCL writes reads, and nothing else does anything."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.caches.pyopencl.entries import BuildRecord, Dependency, EndedError, read_info
from gpucache.errors import FormatError
from tests.caches.pyopencl.build import _SourceInfo, info, pickled

_DEPENDENCIES = [("/a/x.h", 1.5, "0" * 32), ("/a/y.h", 2.5, "0" * 32)]
_paths = st.text(st.characters(codec="utf-8"), max_size=300)
_dependencies = st.lists(st.tuples(_paths, st.floats(allow_nan=False), st.just("f" * 32)), max_size=6)


@given(_dependencies, st.none() | st.text(max_size=400), st.integers(2, 5))
@settings(max_examples=100, deadline=None)
def test_what_pyopencl_writes_reads(
    dependencies: list[tuple[str, float, str]], log: str | None, protocol: int
) -> None:
    """Every protocol that Python has written gives back the dependencies and the log."""
    expected = BuildRecord(tuple(Dependency(*one) for one in dependencies), log or "")
    assert read_info(info(dependencies, log, protocol)) == expected


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_cut_is_seen(protocol: int) -> None:
    """A pickle that ends early is reported as one that ends early."""
    whole = info(_DEPENDENCIES, "log", protocol)
    for end in range(len(whole)):
        with pytest.raises(EndedError):
            read_info(whole[:end])


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_call_inside_the_right_class_is_refused(protocol: int) -> None:
    """A call hidden in the log of a right value is refused by the name it calls."""
    hidden = pickled(_SourceInfo([], os.getcwd), protocol)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="getcwd"):
        read_info(hidden)


def _without_a_log() -> _SourceInfo:
    value = object.__new__(_SourceInfo)
    object.__setattr__(value, "dependencies", [])
    return value


@pytest.mark.parametrize(
    "value",
    [
        "text",
        _without_a_log(),
        [],
        _SourceInfo([("/a", 1.0)], ""),  # type: ignore[list-item]
        _SourceInfo([("/a", "1", "f")], ""),  # type: ignore[list-item]
        _SourceInfo([], 1.0),  # type: ignore[arg-type]
    ],
)
def test_other_values_are_refused(value: object) -> None:
    """A value of another shape is refused, whatever it is made of."""
    with pytest.raises(FormatError):
        read_info(pickled(value, 4))


def test_bytes_behind_the_value_are_not_read() -> None:
    """PyOpenCL loads the first value alone."""
    assert read_info(info() + b"N.x") == read_info(info())
