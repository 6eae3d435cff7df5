"""Whatever is in a cache: every question is answered, and a repaired cache has nothing wrong."""

import tempfile
from contextlib import suppress
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from gpucache.errors import CacheUnusableError, GpucacheError
from tests.caches.sycl.build import Made, copy, findings, opened, put, repaired, spirv, verified

SYSTEM = of_others("sycl")

_NAMES = st.sampled_from(
    ["0.bin", "0.src", "1.bin", "1.src", "2.bin", "3.src", "0_access_time.txt", "1_access_time.txt", "ir.bin"]
)


def _write(folder: Path, name: str, data: bytes, place: int, *, cut: bool) -> None:
    path = folder / name
    old = path.read_bytes() if path.exists() else b""
    path.write_bytes(old[:place] + data if cut else old[:place] + data + old[place + len(data) :])


@given(
    st.lists(
        st.tuples(_NAMES, st.binary(max_size=24), st.integers(0, 400), st.booleans()), min_size=1, max_size=4
    )
)
def test_any_damage_is_answered_and_repaired(damages: list[tuple[str, bytes, int, bool]]) -> None:
    """No exception but ours; after a repair every entry is sound and reached, or it is not libsycl's."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "cache"
        folder = put(root)
        copy(folder, 0, 1)
        for name, data, offset, cut in damages:
            _write(folder, name, data, offset, cut=cut)
        cache = opened(root)
        for _, entry in verified(cache):
            if entry is not None:
                try:
                    cache.report(entry)
                    cache.extract(entry)
                except GpucacheError:
                    pass
        list(cache.explain({"image": (Made().image,)}))

        repaired(root)

        # Beside what begins as none of libsycl's files nothing is moved, so a hole may remain.
        left = findings(root)
        assert not left or any(finding.kind is FindingKind.LEFTOVER for finding in left)


@given(st.lists(st.text(min_size=1, max_size=12).filter(lambda name: "/" not in name and "\0" not in name)))
def test_any_names_are_walked(names: list[str]) -> None:
    """Foreign names are reported at once, never an error but that it is not a cache."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "cache"
        root.mkdir()
        for name in names:
            if name not in (".", "..") and len(name.encode("utf-8", "surrogatepass")) < 200:
                try:
                    (root / name).mkdir(exist_ok=True)
                except (OSError, UnicodeError):
                    continue
        SYSTEM.recognises(root)
        with suppress(CacheUnusableError):
            opened(root)
        put(root)

        assert all(checked.findings for checked, entry in verified(opened(root)) if entry is None)


@given(st.binary(max_size=40))
def test_any_size_file_is_told_or_read(data: bytes) -> None:
    """And made a true size by a repair where it was neither sound nor near, but what is none stays."""
    with tempfile.TemporaryDirectory() as place:
        root = Path(place) / "cache"
        put(root, Made(image=spirv("k")))
        (root / "cache_size.txt").write_bytes(data)

        repaired(root)

        left = findings(root)
        assert not left or (root / "cache_size.txt").read_bytes() == data
        assert not left or "move it elsewhere" in left[0].detail
