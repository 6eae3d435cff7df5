"""Headers held against their files, as PyOpenCL does it."""

import os
from pathlib import Path

import pytest

from gpucache.caches.pyopencl import entries
from gpucache.caches.pyopencl.entries import Dependency, changed
from tests.caches.pyopencl.build import header, touch


def _state(*dependencies: Dependency) -> list[str | None]:
    return [now for _, now, _ in changed(dependencies)]


def _after(path: Path, content: bytes, now: bytes | None) -> list[str | None]:
    """The fate of a header that has another content and time now, or is gone."""
    dependency = Dependency(*header(path, content))
    if now is None:
        path.unlink()
    else:
        path.write_bytes(now)
        touch(path)
    return _state(dependency)


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        (b"#define V 1\n", b"#define V 1\n", []),
        (b"#define V 1\n", b"#define V 2\n", ["another MD5"]),
        (b"#define V 1\n", None, [None]),
        (b"#define V 1\r\n", b"#define V 1\r\n", ["another MD5"]),
        (b"#define V 1\n", b"#define V 1\r\n", []),
        (b"// \xe9\n", b"// \xe9\n", ["not UTF-8"]),
    ],
)
def test_a_touched_header(tmp_path: Path, before: bytes, now: bytes | None, state: list[str | None]) -> None:
    """A header with another time is compared by the checksum of its text, as PyOpenCL reads it."""
    found = _after(tmp_path / "a.h", before, now)
    digests = [one for one in found if one and len(one) == 32]
    assert len(found) == len(state) and (len(digests) == 1 or found == state)


def test_the_same_time_is_the_same_header(tmp_path: Path) -> None:
    """Content is not looked at while the time is the one recorded."""
    path = tmp_path / "a.h"
    dependency = Dependency(*header(path, b"one"))
    path.write_bytes(b"two")
    os.utime(path, (dependency.mtime, dependency.mtime))
    recorded = Dependency(dependency.path, path.stat().st_mtime, dependency.md5)
    assert _state(recorded) == []


@pytest.mark.parametrize("path", ["/dev/zero", "/no/such\0file", "relative/none.h", "/tmp"])
def test_a_path_that_is_no_header(path: str) -> None:
    """A device, a directory, or a name that cannot be is neither read nor an error."""
    assert _state(Dependency(path, 1.0, "0" * 32)) in ([], [None])


def test_headers_beyond_the_budget_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many headers a record names, so many bytes are read and no more."""
    monkeypatch.setattr(entries, "_HEADERS_BYTES", 5)
    for name in "abc":
        (tmp_path / f"{name}.h").write_text("int a;\n", encoding="utf-8")
    found = [Dependency(str(tmp_path / f"{name}.h"), 1.0, "x") for name in "abc"]
    assert len(_state(*found)) == 1
