"""Entries that their owner compares with a manifest, and what is said of those that differ from it."""

from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches.registry import of_others
from tests.caches.manifests.build import put_bundle, put_object
from tests.caches.opened import kinds, only, opened

_MADE = {"b12x": put_object, "unsloth": put_bundle}


@pytest.mark.parametrize(
    ("damage", "kind"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-1]), FindingKind.TRUNCATED),
        (lambda path: path.write_bytes(path.read_bytes()[:-1] + b"?"), FindingKind.CORRUPT),
        (lambda path: path.unlink(), FindingKind.ORPHAN),
        (lambda path: next(path.parent.glob("*.json")).write_bytes(b"["), FindingKind.CORRUPT),
    ],
)
@pytest.mark.parametrize("name", _MADE)
def test_an_entry_is_compared_with_its_manifest(name: str, damage, kind: FindingKind, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """Its size, its SHA-256, and whether both are there."""
    path = _MADE[name](tmp_path)
    cache = opened(of_others(name), tmp_path)
    assert not cache.check(only(cache)).findings
    damage(path)
    again = opened(of_others(name), tmp_path)
    assert kinds(again.check(only(again))) == [kind]
