"""The lines of the journal: every miss with its verdict, and each process's hits and misses."""

import os
import time

from gpucache.answers.lookup import Miss
from gpucache.engine.prepare import Prepared
from gpucache.engine.store_layers import Layers


def note_miss(layers: Layers, prepared: Prepared, miss: Miss, *, noted: bool = False) -> None:
    """Write a miss down; ``noted`` says that ``warm --misses`` can build it."""
    if layers.target is not None:
        layers.target.journal(miss_record(layers, prepared, miss, time.time_ns()) | {"noted": noted})


def note_process(layers: Layers, hits: int, misses: int) -> None:
    """Write down the hits and misses of a process at its end, or when its work is done."""
    if layers.target is not None:
        layers.target.journal(
            {
                "kind": "process",
                "when_ns": time.time_ns(),
                "command": layers.command,
                "pid": os.getpid(),
                "hits": hits,
                "misses": misses,
            }
        )


def miss_record(layers: Layers, prepared: Prepared, miss: Miss, now_ns: int) -> dict[str, object]:
    """The journal's record of a miss."""
    return {
        "kind": "miss",
        "when_ns": now_ns,
        "program": prepared.request.program.name,
        "target": str(prepared.request.target),
        "key": str(prepared.key),
        "verdict": miss.verdict.value,
        "detail": miss.detail,
        "differences": [
            {"label": item.label, "left": item.left, "right": item.right} for item in miss.differences[:8]
        ],
        "command": layers.command,
        "pid": os.getpid(),
    }
