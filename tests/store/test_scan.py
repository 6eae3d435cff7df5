"""Findings of a scan of every entry, and those of the full check alone."""

import os

import pytest

from gpucache.store.directory import DirectoryStore
from gpucache.store.interface import Absent, Damaged, Found
from tests.store.conftest import build_entry, entry_path


def test_scan_tells_what_an_entry_is(store: DirectoryStore) -> None:
    """A scanned sound entry has key, head, allocated size and last use."""
    entry = build_entry()
    store.publish(entry)
    (scanned,) = store.scan()
    status = entry_path(store, entry).stat()
    assert (scanned.key, scanned.head, scanned.damage) == (entry.key, entry.head, None)
    assert scanned.path == entry_path(store, entry)
    assert scanned.allocated_bytes == status.st_blocks * 512
    assert scanned.identity.mtime_ns == entry.head.created_ns


def test_one_key_is_looked_at_as_a_scan_would(store: DirectoryStore) -> None:
    """The entry of one key is reported like the scan's, without a walk; an unknown key gives None."""
    store.publish(build_entry("a"))
    assert [store.look_at(build_entry("a").key)] == list(store.scan())
    assert store.look_at(build_entry("b").key) is None


def test_check_compares_the_digest_of_the_payload(store: DirectoryStore) -> None:
    """An entry whose head names another payload is corrupt, though its checksums match."""
    entry = build_entry()
    store.publish(entry._replace(head=entry.head._replace(payload_sha256="0" * 64)))
    (scanned,) = store.scan()
    assert isinstance(result := store.check(scanned), Damaged) and "SHA-256" in result.detail


def test_read_error_is_a_miss_that_quarantines_nothing(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk or server that fails to read proves nothing about an entry's bytes."""
    entry = build_entry()
    store.publish(entry)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", fail)
        result = store.get(entry.key)
        assert isinstance(result, Absent) and "Input/output error" in (result.reason or "")
        (scanned,) = store.scan()
        assert scanned.head is None and scanned.damage and "Input/output error" in scanned.damage.detail
        assert not store.quarantine(scanned, "odd")
    assert isinstance(store.get(entry.key), Found)
    assert entry_path(store, entry).exists()
