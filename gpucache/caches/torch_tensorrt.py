"""Torch-TensorRT's engines, a directory for each, and its timing cache, among temporary files by default.

Source: Torch-TensorRT 2.14, ``py/torch_tensorrt/dynamo/_engine_cache.py``, ``_defaults.py`` and
``conversion/_conversion.py``; no file written on a GPU was available. A directory is named by up to three
SHA-256 in base 32, of the graph, the inputs and the settings; ``blob.bin`` is a pickle of a dict, whose
``serialized_engine`` is a plan of TensorRT's, mostly without weights. Pickles run code when they are loaded;
gpucache never unpickles them. An engine is taken unchecked, and the oldest go from 5 GB on, by the times of
their directories. ``timing_cache.bin`` has the times of kernels. Files are written in place, without a lock.
"""

from collections.abc import Iterator

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import pickles
from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.layout import Layout, hashed
from gpucache.caches.tensorrt import START_BYTES, TAG, plan_problem, timing_problem, version
from gpucache.caches.torch_places import TorchTensorrtPlaces

_TIMING = "timing_cache.bin"
_ENGINE = "serialized_engine"
_FAILS = "Torch-TensorRT takes it unchecked, so compiling the model ends with an error at every start"
_BEGINNING_BYTES = 4096


class TorchTensorrt(TorchTensorrtPlaces, FilesFormat):
    """The engines that Torch-TensorRT built with ``cache_built_engines``, and the times of kernels."""

    layout = Layout(
        [r"((?:[a-z2-7]{51}){1,3})/blob\.bin", r"(timing_cache)\.bin"],
        signs=[r"(?:[a-z2-7]{51}){1,3}"],
        key=hashed,
    )
    opaque = "its entries keep an engine's inputs and settings as a pickle, which gpucache does not unpickle"
    served = "Torch-TensorRT would load it and put the model's weights into it"
    key_digits = 40
    shows = "an engine of Torch-TensorRT's"
    folders_removed = 1

    def look(self, item: Files) -> CacheEntry:
        (name,) = item.names
        start = item.part(name, 0, _BEGINNING_BYTES)
        if name == _TIMING:
            problem = timing_problem(start)
            return self.entry(item)._replace(artifact_kind="timing cache", damage=problem, shows=False)
        at = start.find(TAG, start.find(_ENGINE.encode()))
        return self.entry(item)._replace(
            artifact_kind="engine",
            toolchain=version(start[at : at + START_BYTES]) if at > 0 else (),
            damage=_problem(start),
            shows=not start or _ENGINE.encode() in start,
        )

    def check(self, item: Files) -> Iterator[Problem]:
        (name,) = item.names
        data = item.read(name)
        if problem := timing_problem(data[:START_BYTES]) if name == _TIMING else _problem(data):
            yield problem
        elif name != _TIMING:
            engine, why = _unpacked(data)
            if why:
                yield Problem(why.kind, f"it {why.detail}; {_FAILS}")
            elif problem := plan_problem(engine[:START_BYTES], _FAILS):
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
    values, why = pickles.values(data, 1)
    after = values[values.index(_ENGINE) + 1 :] if _ENGINE in values else []
    return next((one for one in after if isinstance(one, bytes)), b""), why
