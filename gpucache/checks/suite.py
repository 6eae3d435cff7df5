"""What ``bench --checks`` runs of the kernels in ``gpucache/examples/checks``. Pure data."""

from dataclasses import dataclass

LOCAL_SIZE = 128


@dataclass(frozen=True, slots=True)
class Case:
    """One kernel of the suite; its items hold whole groups of ``LOCAL_SIZE``."""

    kernel: str
    kind: str
    """What is typical of it, for people."""
    items: int
    launches: int
    """How many launches one sample times, each on what the one before wrote."""
    reads: bool = False
    """Whether the host reads a number after every launch."""


SUITE = (
    Case("gather", "indices from data", 1 << 18, 20),
    Case("scatter", "indices from data", 1 << 18, 20),
    Case("stencil", "many indices", 1 << 18, 20),
    Case("reduce", "barriers", 1 << 16, 20),
    Case("scan", "barriers", 1 << 16, 20),
    Case("steps", "small launches, read between", 1 << 10, 100, reads=True),
)
