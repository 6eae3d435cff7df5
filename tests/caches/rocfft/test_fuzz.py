"""Whatever a file holds, only errors of ours come out, and nothing is read beyond it."""

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpucache.caches.databases import words
from gpucache.caches.registry import of_others
from gpucache.caches.rocfft.database import misfit
from gpucache.caches.rocfft.export import image, merge, restore
from gpucache.errors import GpucacheError
from gpucache.payload import describe
from tests.caches.rocfft.build import KERNEL, Values, code, database, dead_wal, hot_journal, opened, row

SYSTEM = of_others("rocfft")

pytestmark = pytest.mark.slow

T = TypeVar("T")
_QUIET = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def _sample(make: str) -> dict[str, bytes]:
    """The bytes of a real database of some rows, by suffix."""
    rows = [row(f"kernel_{number}", data=code(size=number * 100)) for number in range(60)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.db")
        makers: dict[str, Callable[[Path, list[Values]], Path]] = {
            "plain": database,
            "wal": dead_wal,
            "journal": hot_journal,
        }
        makers[make](path, rows)
        return {item.name.removeprefix("c.db"): item.read_bytes() for item in Path(folder).iterdir()}


_SAMPLES = {make: _sample(make) for make in ("plain", "wal", "journal")}
_FLIPS = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=8)


def _read_everything(path: Path) -> None:
    """Call all that reads, and let no other error through than ours."""
    SYSTEM.recognises(path)
    cache = opened(path)
    for entry in _tried(lambda: list(cache.scan())) or []:
        for read_one in (cache.check, cache.report, cache.extract):
            _tried(partial(read_one, entry))
    _tried(lambda: list(cache.leftovers()))
    _tried(lambda: list(cache.explain({"kernel_name": (KERNEL.encode(),), "arch": (b"gfx90a",)})))
    _tried(lambda: merge([path], path.with_name("out.db")))
    _tried(lambda: image(path))
    _tried(lambda: restore(path, path.with_name("restored.db")))


def _fix_everything(path: Path) -> None:
    cache = opened(path)
    for entry in (_tried(lambda: list(cache.scan())) or [])[:3]:
        cache.remove(entry, "fuzz")
    _tried(cache.finish_removals)
    for checked in _tried(lambda: list(cache.leftovers())) or []:
        _tried(partial(cache.repair, checked, None))


def _tried(call: Callable[[], T]) -> T | None:
    try:
        return call()
    except GpucacheError:
        return None


def _flipped(data: bytes, flips: list[tuple[float, int]], reach: float) -> bytes:
    """Some bytes of the first part of a file changed."""
    changed = bytearray(data)
    for place, mask in flips:
        changed[int(place * reach * len(changed))] ^= mask
    return bytes(changed)


@_QUIET
@given(st.binary(max_size=400), st.booleans())
def test_random_bytes(data: bytes, begin: bool) -> None:
    """Any bytes, also behind the beginning of a database, are read to an end."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rocfft_kernel_cache.db")
        path.write_bytes(b"SQLite format 3\0" + data if begin else data)
        _read_everything(path)
        _fix_everything(path)


@_QUIET
@given(st.sampled_from(sorted(_SAMPLES)), _FLIPS, st.sampled_from([0.005, 0.1, 1.0]), st.data())
def test_flipped_bytes(make: str, flips: list[tuple[float, int]], reach: float, data: st.DataObject) -> None:
    """A real database, its log or its journal with some bytes changed is read to an end."""
    files = dict(_SAMPLES[make])
    suffix = data.draw(st.sampled_from(sorted(files)))
    files[suffix] = _flipped(files[suffix], flips, reach)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "rocfft_kernel_cache.db")
        for name, content in files.items():
            Path(f"{path}{name}").write_bytes(content)
        _read_everything(path)
        _fix_everything(path)


@_QUIET
@given(st.sampled_from(sorted(_SAMPLES)), st.floats(0, 1))
def test_cuts(make: str, share: float) -> None:
    """A real database cut anywhere is read to an end."""
    files = _SAMPLES[make]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "c.db")
        for name, content in files.items():
            Path(f"{path}{name}").write_bytes(content)
        path.write_bytes(files[""][: int(len(files[""]) * share)])
        _read_everything(path)
        _fix_everything(path)


@_QUIET
@given(st.binary(max_size=200), st.integers(0, 8), st.text(max_size=20))
def test_code_of_any_bytes(data: bytes, cut: int, arch: str) -> None:
    """Any code is something, and fits its architecture or does not."""
    for content in (data, code()[: cut * 8] + data):
        assert describe(content).kind
        misfit(content, arch)


def test_what_sqlite_says_is_made_printable() -> None:
    """Neither control characters nor marks of what is no text reach a terminal, and no more than a line."""
    said = words("near \x1b[31m\ufffd\n" + "x" * 500)
    assert said.isprintable()
    assert "\ufffd" not in said
    assert len(said) < 130
