"""Malicious entries, in a program that stops at undefined behaviour in C."""

import random
import subprocess
from pathlib import Path

import xxhash

from gpucache.keys import cache_key, digest
from gpucache.model import Entry, EntryDetail, EntryHead, KeyField
from gpucache.store.format import HEADER, encode
from gpucache.store.layout import entry_name

_PTX = (
    b"// by hand\n.version 8.5\n.target sm_90a, debug\n.visible .entry k(.param .u64 p)\n{\n\tret; // 1\n}\n"
)


def test_changed_entries_are_read_within_their_bytes(scan_program: Path, tmp_path: Path) -> None:
    """Heads and PTX with a changed byte or a cut, whose sums are those of the changed bytes."""
    chance = random.Random(1)
    head = EntryHead("a.cu", "cuda:compute_90a", "ptx", 1_700_000_000_000_000_000, 1, "0" * 64, "cuda-c++")
    names = []
    for number in range(1500):
        payload, detail = _changed(chance, _PTX), EntryDetail((KeyField("number", str(number)),))
        made = head._replace(options=("-DA=1",), place="ab", payload_sha256=digest(payload))
        entry = Entry(cache_key(detail.key_fields), made, detail, payload)
        names.append(entry_name(entry.key))
        (tmp_path / names[-1]).write_bytes(_with_changed_head(chance, encode(entry)))
    said = subprocess.run([scan_program, *names], cwd=tmp_path, capture_output=True, text=True, check=True)
    apart, plain = map(int, said.stdout.split())
    assert 1000 < apart < 3000 and 500 < plain < 1500, said.stderr


def test_parts_of_a_head_take_no_more_room_than_the_head(scan_program: Path, tmp_path: Path) -> None:
    """A head of the largest size whose numbers have one digit, which have as much room as those of others."""
    detail = EntryDetail((KeyField("number", "1"),))
    head = EntryHead("", "cuda:compute_90a", "ptx", 0, 0, digest(_PTX), "cuda-c++")
    empty = Entry(cache_key(detail.key_fields), head, detail, _PTX)
    missing = 4096 - HEADER.unpack_from(encode(empty))[2]
    name = entry_name(empty.key)
    (tmp_path / name).write_bytes(encode(empty._replace(head=head._replace(program="p" * missing))))
    subprocess.run([scan_program, name], cwd=tmp_path, capture_output=True, check=True)


def _changed(chance: random.Random, data: bytes) -> bytes:
    """Some bytes with one of them changed, with their end cut off, or as they are."""
    at = chance.randrange(len(data))
    if chance.random() < 0.4:
        return data
    return data[:at] + chance.choice([b"", bytes([chance.randrange(256)]) + data[at + 1 :]])


def _with_changed_head(chance: random.Random, data: bytes) -> bytes:
    """The bytes of an entry with another head, and sums that match."""
    _, _, size, detail, payload, *_ = HEADER.unpack_from(data)
    head, told = _changed(chance, data[HEADER.size :][:size]), data[HEADER.size + size :][:detail]
    begin = -(-(HEADER.size + len(head) + detail) // 64) * 64
    front = HEADER.pack(b"GPUCACHE", 1, len(head), detail, payload, begin + payload, 0, data[48:80], b"", b"")
    sums = xxhash.xxh3_128_digest(front[:80] + head + told) + data[96:112]
    return (front[:80] + sums + head + told).ljust(begin, b"\0") + data[len(data) - payload :]
