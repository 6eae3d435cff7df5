"""Headers held against their files, as PyOpenCL does it."""

import os
from pathlib import Path

import pytest

from gpucache.caches.pyopencl import entries
from gpucache.caches.pyopencl.entries import Compared, Dependency, State, compare, resolved
from tests.caches.pyopencl.build import header, touch


def _after(path: Path, content: bytes, now: bytes | None) -> State:
    """The fate of a header that has another content and time now, or is gone."""
    dependency = Dependency(*header(path, content))
    if now is None:
        path.unlink()
    else:
        path.write_bytes(now)
        touch(path)
    return compare(dependency).state


@pytest.mark.parametrize(
    ("before", "now", "state"),
    [
        (b"#define V 1\n", b"#define V 1\n", State.SAME),
        (b"#define V 1\n", b"#define V 2\n", State.CHANGED),
        (b"#define V 1\n", None, State.MISSING),
        (b"#define V 1\r\n", b"#define V 1\r\n", State.CHANGED),
        (b"#define V 1\n", b"#define V 1\r\n", State.SAME),
        (b"// \xe9\n", b"// \xe9\n", State.NOT_TEXT),
    ],
)
def test_a_touched_header(tmp_path: Path, before: bytes, now: bytes | None, state: State) -> None:
    """A header with another time is compared by the checksum of its text, as PyOpenCL reads it."""
    assert _after(tmp_path / "a.h", before, now) is state


def test_the_same_time_is_the_same_header(tmp_path: Path) -> None:
    """Content is not looked at while the time is the one recorded."""
    path = tmp_path / "a.h"
    dependency = Dependency(*header(path, b"one"))
    path.write_bytes(b"two")
    os.utime(path, (dependency.mtime, dependency.mtime))
    recorded = Dependency(dependency.path, path.stat().st_mtime, dependency.md5)
    assert compare(recorded).state is State.SAME


@pytest.mark.parametrize("path", ["/dev/zero", "/no/such\0file", "relative/none.h", "/tmp"])
def test_a_path_that_is_no_header(path: str) -> None:
    """A device, a directory, or a name that cannot be is neither read nor an error."""
    assert compare(Dependency(path, 1.0, "0" * 32)).state in (State.UNREAD, State.MISSING)


def test_headers_are_found_as_pyopencl_finds_them(tmp_path: Path) -> None:
    """The first directory that has a header gives it, its own includes are followed, and a cycle ends."""
    first = header(tmp_path / "a" / "x.h", b'#include "y.h"\n')
    header(tmp_path / "b" / "x.h", b"never\n")
    second = header(tmp_path / "b" / "y.h", b'#include "y.h"\n')
    found = resolved(b'#include "x.h"\n#include "none.h"\n', ["a", str(tmp_path / "b")], tmp_path)
    assert found == {first[0]: first[2], second[0]: second[2]}


def test_headers_without_end_are_given_up(tmp_path: Path) -> None:
    """A source with more includes than are followed gives nothing."""
    names = [f"h{number}.h" for number in range(200)]
    everything = "".join(f'#include "{name}"\n' for name in names).encode()
    for name in names:
        header(tmp_path / name, everything + name.encode())
    assert resolved(everything, ["."], tmp_path) is None


def test_a_header_named_many_times_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A record that names one header again and again costs one comparison."""
    header = tmp_path / "a.h"
    header.write_text("int a;\n", encoding="utf-8")
    asked: list[Dependency] = []

    def noted(dependency: Dependency) -> Compared:
        asked.append(dependency)
        return compare(dependency)

    monkeypatch.setattr(entries, "compare", noted)
    found = list(entries.compare_all([Dependency(str(header), 1.0, "x")] * 300))
    assert (len(found), len(asked)) == (1, 1)


def test_headers_beyond_the_budget_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many headers a record names, so many bytes are read and no more."""
    monkeypatch.setattr(entries, "_HEADERS_BYTES", 5)
    for name in "abc":
        (tmp_path / f"{name}.h").write_text("int a;\n", encoding="utf-8")
    found = entries.compare_all([Dependency(str(tmp_path / f"{name}.h"), 1.0, "x") for name in "abc"])
    assert [one.state for one in found][1:] == [entries.State.UNREAD] * 2
