"""The hash of folder names, against values of libstdc++ on x86-64."""

import pytest

from gpucache.caches.sycl.naming import murmur64a

_VECTORS = (
    (b"", 6142509188972423790),
    (b"a", 4993892634952068459),
    (b"abc", 3663726644998027833),
    (b"abcdefg", 16063891478991045295),
    (b"abcdefgh", 8664279048047335611),
    (b"abcdefghi", 13036955925923793583),
    (b"\x31\x00\x33\x34\x00", 11120727974528640760),
    (b"x" * 1000, 8681964282549520334),
    (b"\xff\xfe\x80", 14556126092281874519),
    (b"-cl-fast-relaxed-math", 6586820193979656031),
    (
        b"Intel(R) OpenCL/Intel(R) Xeon(R) Processor/OpenCL 3.1 (Build 0)/2026.22.10.0.01_160000",
        807247836371013825,
    ),
)


@pytest.mark.parametrize(("data", "value"), _VECTORS, ids=lambda one: repr(one)[:20])
def test_it_hashes_as_libstdcxx_does(data: bytes, value: int) -> None:
    """Every length of tail, bytes above 127 and NULs, and a device string seen on a disk."""
    assert murmur64a(data) == value
