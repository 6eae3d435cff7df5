"""The lines of a log that Futhark writes with -L."""

from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.futhark.format import read_log
from tests.caches.futhark.build import OPENCL_OPTIONS, OPTIONS, cuda_log

_ASKING = b"Restoring cache from from my.cache..."
_RESTORED = b"Restored PTX from cache; now loading module..."


def test_cuda_options_are_read() -> None:
    """The list ends at its empty line."""
    reading = read_log(cuda_log(OPTIONS, b"\tnot an option"))
    assert (reading.backend, reading.options) == ("cuda", OPTIONS)


def test_hip_options_are_read() -> None:
    """HIP's list has another heading, and may be the end of the log."""
    reading = read_log(b"HIPRTC build options:\n\t--gpu-architecture=gfx90a\n\t-DX=1")
    assert (reading.backend, reading.options) == ("hip", (b"--gpu-architecture=gfx90a", b"-DX=1"))


def test_opencl_options_are_one() -> None:
    """OpenCL's string stays whole."""
    reading = read_log(b"Lockstep width: 32\nOpenCL compiler options: " + OPENCL_OPTIONS + b"\nBuilding\n")
    assert (reading.backend, reading.options) == ("opencl", (OPENCL_OPTIONS,))


def test_other_line_ends_are_read() -> None:
    """A log that went through Windows gives the same options."""
    log = cuda_log(OPTIONS, _ASKING)
    assert read_log(log.replace(b"\n", b"\r\n")) == read_log(log)


def test_the_last_start_counts() -> None:
    """A log of two starts reports the second."""
    first = cuda_log((b"-G",), _ASKING, b"Failed to restore cache (errno: Success)", b"Caching PTX in x...")
    reading = read_log(first + cuda_log(OPTIONS))
    assert reading.options == OPTIONS


_LINES = st.sampled_from(
    [
        b"NVRTC compile options:",
        b"HIPRTC build options:",
        b"OpenCL compiler options: -DX",
        b"\t-DX=1",
        b"",
        _ASKING,
        _RESTORED,
        b"Failed!",
        b"Failed to restore cache (errno: ",
        b"Failed to cache PTX: ",
    ]
)


@given(st.lists(_LINES | st.binary(max_size=30), max_size=20).map(b"\n".join))
def test_any_bytes_are_read(log: bytes) -> None:
    """Whatever the log, no option is longer than it, and there are options only with a backend."""
    reading = read_log(log)
    assert sum(map(len, reading.options or ())) <= len(log)
    assert (reading.options is None) == (reading.backend == "")
