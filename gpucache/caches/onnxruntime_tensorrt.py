"""ONNX Runtime's TensorRT engines: a file for each part of a model that its TensorRT provider took over.

Source: ONNX Runtime of 2021 to 2026, ``core/providers/tensorrt/tensorrt_execution_provider.cc``; no file
written on a GPU was available. A name has the graph or a program's own prefix, a hash of the model, its
parts, the precisions and, in newer versions, the architecture: ``.engine`` is a plan of TensorRT's,
``.stripped.engine`` one without weights, ``.engine.encrypted`` one in a program's own form, and ``.profile``
a map of flexbuffers with the shapes it was built for. ``TensorrtExecutionProvider_cache_smNN.timing`` has the
times of kernels. Files are written in place, without a lock, read unchecked, and never removed; versions of
ONNX Runtime and TensorRT are part of the hash, but not the weights.
"""

import re
from collections.abc import Iterator, Sequence

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.portable import Moving
from gpucache.caches.tensorrt import START_BYTES, is_plan, plan_problem, timing_problem, version
from gpucache.caches.torch_places import OnnxRuntimeTrtPlaces

_NAME = r"(.+)_(\d{15,20})((?:_\d+){1,2}(?:_[a-z]+\d+)*\+?)"
_GRAPH = "TensorrtExecutionProvider_TRTKernel_graph_"
_FAILS = (
    "ONNX Runtime never replaces it: sessions of the model fail, as with 'could not deserialize engine from "
    "cache', until it is removed"
)
_CRASHES = "ONNX Runtime reads it unchecked, so the program can crash, or run with wrong shapes"
_MAP = 9
"""Flexbuffers' type of a map, in the upper bits of the last byte but one; the last one is a width."""


def _key(groups: Sequence[str]) -> str:
    model = f"{int(groups[1]) % 2**64:016x}" if len(groups) > 1 else ""
    return (model + hashed(groups))[:40]


class OnnxRuntimeTrt(OnnxRuntimeTrtPlaces, FilesFormat):
    """The engines of ONNX models, the shapes they were built for, and the times of kernels."""

    layout = Layout(
        [
            rf"{_NAME}\.engine",
            rf"{_NAME}\.stripped\.engine",
            rf"{_NAME}\.engine\.encrypted",
            rf"{_NAME}\.profile",
            r"TensorrtExecutionProvider_cache_(sm\d+)\.timing",
        ],
        key=_key,
    )
    opaque = (
        "its files say nothing of the model but a hash of its name, its inputs and outputs, and of the "
        "versions of ONNX Runtime, CUDA and TensorRT"
    )
    served = "ONNX Runtime would load it, also if the weights of its model have changed"
    key_digits = 40
    shows = "an engine of TensorRT's"
    moving = Moving(
        "an engine has the weights of its model and is found without them, so another model would get its "
        "results; ship each engine with its model, as an EP context model"
    )

    def look(self, item: Files) -> CacheEntry:
        first = item.names[0]
        start = item.part(first, 0, START_BYTES)
        engine, timing = first.endswith(".engine"), first.endswith(".timing")
        found, arch = re.match(_NAME, first), re.search(r"_sm(\d+)", first)
        return self.entry(item)._replace(
            program=found[1].removeprefix(_GRAPH) if found else "",
            target=f"cuda:sm_{arch[1]}" if arch else "",
            artifact_kind="timing cache" if timing else "engine" if engine else "",
            toolchain=version(start) if engine else (),
            damage=next(self.check(item), None),
            shows=timing or (engine and is_plan(start)),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        for name, status in item.seen.items():
            start = item.part(name, 0, START_BYTES)
            problem = None
            if name.endswith(".timing"):
                problem = timing_problem(start)
            elif name.endswith(".engine"):
                problem = plan_problem(start, _FAILS)
            elif name.endswith(".profile"):
                problem = _profile_problem(item.part(name, max(0, status.st_size - 2), 2))
            if problem:
                yield problem

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        return sorted(names)


def _profile_problem(end: bytes) -> Problem | None:
    if len(end) < 2:
        return Problem(FindingKind.TRUNCATED, f"the profile of its shapes is empty; {_CRASHES}")
    if end[0] >> 2 != _MAP or end[1] not in (1, 2, 4, 8):
        detail = f"the profile of its shapes does not end as a map of flexbuffers; {_CRASHES}"
        return Problem(FindingKind.CORRUPT, detail)
    return None
