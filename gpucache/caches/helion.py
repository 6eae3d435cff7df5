"""Helion's autotuning records: for each kernel and shape a file of JSON with the fastest configuration.

Source: Helion 1.5.1, ``helion/autotuner/local_cache.py`` and ``base_cache.py``; no file written on a GPU was
available. ``<64 hex>.best_config`` has ``config``, itself JSON in a string, and ``key`` with the fields whose
text was hashed for the name, each as text, so the name cannot be computed from them. It is written to
``tmp.UUID`` and renamed. Next to it are Triton's and the CuTe DSL's own caches, and derived kernels.
"""

import json
from collections.abc import Iterator
from typing import Any

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left
from gpucache.units import printable

_LARGEST_BYTES = 16 << 20
_AGAIN = "Helion takes it for a miss and tunes the kernel again, which takes minutes"
_FIELDS = ("backend", "runtime_name", "specialization_key", "kernel_source_hash", "config_spec_hash")


class Helion(Format, of="helion"):
    """The configurations that Helion found by running kernels."""

    layout = Layout(
        [r"([0-9a-f]{64})\.best_config"],
        left=[Left(r"tmp\.[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")],
        own=["triton/", "cute/", "backward/"],
    )
    opaque = (
        "its records have the fields of their keys as text alone; compare two records of a kernel by "
        "'gpucache inspect --why KEY KEY'"
    )
    largest_bytes = _LARGEST_BYTES

    def look(self, item: Files) -> CacheEntry:
        record, problem = _record(item)
        fields = record.get("key", {}).get("fields", {})
        found = tuple((name, printable(fields[name], 120)) for name in _FIELDS if fields.get(name))
        return self.entry(item)._replace(
            program=dict(found).get("kernel_source_hash", "")[:12],
            target=printable(fields.get("hardware", ""), 80),
            artifact_kind="config",
            fields=found,
            damage=problem,
        )

    def inputs(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        record, _ = _record(item)
        fields = record.get("key", {}).get("fields", {})
        yield from ((name, value) for name, value in fields.items() if name not in _FIELDS)
        yield "config", record.get("config", "")

    def shows_left(self, start: bytes) -> bool:
        return start.startswith(b'{\n  "config": "')


def _record(item: Files) -> tuple[dict[str, Any], Problem | None]:
    data = item.read(item.names[0], _LARGEST_BYTES)
    if not data:
        return {}, Problem(FindingKind.TRUNCATED, f"it is empty; {_AGAIN}")
    try:
        record = json.loads(data)
        fields = record["key"]["fields"]
        if not isinstance(json.loads(record["config"]), dict) or not all(
            isinstance(value, str) for value in fields.values()
        ):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        cut = not data.rstrip().endswith(b"}")
        kind, words = (
            (FindingKind.TRUNCATED, "its end is missing")
            if cut
            else (FindingKind.CORRUPT, "it is not a record")
        )
        return {}, Problem(kind, f"{words}; {_AGAIN}")
    return record, None
