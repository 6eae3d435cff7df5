"""The facts that a source alone shows."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpucache.caches.pyopencl import entries
from tests.caches.pyopencl.build import DEFEAT, SOURCE


@given(st.binary(max_size=200))
@settings(max_examples=100, deadline=None)
def test_the_added_line_is_taken_off(source: bytes) -> None:
    """A stored source is what its program wrote, whatever that was."""
    assert entries.as_written(source + DEFEAT) == source


def test_a_source_without_the_line_stays() -> None:
    """A source that was not stored by PyOpenCL, or has the line elsewhere, is left as it is."""
    for source in (SOURCE, DEFEAT + SOURCE, SOURCE + DEFEAT.replace(b"= 0", b"= 1")):
        assert entries.as_written(source) == source


@pytest.mark.parametrize(
    "line",
    [
        b'#include "a.h" // why',
        b"#include <a.h> /* why */",
        b'#include "a.h";',
        b'#include"a.h"',
    ],
)
def test_an_include_that_pyopencl_does_not_see(line: bytes) -> None:
    """An include with anything behind it, or no space before it, is one that PyOpenCL passes over."""
    assert entries.unfollowed(line + b"\nint x;") == ("a.h",)


def test_a_macro_that_stands_for_a_header() -> None:
    """A header named by a macro is passed over, too."""
    assert entries.unfollowed(b"#include HEADER\n") == ("HEADER",)


def test_includes_that_pyopencl_sees() -> None:
    """Plain includes are followed, in their order, and so not passed over."""
    source = b'#include "a.h"\n  #  include <b.h>  \r\nint x;'
    assert list(entries.followed(source)) == [b"a.h", b"b.h"]
    assert entries.unfollowed(source) == ()


@given(
    st.lists(
        st.sampled_from([b"kernel ", b"void ", b"__attribute__((", b"))", b"(", b"#include ", b'"', b"\n"])
    )
)
@settings(max_examples=100, deadline=None)
def test_any_text_is_read(parts: list[bytes]) -> None:
    """Text of the words that are looked for never raises."""
    source = b"".join(parts) * 50
    assert isinstance(entries.unfollowed(source), tuple)
