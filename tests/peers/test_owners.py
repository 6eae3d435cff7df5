"""The behaviour of owners on this machine with damage in their own caches, and after a repair."""

import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.cli import main
from tests.caches.opened import kinds
from tests.caches.pytools.build import cut_row
from tests.peers.owners import CLESPERANTO, NUMBA, OPENCV, OPENVINO, PYTOOLS, QT, WARP, Owner
from tests.pocl import SYSTEM_ICD

Damage = Callable[[Path], object]
_OLDER = [one for one in os.environ.get("GPUCACHE_TEST_OLDER_PYTHONS", "").split(os.pathsep) if one]
"""Interpreters that have Warp or pytools in some version."""
_DISPLAY = os.environ.get("DISPLAY", "")


def _cut(size: int, name: str = "") -> Damage:
    """Cuts the file, or another next to it, to a size; from its end if that is negative."""

    def damage(path: Path) -> None:
        path = next(path.parent.glob(name)) if name else path
        path.chmod(0o600)
        path.write_bytes(path.read_bytes()[:size])

    return damage


def _halved(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _overwritten(start: int, end: int) -> Damage:
    def damage(path: Path) -> None:
        data = path.read_bytes()
        path.write_bytes(data[:start] + b"x" * (end - start) + data[end:])

    return damage


def _zeroed(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + bytes(200) + data[4296:])


def _gone(name: str) -> Damage:
    return lambda path: next(path.parent.glob(name)).unlink()


_CORRUPT, _TRUNCATED = FindingKind.CORRUPT, FindingKind.TRUNCATED
_CASES: dict[str, tuple[Owner, Damage, FindingKind, str, str]] = {
    "warp: binary": (WARP, _cut(1000, "*.o"), _CORRUPT, "failed", "compiled"),
    "warp: meta": (WARP, _cut(2, "*.meta"), _CORRUPT, "failed", "compiled"),
    "warp: no meta": (WARP, _gone("*.meta"), _TRUNCATED, "", "compiled"),
    "numba: index": (NUMBA, _cut(100, "*.nbi"), _TRUNCATED, "failed", "saved"),
    "numba: data": (NUMBA, _cut(1000, "*.nbc"), _TRUNCATED, "failed", "saved"),
    "numba: no data": (NUMBA, _gone("*.nbc"), _TRUNCATED, "", "saved"),
    "pytools: middle": (PYTOOLS, _zeroed, _CORRUPT, "failed", "stored"),
    "pytools: pages": (PYTOOLS, _halved, _CORRUPT, "failed", "stored"),
    "pytools: row": (PYTOOLS, cut_row, _CORRUPT, "failed", "stored"),
    "opencv: end": (OPENCV, _halved, _TRUNCATED, "runs", "runs"),
    "opencv: middle": (OPENCV, _overwritten(20_000, 40_000), _CORRUPT, "failed", "runs"),
    "clesperanto: end": (CLESPERANTO, _cut(20), _CORRUPT, "failed", "runs"),
    "openvino: end": (OPENVINO, _cut(-99), _TRUNCATED, "", "missed one"),
}
"""The damage, the finding, the owner's result before a repair if known, and after it."""
_HELD = {
    "warp": ("", "cpu", ""), "numba": ("program.scale", "", ""), "pytools": ("peer-v1", "", ""),
    "opencv": ("imgproc--resize", "", "poclbin"), "clesperanto": ("", "", "poclbin"),
}  # fmt: skip
"""Program, target and kind of an entry, if they are known."""


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=() if "pytools" in one else pytest.mark.slow) for one in _CASES]
)
def test_damage_is_found_and_after_a_repair_its_owner_writes_anew(name: str, tmp_path: Path) -> None:
    """Until then it fails at every start, or never writes it again; its own files were sound."""
    owner, damage, kind, becomes, after = _CASES[name]
    owner.need()
    assert (owner.run(tmp_path), owner.run(tmp_path)) == owner.fresh
    cache = owner.opened(tmp_path)
    entries = list(cache.scan())
    assert not [one for entry in entries for one in cache.check(entry).findings] and not list(
        cache.leftovers()
    )
    told = (entries[0].program, entries[0].target, entries[0].artifact_kind)
    assert all(known in ("", found) for known, found in zip(_HELD.get(owner.name, told), told, strict=True))
    path = Path(entries[0].path)
    damage(path)
    if becomes:
        broken = path.read_bytes()
        assert owner.run(tmp_path) == becomes and path.read_bytes() == broken
    (entry,) = (one for one in cache.scan() if one.path == str(path))
    checked = cache.check(entry)
    assert kinds(checked)[0] in ({kind, _TRUNCATED} if owner is PYTOOLS else {kind})
    assert cache.repair(checked, entry).findings[0].repaired
    assert (owner.run(tmp_path), owner.run(tmp_path)) == (after, owner.fresh[1])
    assert not [one for entry in cache.scan() for one in cache.check(entry).findings]


@pytest.mark.slow
@pytest.mark.skipif(not _OLDER, reason="GPUCACHE_TEST_OLDER_PYTHONS names no interpreter")
@pytest.mark.parametrize(
    "owner", [WARP, replace(PYTOOLS, program=PYTOOLS.program.replace(", safe_sync=False", ""))]
)
@pytest.mark.parametrize("python", _OLDER)
def test_a_cache_of_an_older_version_is_checked_and_fixed(python: str, owner: Owner, tmp_path: Path) -> None:
    """Its own files are sound, a truncated binary is found, and after a repair the program runs."""
    if os.system(f"{python!r} -c 'import {owner.package}' 2>/dev/null"):
        pytest.skip(f"{python} has no {owner.package}")
    assert owner.run(tmp_path, python) != "failed"
    cache = owner.opened(tmp_path)

    def found() -> set[str]:
        checks = [*map(cache.check, cache.scan()), *cache.leftovers()]
        return {finding.kind for checked in checks for finding in checked.findings}

    assert list(cache.scan()) and not found()
    files = (tmp_path / owner.place).rglob("*")
    _halved(next(one for one in files if one.name == "contents" or one.suffix in (".o", ".sqlite")))
    assert found() and found() <= {"truncated", "corrupt"}
    for entry in cache.scan():
        if (checked := cache.check(entry)).findings:
            assert cache.repair(checked, entry).findings[0].repaired
    assert not found() and owner.run(tmp_path, python) != "failed" and not found()


@pytest.mark.slow
def test_clesperanto_builds_again_what_the_driver_refuses(tmp_path: Path) -> None:
    """It repairs that by itself."""
    CLESPERANTO.need()
    assert CLESPERANTO.run(tmp_path) == "runs"
    (path,) = (tmp_path / CLESPERANTO.place).rglob("*.bin")
    path.write_bytes(b"garbage" * 1000)
    assert CLESPERANTO.run(tmp_path) == "runs" and path.read_bytes().startswith(b"poclbin")


@pytest.mark.slow
def test_warm_tells_that_clesperanto_was_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its files in the home directory are not counted as warmed."""
    CLESPERANTO.need()
    shutil.copy(SYSTEM_ICD, tmp_path)
    for name, value in {"HOME": tmp_path, "OCL_ICD_VENDORS": tmp_path}.items():
        monkeypatch.setenv(name, str(value))
    command = [sys.executable, "-c", CLESPERANTO.program]
    assert main(["warm", "--into", str(tmp_path / "warmed"), "--", *command]) == 3
    said = "".join(capsys.readouterr())
    assert "into clesperanto" not in said and "into pocl" in said
    assert "~/.cache/clesperanto, which was not moved" in said or "your own cache of clesperanto" in said


@pytest.mark.slow
@pytest.mark.skipif(not _DISPLAY, reason="there is no display, such as that of xvfb-run")
def test_an_entry_that_its_owner_rejects_at_each_start_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Programs with two versions of OpenGL have one key in Qt, and each writes its program again."""
    QT.need()
    for name, value in {"HOME": str(tmp_path), "DISPLAY": _DISPLAY, **QT.variables}.items():
        monkeypatch.setenv(name, value.format(home=tmp_path))
    (tmp_path / "program.py").write_text(QT.program, encoding="ascii")
    start = f"MESA_GL_VERSION_OVERRIDE={{}} {sys.executable} {tmp_path / 'program.py'}"
    command = ["sh", "-c", " && ".join(map(start.format, ("3.3", "4.5")))]
    assert main(["warm", "--into", str(tmp_path / "warmed"), "--", *command]) == 3
    assert "so it rejects what it finds and compiles it at every start" in "".join(capsys.readouterr())
