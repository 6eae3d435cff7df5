"""Folders laid by the rules of vLLM's compile cache, and what is said of those that break them."""

import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.why import Served
from gpucache.caches.registry import of_others
from tests.caches.inductor import build as inductor
from tests.caches.opened import PTX, kinds, only, opened
from tests.caches.triton import build as triton
from tests.caches.vllm.build import ARTIFACT, artifact, digits, put
from tests.payload.build import elf64

SYSTEM = of_others("vllm")


def test_a_part_of_a_model_is_an_entry_with_its_graphs_and_hashes(tmp_path: Path) -> None:
    """The digits of its folder find it."""
    put(tmp_path)
    cache = opened(SYSTEM, tmp_path)
    entry = only(cache)
    assert (entry.program, entry.artifact_kind) == ("rank_0_0/backbone", "compiled graphs")
    assert dict(entry.fields) == {
        "graphs": "1",
        "code_hash": "c0de",
        "config_hash": "0",
        "compiler_hash": "c",
    }
    assert not cache.check(entry).findings and cache.extract(entry) == artifact()
    (reach,) = cache.explain({"key": (digits(0).encode(),)})
    assert reach.verdict is Served.HIT


def test_two_folders_differ_by_what_their_names_were_made_from(tmp_path: Path) -> None:
    """Variables by name, and hashes."""
    put(tmp_path, 0, VLLM_USE_DEEP_GEMM="0")
    put(tmp_path, 1, VLLM_USE_DEEP_GEMM="1")
    cache = opened(SYSTEM, tmp_path)
    reports = [{one.label: one.value for one in cache.report(entry).key_fields} for entry in cache.scan()]
    differing = {label for label in reports[0] if reports[0][label] != reports[1][label]}
    assert differing == {"key", "config_hash", "env VLLM_USE_DEEP_GEMM"}


def test_whole_models_and_caches_of_lower_layers_are_entries(tmp_path: Path) -> None:
    """The latter as their own formats read them, so that what is wrong with one is found and removed."""
    rank = put(tmp_path).parent
    model = tmp_path / "torch_compile_cache" / "torch_aot_compile" / ("ab" * 32) / "rank_0_0" / "model"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"model")
    graph = inductor.put(rank / "inductor_cache")
    (rank / "inductor_cache" / "locks").mkdir()
    triton.put(rank / "triton_cache")
    cache = opened(SYSTEM, tmp_path)
    found = {entry.artifact_kind: entry for entry in cache.scan()}
    assert set(found) == {"compiled graphs", "compiled model", "compiled graph", "ptx"}
    assert not [one for entry in found.values() for one in cache.check(entry).findings]
    assert found["ptx"].target == "cuda:sm_90" and cache.extract(found["ptx"]) == PTX
    assert not list(cache.leftovers())
    graph.write_bytes(b"changed")
    (entry,) = (one for one in cache.scan() if one.artifact_kind == "compiled graph")
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.CORRUPT] and cache.repair(checked, entry).findings[0].repaired
    assert not graph.exists()


def _artifact_changed(folder: Path) -> None:
    (folder / ARTIFACT).write_bytes(artifact()[:-1] + b"!")


def _artifact_empty(folder: Path) -> None:
    (folder / ARTIFACT).write_bytes(b"")


def _artifact_gone(folder: Path) -> None:
    (folder / ARTIFACT).unlink()


def _list_gone(folder: Path) -> None:
    (folder / "vllm_compile_cache.py").unlink()


@pytest.mark.parametrize(
    ("damage", "kind", "words"),
    [
        (_artifact_changed, FindingKind.CORRUPT, "CRC-32"),
        (_artifact_empty, FindingKind.TRUNCATED, "is empty"),
        (_artifact_gone, FindingKind.TRUNCATED, "vllm_compile_cache.py names"),
        (_list_gone, FindingKind.ORPHAN, "compiles every graph again"),
    ],
)
def test_damage_is_reported_with_what_comes_of_it_and_repaired(
    damage: Callable[[Path], None], kind: FindingKind, words: str, tmp_path: Path
) -> None:
    """A repair removes that part of the model, and leaves other models."""
    other, folder = put(tmp_path, 1), put(tmp_path)
    damage(folder)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find(digits(0))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and words in checked.findings[0].detail
    if kind.wrong:
        assert cache.repair(checked, entry).findings[0].repaired
        assert not folder.exists() and other.exists()


def test_an_artifact_without_a_checksum_is_not_judged_by_one(tmp_path: Path) -> None:
    """PyTorch of early 2025 began with a length."""
    folder = put(tmp_path)
    (folder / ARTIFACT).write_bytes(artifact()[4:])
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings


def test_a_graph_where_a_lower_layer_has_its_cache_is_a_stranger(tmp_path: Path) -> None:
    """No part of a model is called so."""
    folder = put(tmp_path)
    folder.rename(folder.parent / "inductor_cache")
    cache = opened(SYSTEM, tmp_path)
    assert not list(cache.scan())
    assert {kind for one in cache.leftovers() for kind in kinds(one)} == {FindingKind.LEFTOVER}


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


def test_a_list_of_variables_that_does_not_read_is_no_damage(tmp_path: Path) -> None:
    """vLLM only writes it, for people; of one that is very large nothing is told."""
    path = put(tmp_path) / "cache_key_factors.json"
    with path.open("r+b") as file:
        file.truncate(5 << 20)
    entry = only(opened(SYSTEM, tmp_path))
    assert entry.damage is None and dict(entry.fields) == {"graphs": "1"}
