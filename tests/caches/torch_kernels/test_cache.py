"""PyTorch's jiterator kernels, told by their names."""

import os
from pathlib import Path

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.opened import kinds, only, opened
from tests.caches.torch_kernels.build import name, put

SYSTEM = of_others("torch-kernels")


def test_a_kernel_has_its_name_target_and_nvrtc(tmp_path: Path) -> None:
    """All three are in the file's name."""
    put(tmp_path)
    entry = only(opened(SYSTEM, tmp_path))
    assert (entry.program, entry.target) == ("digamma", "cuda:compute_90")
    assert entry.toolchain == (("NVRTC", "12.6"),)


def test_another_binary_and_a_writers_file_are_found(tmp_path: Path) -> None:
    """PyTorch loads an entry unchecked; a killed writer leaves its own file."""
    put(tmp_path).write_bytes(b"garbage")
    left = tmp_path / f"{name(1)}_tmp_123"
    left.touch()
    os.utime(left, (0, 0))
    cache = opened(SYSTEM, tmp_path)
    assert kinds(cache.check(only(cache))) == [FindingKind.MISLABELLED]
    assert [kinds(one) for one in cache.leftovers()] == [[FindingKind.LEFTOVER]]
