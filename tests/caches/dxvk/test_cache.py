"""Files laid by the rules of DXVK's shader cache, and what is said of those that break them."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.dxvk.build import SHADER, lut, put, row
from tests.caches.opened import kinds, only, opened

SYSTEM = of_others("dxvk")


def test_the_two_files_of_a_program_are_an_entry(tmp_path: Path) -> None:
    """With the version that wrote them; they go together."""
    path = put(tmp_path, content=lut(row(), row(at=len(SHADER), more=5)), shaders=2 * SHADER + bytes(5))
    cache = opened(SYSTEM, tmp_path)
    (entry,) = cache.find("abcd")
    assert (entry.artifact_kind, entry.toolchain) == ("dxvk-shaders", (("DXVK", "v3.0"),))
    assert not cache.check(entry).findings
    assert cache.extract(entry) == 2 * SHADER + bytes(5)
    assert cache.remove(entry, "--all") is None and not list(tmp_path.iterdir())
    assert not path.exists()


@pytest.mark.parametrize("content", [lut(), lut(row())])
def test_a_program_may_have_listed_less_than_it_wrote(content: bytes, tmp_path: Path) -> None:
    """As one that was stopped had no time to list it, and one that used no shader lists none."""
    put(tmp_path, content=content, shaders=SHADER + b"not listed yet")
    cache = opened(SYSTEM, tmp_path)
    assert not cache.check(only(cache)).findings


@pytest.mark.parametrize(
    ("content", "shaders", "kind"),
    [
        (b"", SHADER, FindingKind.CORRUPT),
        (b"DXVK\x40\0v3", SHADER, FindingKind.CORRUPT),
        (lut(row())[:-3], SHADER, FindingKind.TRUNCATED),
        (lut(b"short"), SHADER, FindingKind.TRUNCATED),
        (lut(row()), SHADER[:-3], FindingKind.TRUNCATED),
        (lut(row()), SHADER[:-3] + b"xyz", FindingKind.CORRUPT),
    ],
)
def test_damage_is_found_and_repaired(
    content: bytes, shaders: bytes, kind: FindingKind, tmp_path: Path
) -> None:
    """Of the list, and of the shader that was written last."""
    put(tmp_path, 1)
    path = put(tmp_path, content=content, shaders=shaders)
    cache = opened(SYSTEM, tmp_path)
    (entry,) = [one for one in cache.scan() if one.path == str(path)]
    checked = cache.check(entry)
    assert kinds(checked) == [kind] and "both files anew" in checked.findings[0].detail
    assert cache.repair(checked, entry).findings[0].repaired and not path.exists()
    assert not path.with_suffix(".bin").exists()


def test_one_file_without_the_other_is_told(tmp_path: Path) -> None:
    """DXVK makes nothing of it."""
    put(tmp_path, shaders=None)
    cache = opened(SYSTEM, tmp_path)
    assert kinds(cache.check(only(cache))) == [FindingKind.ORPHAN]
