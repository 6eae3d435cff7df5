"""The locks that lower layers of vLLM hold."""

import fcntl
from pathlib import Path

from gpucache.caches.registry import of_others
from tests.caches.opened import opened
from tests.caches.vllm.build import put
from tests.payload.build import elf64

SYSTEM = of_others("vllm")


def test_a_library_of_a_lower_layer_that_is_being_compiled_stays(tmp_path: Path) -> None:
    """TorchInductor holds a lock for each."""
    inner = put(tmp_path).parent / "inductor_cache"
    name = f"c{'a' * 51}"
    (inner / "aa").mkdir(parents=True)
    (inner / "aa" / f"{name}.so").write_bytes(elf64(elf_type=3))
    (inner / "locks").mkdir()
    cache = opened(SYSTEM, tmp_path)
    (entry,) = (one for one in cache.scan() if one.artifact_kind == "library")
    with (inner / "locks" / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cache.remove(entry, "--all") is not None
    assert cache.remove(entry, "--all") is None
