"""The reader of ``info``: what PyOpenCL writes reads, and nothing else does anything."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path

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


@given(st.binary(max_size=300))
@settings(max_examples=200, deadline=None)
def test_any_bytes_give_a_format_error(data: bytes) -> None:
    """Bytes that are no pickle of PyOpenCL's are refused and raise nothing else."""
    with pytest.raises(FormatError):
        read_info(data)


@given(st.integers(2, 5), st.data())
@settings(max_examples=300, deadline=None)
def test_mutated_pickles_give_data_or_a_format_error(protocol: int, data: st.DataObject) -> None:
    """A pickle with some bytes changed, taken away or put in is read as data or refused."""
    raw = bytearray(info(_DEPENDENCIES, "log", protocol))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(raw) - 1))
        raw[place : place + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=3))
        if not raw:
            break
    try:
        found = read_info(bytes(raw))
    except FormatError:
        return
    assert isinstance(found, BuildRecord)
    assert all(type(one.path) is str and type(one.mtime) is float for one in found.dependencies)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_every_cut_is_seen(protocol: int) -> None:
    """A pickle that ends early is reported as one that ends early."""
    whole = info(_DEPENDENCIES, "log", protocol)
    for end in range(len(whole)):
        with pytest.raises(EndedError):
            read_info(whole[:end])


class _Calling:
    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self._reduced = (call, arguments)

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self._reduced


@pytest.mark.parametrize("protocol", range(6))
def test_a_call_is_refused_and_not_made(tmp_path: Path, protocol: int) -> None:
    """A pickle that would run a command is refused, and the command has not run."""
    made = tmp_path / "made"
    with pytest.raises(FormatError):
        read_info(pickle.dumps(_Calling(os.system, f"touch {made}"), protocol))
    assert not made.exists()
    pickle.loads(pickle.dumps(_Calling(os.system, f"touch {made}"), protocol))
    assert made.exists()  # so it would have run


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_call_inside_the_right_class_is_refused(protocol: int) -> None:
    """A call hidden in the log of a right value is refused by the name it calls."""
    hidden = pickled(_SourceInfo([], _Calling(os.getcwd)), protocol)  # type: ignore[arg-type]
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


def test_a_long_length_allocates_nothing() -> None:
    """A text that claims more bytes than there are is a cut."""
    for text in (b"\x80\x04X\xff\xff\xff\x7f", b"\x80\x04\x8d" + b"\xff" * 7 + b"\x7f"):
        with pytest.raises(EndedError):
            read_info(text)


def test_a_list_within_itself_is_refused() -> None:
    """A value that holds itself is refused and ends."""
    with pytest.raises(FormatError):
        read_info(b"\x80\x02]q\x00h\x00a.")
