"""Rows that arrive from a store."""

import struct
from pathlib import Path

import pytest
import xxhash

from gpucache.answers.entries import Location
from gpucache.caches.own import OwnCache
from gpucache.caches.portable import OWN_MODE, PortableEntry, PortableFile
from gpucache.serve.row_cache import NAME, RowCache
from gpucache.store.directory import DirectoryStore
from gpucache.store.records import Row, encode


@pytest.mark.parametrize("fields", [(b"",) * 3 + (b"0",) * 4, (b"",) * 3 + (b"0",) * 3])
def test_a_row_without_an_entry_is_none(tmp_path: Path, fields: tuple[bytes, ...]) -> None:
    """Whoever signed it, the pull goes on."""
    store = DirectoryStore(tmp_path, writable=True)
    cache = RowCache(OwnCache(store, Location("gpucache", str(tmp_path), "", enabled=True)))
    body = b"".join(struct.pack("<I", len(field)) + field for field in fields)
    file = encode([Row(1, 2, struct.pack("<Q", xxhash.xxh64_intdigest(body)) + body)])
    [found] = cache.restore([PortableEntry(NAME, "key", (PortableFile("v1/rows/2.row", file, OWN_MODE),))])
    assert (found.done, found.damaged) == (False, True)


def test_a_row_that_does_not_read_is_not_sent(tmp_path: Path) -> None:
    """Its sum is right, so nothing else tells; the push goes on."""
    store = DirectoryStore(tmp_path, writable=True)
    cache = RowCache(OwnCache(store, Location("gpucache", str(tmp_path), "", enabled=True)))
    for number, body in enumerate((b"", b"a", struct.pack("<I", 9) * 9)):
        row = Row(1, number, struct.pack("<Q", xxhash.xxh64_intdigest(body)) + body)
        assert store.rows.keep(row.name, lambda _, row=row: [row])  # type: ignore[misc]
    assert len(list(store.rows.each())) == 3
    assert list(cache.of({})) == []
    assert cache.having({})(f"{64 * 'a'}-{1:016x}-{16 * '0'}", ())
