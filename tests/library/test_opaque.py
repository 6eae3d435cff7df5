"""Entries under keys that only their owner understands: served, counted, and explained by its description."""

from pathlib import Path

import pytest

from gpucache.assembly import open_stores
from gpucache.engine.stores import Stores
from gpucache.errors import CacheMissError
from gpucache.keys import cache_key
from gpucache.library import opaque
from gpucache.model import Entry
from gpucache.settings import read_settings

_OWNER = opaque.Owner("owner", "its owner", "it tells nothing")


@pytest.fixture
def stores(tmp_path: Path) -> Stores:
    """The stores of a root that does not exist yet."""
    return open_stores(read_settings({"GPUCACHE_DIR": str(tmp_path / "root")}))


def _entry(key: str, **described: str) -> Entry:
    fields = opaque.key_fields(_OWNER, key)
    target = "cuda:sm_90"
    return opaque.entry(
        fields, b"code", program="scale", target=target, kind="files", described=[*described.items()]
    )


def _verdict(stores: Stores) -> tuple[object, object]:
    assert stores.user is not None
    (record, *_) = stores.user.journal_tail(1)
    return record["verdict"], record["detail"]


def test_what_is_kept_is_found_under_the_key_of_its_owner_alone(stores: Stores) -> None:
    """Another key of the same owner misses."""
    made = _entry("a", warps="4")
    assert opaque.find(stores, _OWNER, made.key) is None
    assert opaque.keep(stores, _OWNER, made)
    found = opaque.find(stores, _OWNER, cache_key(opaque.key_fields(_OWNER, "a")))
    assert found is not None and found.payload == b"code"
    assert opaque.find(stores, _OWNER, _entry("b").key) is None


def test_a_miss_is_explained_by_the_nearest_description(stores: Stores) -> None:
    """First there is nothing; then the differing field is named; for equal ones only the key differs."""
    opaque.keep(stores, _OWNER, _entry("a", warps="4", stages="2"))
    assert _verdict(stores) == ("never-built", "nothing was built as scale for cuda:sm_90")
    opaque.keep(stores, _OWNER, _entry("b", warps="8", stages="3"))
    opaque.keep(stores, _OWNER, _entry("c", warps="4", stages="3"))
    verdict, detail = _verdict(stores)
    assert verdict == "key-changed" and str(detail).startswith("warps 8 -> 4 (nearest: ")
    opaque.keep(stores, _OWNER, _entry("d", warps="4", stages="3"))
    assert _verdict(stores) == ("opaque-key", "it tells nothing")


def test_an_evicted_entry_is_missed_as_evicted(stores: Stores) -> None:
    """With the rule that removed it."""
    made = _entry("a", warps="4")
    opaque.keep(stores, _OWNER, made)
    assert stores.user is not None
    (scanned,) = stores.user.scan()
    assert stores.user.remove(scanned, "--all") is None
    opaque.keep(stores, _OWNER, made)
    assert _verdict(stores) == ("evicted", "--all")


def test_a_damaged_entry_is_missed(stores: Stores, tmp_path: Path) -> None:
    """And is moved away."""
    made = _entry("a", warps="4")
    opaque.keep(stores, _OWNER, made)
    (file,) = tmp_path.rglob("*.gpc")
    file.write_bytes(file.read_bytes()[:-1] + b"?")
    assert opaque.find(stores, _OWNER, made.key) is None
    opaque.keep(stores, _OWNER, made)
    assert _verdict(stores)[0] == "corrupt"


def test_a_required_hit_raises(stores: Stores) -> None:
    """The lookup raises, as nothing was compiled yet."""
    with pytest.raises(CacheMissError, match="opaque-key: it tells nothing"):
        opaque.find(stores._replace(require=True), _OWNER, _entry("a").key)


def test_nothing_is_kept_where_nothing_may_be(stores: Stores, tmp_path: Path) -> None:
    """A cache that is disabled or read-only has no new files."""
    for state in (stores._replace(disabled=True), stores._replace(read_only=True)):
        assert not opaque.keep(state, _OWNER, _entry("a"))
    assert not [*tmp_path.iterdir()]
