"""TensorRT's plans and timing caches, whose beginnings show damage; several owners keep such files.

Source: NVIDIA's ``trtexec`` (``samples/common/sampleEngines.cpp``) and Torch-TensorRT, which compare the tag;
TensorRT itself is not public, and no file written on a GPU was available. A plan begins with ``ftrt``, u32
serialization version and, for version 0, TensorRT's version in the bytes 24 to 27; before TensorRT 8.6 with
another tag, by reports ``ptrt``. Its size and sections, and the tag of a timing cache, are not documented, so
a missing end is not seen.
"""

import re
from collections.abc import Iterator, Sequence

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import pickles
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.portable import Moving
from gpucache.payload.containers import PLAN_START_BYTES, PLAN_TAG, is_plan, plan_version


def plan_problem(start: bytes, end: str) -> Problem | None:
    """The problem of a plan by its first ``PLAN_START_BYTES``; ``end`` is the effect on a program."""
    if not start:
        return Problem(FindingKind.TRUNCATED, f"its engine is empty; {end}")
    if not is_plan(start):
        detail = f"its engine begins with {start[:8].hex(' ')}, not as a plan of TensorRT's; {end}"
        return Problem(FindingKind.MISLABELLED, detail)
    if len(start) < PLAN_START_BYTES:
        return Problem(FindingKind.TRUNCATED, f"its engine ends in its header; {end}")
    return None


def timing_problem(start: bytes) -> Problem | None:
    """The problem of a timing cache by its first bytes; an empty one is a new one."""
    if not start or start.strip(b"\0"):
        return None
    detail = "it begins with zeros, not with a tag: TensorRT does not use it, or builds of engines fail"
    return Problem(FindingKind.CORRUPT, detail)


_TIMING = "timing_cache.bin"
_ENGINE = "serialized_engine"
_FAILS = "Torch-TensorRT takes it unchecked, so compiling the model ends with an error at every start"
_BEGINNING_BYTES = 4096
_NAMES = pickles.Names.of(
    "Torch-TensorRT",
    r"torch_tensorrt\.(?:_Input|_Device|_enums|dynamo\._settings|dynamo\._engine_cache):_?[A-Z]\w*",
    r"torch:(?:Size|Tensor|device|[a-z]+\d+\w*|bool|contiguous_format|channels_last)|pathlib:Posix(?:Pure)?Path",
    r"collections:(?:OrderedDict|defaultdict)|builtins:(?:set|list|frozenset)",
)


class TorchTensorrt(Format, of="torch-tensorrt"):
    """The engines that Torch-TensorRT built with ``cache_built_engines``, and the times of kernels.

    Source: Torch-TensorRT 2.14, ``py/torch_tensorrt/dynamo/_engine_cache.py``, ``_defaults.py`` and
    ``conversion/_conversion.py``; no file written on a GPU was available. A directory is named by up to three
    SHA-256 in base 32, of the graph, the inputs and the settings; ``blob.bin`` is a pickle of a dict, whose
    ``serialized_engine`` is a plan of TensorRT's, mostly without weights. Pickles run code when they are
    loaded; gpucache never unpickles them. An engine is taken unchecked, and the oldest go from 5 GB on, by
    the times of their directories. ``timing_cache.bin`` has the times of kernels. Files are written in place,
    without a lock.
    """

    layout = Layout(
        [r"((?:[a-z2-7]{51}){1,3})/blob\.bin", r"(timing_cache)\.bin"],
        signs=[r"(?:[a-z2-7]{51}){1,3}"],
        key=hashed,
    )
    folders_removed = 1

    def look(self, item: Files) -> CacheEntry:
        (name,) = item.names
        start = item.part(name, 0, _BEGINNING_BYTES)
        if name == _TIMING:
            problem = timing_problem(start)
            return self.entry(item)._replace(artifact_kind="timing cache", damage=problem, shows=False)
        at = start.find(PLAN_TAG, start.find(_ENGINE.encode()))
        return self.entry(item)._replace(
            artifact_kind="engine",
            toolchain=plan_version(start[at : at + PLAN_START_BYTES]) if at > 0 else (),
            damage=_problem(start),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        (name,) = item.names
        data = item.read(name)
        if problem := timing_problem(data[:PLAN_START_BYTES]) if name == _TIMING else _problem(data):
            yield problem
        elif name != _TIMING:
            engine, why = _unpacked(data)
            if why:
                yield Problem(why.kind, f"it {why.detail}; {_FAILS}")
            elif problem := plan_problem(engine[:PLAN_START_BYTES], _FAILS):
                yield problem

    def payload(self, item: Files) -> bytes:
        data = super().payload(item)
        return _unpacked(data)[0] or data


def _problem(start: bytes) -> Problem | None:
    if not start:
        return Problem(FindingKind.TRUNCATED, "it is empty; Torch-TensorRT builds the engine again")
    if not start.startswith(b"\x80"):
        return Problem(FindingKind.MISLABELLED, f"it does not begin as a pickle; {_FAILS}")
    return None


def _unpacked(data: bytes) -> tuple[bytes, Problem | None]:
    """The plan in a pickle, empty if there is none, or why the pickle is broken."""
    values, why = pickles.values(data, 1, _NAMES)
    after = values[values.index(_ENGINE) + 1 :] if _ENGINE in values else []
    return next((one for one in after if isinstance(one, bytes)), b""), why


_NAME = r"(.+)_(\d{15,20})((?:_\d+){1,2}(?:_[a-z]+\d+)*\+?)"
_GRAPH = "TensorrtExecutionProvider_TRTKernel_graph_"
_ORT_FAILS = (
    "ONNX Runtime never replaces it: sessions of the model fail, as with 'could not deserialize engine from "
    "cache', until it is removed"
)
_CRASHES = "ONNX Runtime reads it unchecked, so the program can crash, or run with wrong shapes"
_MAP = 9
"""Flexbuffers' type of a map, in the upper bits of the last byte but one; the last one is a width."""


def _key(groups: Sequence[str]) -> str:
    model = f"{int(groups[1]) % 2**64:016x}" if len(groups) > 1 else ""
    return (model + hashed(groups))[:40]


class OnnxRuntimeTrt(Format, of="onnxruntime-trt"):
    """The engines of ONNX models, the shapes they were built for, and the times of kernels.

    Source: ONNX Runtime of 2021 to 2026, ``core/providers/tensorrt/tensorrt_execution_provider.cc``; no file
    written on a GPU was available. A name has the graph or a program's own prefix, a hash of the model, its
    parts, the precisions and, in newer versions, the architecture: ``.engine`` is a plan of TensorRT's,
    ``.stripped.engine`` one without weights, ``.engine.encrypted`` one in a program's own form, and
    ``.profile`` a map of flexbuffers with the shapes it was built for.
    ``TensorrtExecutionProvider_cache_smNN.timing`` has the times of kernels. Files are written in place,
    without a lock, read unchecked, and never removed; versions of ONNX Runtime and TensorRT are part of the
    hash, but not the weights.
    """

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
    served = "ONNX Runtime would load it, also if the weights of its model have changed"
    moving = Moving(
        "an engine has the weights of its model and is found without them, so another model would get its "
        "results; ship each engine with its model, as an EP context model"
    )

    def look(self, item: Files) -> CacheEntry:
        first = item.names[0]
        start = item.part(first, 0, PLAN_START_BYTES)
        engine, timing = first.endswith(".engine"), first.endswith(".timing")
        found, arch = re.match(_NAME, first), re.search(r"_sm(\d+)", first)
        return self.entry(item)._replace(
            program=found[1].removeprefix(_GRAPH) if found else "",
            target=f"cuda:sm_{arch[1]}" if arch else "",
            artifact_kind="timing cache" if timing else "engine" if engine else "",
            toolchain=plan_version(start) if engine else (),
            damage=next(self.check(item), None),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        for name, status in item.seen.items():
            start = item.part(name, 0, PLAN_START_BYTES)
            problem = None
            if name.endswith(".timing"):
                problem = timing_problem(start)
            elif name.endswith(".engine"):
                problem = plan_problem(start, _ORT_FAILS)
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
