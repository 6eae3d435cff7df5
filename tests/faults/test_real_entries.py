"""Wrong bytes in entries of real compilers: each is noticed at any offset, before a driver gets the bytes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import HEADER
from gpucache.store.interface import Absent, Damaged, Found, ScannedEntry
from tests.faults.conftest import own
from tests.patience import PATIENCE_S
from tests.pocl import need_pocl
from tests.trials import tell, trials

_SOURCES = {
    "twice.cl": "__kernel void twice(__global float *a) { a[get_global_id(0)] *= 2; }\n",
    "twice.cu": 'extern "C" __global__ void twice(float *a) { a[threadIdx.x] *= 2; }\n',
}
_VERSION = range(8, 12)
_MASKS = (0xFF, 0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80)
pytestmark = [pytest.mark.slow, pytest.mark.stress]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory, icd_vendors: Path) -> DirectoryStore:
    """An entry each of Intel's runtime, of PoCL if it compiles, and of NVRTC a cubin and PTX."""
    place = tmp_path_factory.mktemp("real")
    for name, text in _SOURCES.items():
        (place / name).write_text(text, encoding="ascii")
    command = [sys.executable, "-m", "gpucache", "--root", str(place / "root"), "warm"]
    for source, *targets in (("twice.cl",), ("twice.cu", "cuda:sm_90", "cuda:compute_90")):
        chosen = [word for target in targets for word in ("--target", target)]
        environment = {**os.environ, "OCL_ICD_VENDORS": str(icd_vendors)}
        subprocess.run(
            [*command, str(place / source), *chosen],
            env=environment,
            capture_output=True,
            check=True,
            timeout=PATIENCE_S,
        )
    return DirectoryStore(place / "root", writable=False)


@pytest.fixture(params=["opencl:intel", "opencl:pocl", "cuda:sm_90", "cuda:compute_90"])
def scanned(store: DirectoryStore, request: pytest.FixtureRequest) -> ScannedEntry:
    if "pocl" in request.param:
        need_pocl()
    found = [one for one in store.scan() if one.head and one.head.target.startswith(request.param)]
    assert len(found) == 1, request.param
    return found[0]


@pytest.fixture
def kept(scanned: ScannedEntry) -> Iterator[int]:
    """The open file of an entry, which is restored afterwards."""
    sound = scanned.path.read_bytes()
    fd = os.open(scanned.path, os.O_RDWR)
    yield fd
    os.close(fd)
    scanned.path.write_bytes(sound)


def _name(scanned: ScannedEntry) -> str:
    assert scanned.head is not None
    return f"an entry for {scanned.head.target} of {scanned.identity.size_bytes} bytes"


def _told_by_verify(store: DirectoryStore, scanned: ScannedEntry) -> bool:
    """Whether verify has a finding about an entry as it is now, checked alone and with all."""
    cache = own(store)
    (entry,) = cache.find(scanned.key.hex)
    of_all = [checked for one, checked in cache.checked() if one.key == entry.key]
    alone = cache.check(entry)
    assert of_all == [alone]
    return bool(alone.findings)


def test_every_changed_byte_is_seen(store: DirectoryStore, scanned: ScannedEntry, kept: int) -> None:
    """A hit and verify notice it; only a changed version makes it an entry of another version."""
    sound = scanned.path.read_bytes()
    step, masks = trials(max(1, len(sound) // 150), 1), _MASKS[: trials(1, len(_MASKS))]
    offsets = sorted({*range(HEADER.size), *range(0, len(sound), step), len(sound) - 1})
    failures: list[object] = []
    for offset in offsets:
        for mask in masks:
            os.pwrite(kept, bytes([sound[offset] ^ mask]), offset)
            answer = store.get(scanned.key)
            if not isinstance(answer, Absent if offset in _VERSION else Damaged):
                failures.append((offset, mask, answer))
        if not _told_by_verify(store, scanned):
            failures.append((offset, 0, "verify"))
        os.pwrite(kept, sound[offset : offset + 1], offset)
    tell(f"changed bytes of {_name(scanned)}", len(offsets) * len(masks), len(failures))
    assert failures == []
    assert isinstance(store.get(scanned.key), Found)


def test_every_truncation_is_seen(store: DirectoryStore, scanned: ScannedEntry, kept: int) -> None:
    """A cut entry is truncated, for a hit and for verify."""
    size = scanned.path.stat().st_size
    lengths = range(size - 1, -1, -trials(max(1, size // 150), 1))
    failures: list[object] = []
    for length in lengths:
        os.ftruncate(kept, length)
        answer = store.get(scanned.key)
        if not isinstance(answer, Damaged) or answer.damage is not FindingKind.TRUNCATED:
            failures.append((length, answer))
        if not _told_by_verify(store, scanned):
            failures.append((length, "verify"))
    tell(f"cuts of {_name(scanned)}", len(lengths), len(failures))
    assert failures == []
