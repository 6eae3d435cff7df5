"""Caches and locks of lower layers in vLLM's."""

import fcntl
from pathlib import Path

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.inductor import build as inductor
from tests.caches.opened import kinds, opened
from tests.caches.triton import build as triton
from tests.caches.vllm.build import put
from tests.payload.build import elf64

SYSTEM = of_others("vllm")


def test_caches_of_lower_layers_are_read_by_their_own_formats(tmp_path: Path) -> None:
    """So that what is wrong with one is found and removed."""
    rank = put(tmp_path).parent
    places = {name: rank / f"{name}_cache" for name in ("inductor", "triton")}
    graph = inductor.put(places["inductor"])
    triton.put(places["triton"])
    (places["inductor"] / "locks").mkdir()
    cache = opened(SYSTEM, tmp_path)
    told = {(one.program, one.target, one.artifact_kind) for one in cache.scan()}
    alone = [one for name, place in places.items() for one in opened(of_others(name), place).scan()]
    assert len(alone) == 2 and {(one.program, one.target, one.artifact_kind) for one in alone} < told
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]
    assert not list(cache.leftovers())
    graph.write_bytes(b"changed")
    (entry,) = (one for one in cache.scan() if one.artifact_kind == "compiled graph")
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.CORRUPT] and cache.repair(checked, entry).findings[0].repaired
    assert not graph.exists()


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
