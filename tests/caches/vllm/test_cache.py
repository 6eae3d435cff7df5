"""Caches and locks of lower layers in vLLM's."""

import fcntl
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from gpucache.errors import FormatError
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


def test_lists_of_what_moved_name_the_new_place(tmp_path: Path) -> None:
    """vLLM's of graphs, and Triton's below it; code for a CPU stays."""
    rank = put(tmp_path / "there").parent
    triton.put(rank / "triton_cache")
    code = inductor.put_module(rank / "inductor_cache", b"# AOT ID\ncpp_pybinding(\n")
    cache = opened(SYSTEM, tmp_path / "there")
    entries = [one for one in cache.scan() if Path(one.path).parent != code.parent]
    packed = [cache.pack(one) for one in entries]
    (left,) = (one for one in cache.scan() if one not in entries)
    with pytest.raises(FormatError, match="vector instructions"):
        cache.pack(left)
    (tmp_path / "there").rename(tmp_path / "gone")
    here = opened(SYSTEM, tmp_path / "here")
    assert [one.done for one in here.restore(packed)] == [True, True]
    assert not [one for entry in here.scan() for one in here.check(entry).findings]
    lists = [*(tmp_path / "here").rglob("vllm_compile_cache.py"), *(tmp_path / "here").rglob("__grp__*")]
    assert [f"{path.parent}/" in path.read_text() for path in lists] == [True, True]
    assert not [path for path in lists if str(tmp_path / "there") in path.read_text()]
