"""OpenVINO's compiled models, a file for each, in the directory that a program names with ``CACHE_DIR``.

Source: OpenVINO, ``src/inference/src/cache_manager.hpp`` and ``compilation_context.cpp``; checked against
files of OpenVINO 2023.3, 2024.6, 2025.0 and 2026.4 on a CPU, which compiles a model again and replaces its
file where it notices damage; it runs one with changed weights, or without its last byte. ``HASH.blob`` is a
line of XML with OpenVINO's version, and the plugin's data. The CPU's are six u64, offset and size of custom
data, constants and the model, and these three, one behind the other. Up to 2025 offsets count from the
file's beginning; in 2026 ``RR_UPCVO``, u32 1, u64 size of a text and the text precede the six, from which
offsets count. The GPU's drivers put kernels into ``HASH.cl_cache``.
"""

import re
import struct
from collections.abc import Sequence

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.portable import Moving
from gpucache.payload import describe
from gpucache.units import printable

_LINE = re.compile(rb'<\?xml version="1\.0"\?><compiled_blob ie_version="([^"\n]{0,200})"[^\n]*/>\n')
_CPU, _TEXT, _PARTS = b"RR_UPCVO\1\0\0\0", struct.Struct("<Q"), struct.Struct("<6Q")
_BEGINNING_BYTES = 8192
_AGAIN = "OpenVINO compiles the model again and replaces the file if it notices, and runs it as it is if not"


def _key(groups: Sequence[str]) -> str:
    return f"{int(groups[0]) % 2**64:016x}" + hashed(groups)[:24]


class Openvino(Format, of="openvino"):
    """The models that OpenVINO's plugins compiled."""

    layout = Layout([r"(\d{15,20})\.(blob|cl_cache)"], key=_key)
    served = "OpenVINO would load it if it is of the same version"
    moving = Moving(
        "a model that is read from a file is found by the file's path and time, so another model there would "
        "get its results; put CACHE_DIR and the models into one image"
    )

    def look(self, item: Files) -> CacheEntry:
        name, status = next(iter(item.seen.items()))
        start = item.part(name, 0, _BEGINNING_BYTES)
        if not start:
            return self.entry(item)._replace(damage=Problem(FindingKind.TRUNCATED, f"it is empty; {_AGAIN}"))
        if not name.endswith(".blob"):
            return self.entry(item)._replace(artifact_kind=describe(start).kind.value, shows=False)
        line = _LINE.match(start)
        if line is None:
            problem = Problem(FindingKind.MISLABELLED, f"it does not begin as OpenVINO's models do; {_AGAIN}")
            return self.entry(item)._replace(damage=problem)
        end = _end(start, line.end())
        missing = end - status.st_size
        detail = f"its last {missing} bytes are missing; {_AGAIN}"
        return self.entry(item)._replace(
            target="cpu" if end else "",
            artifact_kind="model",
            toolchain=(("OpenVINO", printable(line[1])),),
            damage=Problem(FindingKind.TRUNCATED, detail) if missing > 0 else None,
        )


def _end(start: bytes, at: int) -> int:
    """The end of a model for the CPU, as the beginning of its file gives it; 0 for other models."""
    origin = 0
    if start.startswith(_CPU, at):
        at += len(_CPU)
        (text_bytes,) = _TEXT.unpack_from(start.ljust(at + _TEXT.size, b"\0"), at)
        origin = at = at + _TEXT.size + text_bytes
    parts = start[at : at + _PARTS.size]
    if len(parts) < _PARTS.size:
        return at + _PARTS.size if origin else 0
    first, first_bytes, second, second_bytes, third, third_bytes = _PARTS.unpack(parts)
    is_table = (first, second) == (at + _PARTS.size, first + first_bytes) and third == second + second_bytes
    return int(origin + third + third_bytes) if origin or is_table else 0
