"""Entries of one process as bytes, in the memory of another."""

import pytest

import gpucache
from gpucache.library import process
from gpucache.store.interface import Found
from tests.store.conftest import build_entry

ENTRIES = [build_entry(seed) for seed in "abc"]


@pytest.fixture
def bundle(monkeypatch: pytest.MonkeyPatch) -> bytes:
    """The bundle of a process that has these entries in memory."""
    monkeypatch.setenv("GPUCACHE_MEMORY_BYTES", "1000K")
    memory = process.stores().memory
    assert memory is not None
    for entry in ENTRIES:
        memory.publish(entry)
    return gpucache.bundle()


def restored() -> list[tuple[bytes, str]]:
    """The payloads and logs that a process then has."""
    memory = process.stores().memory
    found = [None if memory is None else memory.get(entry.key) for entry in ENTRIES]
    return [(one.payload, one.log) for one in found if isinstance(one, Found)]


def test_a_bundle_has_payloads_and_logs(bundle: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process has all of them, with the compiler's logs, which no directory has."""
    monkeypatch.setenv("GPUCACHE_MEMORY_BYTES", "1001K")
    assert gpucache.restore(bundle) == 3
    assert restored() == [(entry.payload, "a log") for entry in ENTRIES]


def test_a_damaged_bundle_is_restored_up_to_its_damage(
    bundle: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """No entry with a changed byte is kept, and the log says so."""
    damaged = bytearray(bundle)
    damaged[bundle.index(ENTRIES[1].payload)] ^= 1
    monkeypatch.setenv("GPUCACHE_MEMORY_BYTES", "1002K")
    kept = gpucache.restore(bytes(damaged))
    assert (kept, len(restored())) == (1, 1)
    assert "a bundle is damaged" in caplog.text


def test_a_bundle_beyond_the_memory_is_said(
    bundle: bytes, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The number of entries that are kept comes back."""
    monkeypatch.setenv("GPUCACHE_MEMORY_BYTES", "1500")
    assert gpucache.restore(bundle) == 1
    assert "2 entries of a bundle exceed GPUCACHE_MEMORY_BYTES" in caplog.text


def test_nothing_is_restored_where_the_cache_is_off(bundle: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """GPUCACHE_DISABLE=1 also turns bundles off."""
    monkeypatch.setenv("GPUCACHE_DISABLE", "1")
    assert gpucache.restore(bundle) == 0
