"""Files laid by the rules of CuPy's kernel cache."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from gpucache.caches.registry import of_others
from tests.caches.cupy.build import file_bytes, put
from tests.caches.opened import only, opened
from tests.caches.triton.build import CUBIN

_WITH_NAMES = file_bytes(names=("_Z5scaleIfEvPT_", "_Z5scaleIdEvPT_"))


@given(st.binary(max_size=120) | st.integers(0, 150).map(lambda cut: _WITH_NAMES[:cut]))
def test_whatever_a_file_holds_raises_nothing(data: bytes) -> None:
    """It is sound, or has one finding, which a scan may not see yet."""
    with TemporaryDirectory() as folder:
        put(Path(folder), data=data)
        cache = opened(of_others("cupy"), Path(folder))
        entry = only(cache)
        assert bool(cache.check(entry).findings) is bool(entry.damage)


def test_a_cubin_without_its_last_zero_is_sound_and_given_whole(tmp_path: Path) -> None:
    """CuPy stores each cubin without its last byte."""
    put(tmp_path, data=file_bytes(CUBIN[:-1]))
    cache = opened(of_others("cupy"), tmp_path)
    entry = only(cache)
    assert not entry.damage and not cache.check(entry).findings and cache.extract(entry) == CUBIN
