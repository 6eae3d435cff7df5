"""The key of a build, made as PyOpenCL makes it."""

import hashlib
from pathlib import Path

import pytest

from gpucache.caches.pyopencl.key import (
    all_options,
    key_of,
    version_numbers,
)
from gpucache.errors import UsageError
from tests.caches.pyopencl.build import DEVICE, SOURCE


def test_the_key_is_that_of_the_three_texts() -> None:
    """The key is the MD5 of the source, the options and PyOpenCL's own text of the device, joined."""
    text = "((2026, 1, 4), 'Mesa', 'rusticl', 'OpenCL 3.0', 'AMD', 'a device', 'OpenCL 3.0', '26.2.6')"
    expected = hashlib.md5(SOURCE + b"-DA=1 -I /x/pyopencl/cl" + text.encode()).hexdigest()
    assert key_of(SOURCE, "-DA=1 -I /x/pyopencl/cl", DEVICE, (2026, 1, 4)) == expected


@pytest.mark.parametrize("text", ["new", "1..2", "1.2-3", "1." * 20])
def test_what_is_no_version(text: str) -> None:
    """A text that PyOpenCL does not take for its version is refused."""
    with pytest.raises(UsageError, match="version"):
        version_numbers(text)


def test_a_version_with_a_status() -> None:
    """The status after a version's numbers is not part of the key."""
    assert version_numbers("2026.1.4rc1") == (2026, 1, 4)


def test_what_pyopencl_adds() -> None:
    """The directory of PyOpenCL's headers comes behind the options, and then those of the environment."""
    given, include, place, *others = all_options(["-DA"], {"PYOPENCL_BUILD_OPTIONS": "-DB  -DC"}).split()
    assert (given, include, Path(place).parts[-2:]) == ("-DA", "-I", ("pyopencl", "cl"))
    assert others == ["-DB", "-DC"]


def test_options_that_are_whole_already() -> None:
    """Options with such a directory, of this or another PyOpenCL, are taken as they are."""
    for given in (["-I", "/other venv/pyopencl/cl"], ["-I/other/pyopencl/cl"], ['-I "/o t/pyopencl/cl"']):
        assert all_options(given, {}) == " ".join(given)
