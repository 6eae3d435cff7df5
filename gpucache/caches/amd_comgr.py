"""The cache of AMD's code object manager, which compiles for HIP's run-time compilation and for OpenCL.

Source: ROCm/llvm-project, ``amd/comgr/src/comgr-cache.cpp`` and ``comgr-cache-command.cpp``, and LLVM's
``Caching.cpp``; no entry from an AMD machine was available. ``llvmcache-HEX`` is u64 size and the output of
one compile step, then u64 size and its log, in the machine's byte order, and nothing after that. The name is
a SHA of the compiler, its options and its inputs. Files are written under a temporary name and renamed, and
pruned by AMD_COMGR_CACHE_POLICY; an invalid file is compiled again.
"""

import sys
from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.layout import Layout, Left
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind, describe

_LENGTH_BYTES = 8
_SCANNED_BYTES = 64 << 10
_LARGEST_BYTES = 1 << 30
_AGAIN = "every program that asks for it compiles it again"
_CUT = Problem(FindingKind.TRUNCATED, f"it ends before its output and its log do; {_AGAIN}")


class AmdComgr(FilesFormat, of="amd-comgr"):
    """The outputs of comgr's compile steps, one file per step."""

    layout = Layout(
        ["llvmcache-([0-9a-f]{64})"],
        left=[Left(r"amdgpu-compiler-[0-9a-f]{6}\.tmp\.o", sure=True)],
        own=[r"llvmcache\.timestamp"],
    )
    wanted = {"key": "hex digits of an entry's name, behind llvmcache-"}
    opaque = (
        "its entries do not record the inputs of their keys; AMD_COMGR_EMIT_VERBOSE_LOGS=1 with "
        "AMD_COMGR_REDIRECT_LOGS=stderr logs hits and stores, and has separate keys"
    )
    shows = "a result of the compiler"

    def look(self, item: Files) -> CacheEntry:
        (name,), (status,) = item.names, item.seen.values()
        start = item.part(name, 0, _LENGTH_BYTES + _SCANNED_BYTES)
        size = _length(start)
        info = describe(start[_LENGTH_BYTES : _LENGTH_BYTES + size])
        problem = _CUT if size > status.st_size else None
        return self.entry(item)._replace(
            target=info.target,
            artifact_kind="" if info.kind is PayloadKind.UNKNOWN else info.kind.value,
            damage=problem,
            shows=problem is None,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        data = item.read(item.names[0])
        output = data[_LENGTH_BYTES:][: _length(data)]
        log = data[_LENGTH_BYTES + _length(data) :]
        end = _LENGTH_BYTES + _length(log)
        if len(log) < end:
            yield _CUT
        elif len(log) > end:
            yield Problem(FindingKind.CORRUPT, f"{len(log) - end} bytes follow its log; {_AGAIN}")
        elif (info := describe(output)).kind is not PayloadKind.UNKNOWN and info.problem:
            detail = f"the {info.kind.value} in it is broken: {info.problem}; it is served, so programs fail"
            yield Problem(FindingKind.CORRUPT, detail)

    def payload(self, item: Files) -> bytes:
        data = item.read(item.names[0])
        if len(data) < _LENGTH_BYTES + _length(data):
            raise FormatError(f"{item.path} ends before its output does")
        return data[_LENGTH_BYTES:][: _length(data)]


def _length(data: bytes) -> int:
    """The size at the beginning of a file; larger than any possible size if the file is too short."""
    if len(data) < _LENGTH_BYTES:
        return _LARGEST_BYTES << 8
    return int.from_bytes(data[:_LENGTH_BYTES], sys.byteorder)
