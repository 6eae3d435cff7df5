"""Files laid by the rules of TorchInductor's cache, and what is said of those that break them."""

from pathlib import Path

import pytest

from gpucache.caches.inductor import SYSTEM
from gpucache.outcomes import FindingKind, Location
from tests.caches.inductor.build import GRAPH, put
from tests.caches.opened import kinds


def test_a_graph_is_one_entry_with_all_its_guards(tmp_path: Path) -> None:
    """Graphs with gradients lie beside the others."""
    put(tmp_path)
    put(tmp_path, data=b"for other guards")
    put(tmp_path, kind="aotautograd")
    cache = SYSTEM.open(Location("inductor", str(tmp_path), "--cache", enabled=True))
    found = sorted((entry.artifact_kind, dict(entry.fields)["versions"]) for entry in cache.scan())
    assert found == [("compiled graph", "2"), ("compiled graph with gradients", "1")]
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]


@pytest.mark.parametrize(("data", "kind"), [(b"", FindingKind.TRUNCATED), (GRAPH[:-1], FindingKind.CORRUPT)])
def test_a_file_that_is_not_called_by_what_it_holds_is_found_and_removed(
    data: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """With its folder; other graphs stay."""
    other = put(tmp_path, 1)
    path = put(tmp_path)
    path.write_bytes(data)
    cache = SYSTEM.open(Location("inductor", str(tmp_path), "--cache", enabled=True))
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and cache.repair(checked, entry).findings[0].repaired
    assert not path.parent.exists() and other.exists()


@pytest.mark.parametrize(
    ("environ", "place", "decided_by"),
    [
        ({"USER": "me"}, "/tmp/torchinductor_me", "default"),
        ({"USER": "me", "LOGNAME": "you", "TMPDIR": "/scratch"}, "/scratch/torchinductor_you", "TMPDIR"),
        ({"USER": "me", "TORCHINDUCTOR_CACHE_DIR": "/caches"}, "/caches", "TORCHINDUCTOR_CACHE_DIR"),
    ],
)
def test_it_lies_among_temporary_files_unless_a_variable_moves_it(
    environ: dict[str, str], place: str, decided_by: str
) -> None:
    """The most common reason for a cold start after a boot."""
    (location,) = SYSTEM.locations(environ)
    assert (location.root, location.decided_by) == (place, decided_by)
