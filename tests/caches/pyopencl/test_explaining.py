"""Whether PyOpenCL would serve a build, and what is in the way."""

import os
import time
from pathlib import Path

import pytest

from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches.pyopencl.key import all_options
from gpucache.caches.registry import of_others
from gpucache.errors import UsageError
from tests.caches.pyopencl.build import (
    DEVICE,
    DEVICE_TEXT,
    SOURCE,
    VERSION,
    header,
    info,
    keyed,
    opened,
    touch,
    write,
)

SYSTEM = of_others("pyopencl")


def _ask(root: Path, source: bytes = SOURCE, **fields: bytes) -> Reach:
    """The one answer for a source, for the device unless told otherwise."""
    values = {"device": DEVICE_TEXT, "pyopencl": VERSION.encode(), **fields}
    wanted = {"source": (source,), **{name: (value,) for name, value in values.items() if value}}
    (reach,) = opened(root).explain(wanted)
    return reach


def _logged(options: str) -> bytes:
    return info(log=f"Options used by backend compiler: {options}\n")


def test_a_hit(root: Path) -> None:
    """A source with the options and device of an entry is a hit."""
    write(root, keyed(options=["-DX=1", "-DY=a b"]))
    reach = _ask(root, options=b"-DX=1 -DY=a b")
    assert (reach.verdict, reach.nearest) == (Served.HIT, keyed(options=["-DX=1", "-DY=a b"]))


def test_another_spelling_is_another_key(root: Path) -> None:
    """PyOpenCL puts options into the key as they were given."""
    write(root, keyed(options=["-DN=4"]))
    assert _ask(root, options=b"-D N=4").verdict is Verdict.KEY_CHANGED


def test_several_devices(root: Path) -> None:
    """Each device that is asked for has an answer."""
    write(root, keyed())
    other = DEVICE_TEXT.replace(b"a device", b"another")
    wanted = {"source": (SOURCE,), "device": (DEVICE_TEXT, other), "pyopencl": (VERSION.encode(),)}
    verdicts = [reach.verdict for reach in opened(root).explain(wanted)]
    assert verdicts == [Served.HIT, Verdict.KEY_CHANGED]


def test_a_device_in_seven_texts(root: Path) -> None:
    """A device whose name has a slash is given text by text."""
    write(root, keyed())
    texts = tuple(text.encode() for text in DEVICE)
    wanted = {"source": (SOURCE,), "device": texts, "pyopencl": (VERSION.encode(),)}
    assert [reach.verdict for reach in opened(root).explain(wanted)] == [Served.HIT]


def test_never_built(root: Path) -> None:
    """A source that is like none stored was never built."""
    write(root, keyed())
    assert _ask(root, b"int x;").verdict is Verdict.NEVER_BUILT


def test_other_options_are_named(root: Path) -> None:
    """Options that a log names are proved by the key, and both sides are shown."""
    write(root, keyed(options=["-DX=1"]), told=_logged(f"-DX=1 {_added()}"))
    reach = _ask(root, options=b"-DX=2")
    assert reach.verdict is Verdict.KEY_CHANGED
    ((label, left, right),) = [(one.label, one.left, one.right) for one in reach.differences]
    assert (label, "-DX=1" in str(left), "-DX=2" in str(right)) == ("options", True, True)


def test_another_pyopencl_is_among_what_may_differ(root: Path) -> None:
    """An entry does not store its version."""
    write(root, keyed(version="2025.2.7"))
    reach = _ask(root)
    assert reach.verdict is Verdict.KEY_CHANGED
    assert "device, driver or PyOpenCL" in reach.detail


def test_another_device_is_what_remains(root: Path) -> None:
    """Where options are the same, what an entry does not store is said to differ."""
    write(root, keyed(), told=_logged(_added()))
    reach = _ask(root, device=DEVICE_TEXT + b"1")
    assert (reach.verdict, [one.label for one in reach.differences]) == (Verdict.KEY_CHANGED, ["key"])
    assert "device, driver or PyOpenCL" in reach.detail


def test_another_source_is_named_by_its_line(root: Path) -> None:
    """The nearest source is shown with the first line that differs."""
    write(root, keyed(b"int a;\n" + SOURCE), source=b"int a;\n" + SOURCE)
    reach = _ask(root, b"int b;\n" + SOURCE)
    assert reach.verdict is Verdict.KEY_CHANGED
    (difference,) = reach.differences
    assert (difference.label, difference.left, difference.right) == ("source, line 1", "int a;", "int b;")


def test_a_source_alone(root: Path) -> None:
    """Without a device no key is made, and what is stored of source and options is compared."""
    write(root, keyed(), told=_logged("-DX=1"))
    reach = _ask(root, device=b"", options=b"-DX=2")
    assert (reach.verdict, reach.nearest) == (Verdict.KEY_CHANGED, keyed())
    assert reach.differences[0].left == "-DX=1"
    write(root, "0" * 32, told=_logged("-DX=1 -I /v/pyopencl/cl"))
    reach = _ask(root, device=b"", options=b"-DX=1 -I /v/pyopencl/cl")
    assert (reach.verdict, "device" in reach.detail) == (Verdict.NOT_RECORDED, True)


def test_a_changed_header_is_named(root: Path, tmp_path: Path) -> None:
    """An entry whose header changed is not served, and the header is what differs."""
    write(root, keyed(), told=info([header(tmp_path / "a.h", b"a")]))
    (tmp_path / "a.h").write_bytes(b"b")
    touch(tmp_path / "a.h")
    reach = _ask(root)
    assert reach.verdict is Verdict.KEY_CHANGED
    assert f"{tmp_path}/a.h" in reach.detail


@pytest.mark.parametrize("name", ["binary", "info"])
def test_a_damaged_entry_is_corrupt(root: Path, name: str) -> None:
    """An entry that PyOpenCL cannot use is reported with what it does."""
    (write(root, keyed()) / name).write_bytes(b"")
    reach = _ask(root)
    assert reach.verdict is Verdict.CORRUPT
    assert f"{name} is empty" in reach.detail


def test_an_entry_without_its_source_is_served(root: Path) -> None:
    """PyOpenCL never reads source.cl, so an entry without it is a hit."""
    (write(root, keyed()) / "source.cl").unlink()
    assert _ask(root).verdict is Served.HIT


def test_no_folder_has_no_entry(root: Path) -> None:
    """Where nothing was ever built, nothing is found."""
    root.rmdir()
    assert _ask(root).verdict is Verdict.NEVER_BUILT


def test_a_stale_lock_is_in_the_way(root: Path) -> None:
    """A lock left behind keeps every program from the cache."""
    write(root, keyed())
    (root / "lock").write_bytes(b"")
    then = time.time() - 600
    os.utime(root / "lock", (then, then))
    reach = _ask(root)
    assert reach.verdict is Verdict.NOT_CONSULTED
    assert "lock" in reach.detail


def test_a_cache_that_is_off(root: Path) -> None:
    """A cache that is turned off is not consulted."""
    write(root, keyed())
    environ = {"XDG_CACHE_HOME": str(root.parents[1]), "PYOPENCL_NO_CACHE": "1"}
    (location,) = SYSTEM.locations(environ)
    (reach,) = SYSTEM.open(location).explain({"source": (SOURCE,)})
    assert reach.verdict is Verdict.NOT_CONSULTED
    assert "PYOPENCL_NO_CACHE" in reach.detail


@pytest.mark.parametrize("platform", [b"Portable Computing Language", b"NVIDIA CUDA"])
def test_platforms_with_a_cache_of_their_own(root: Path, platform: bytes) -> None:
    """PyOpenCL leaves PoCL and NVIDIA to their own caches."""
    reach = _ask(root, device=DEVICE_TEXT.replace(b"rusticl", platform))
    assert reach.verdict is Verdict.NOT_CONSULTED


def test_spirv_is_not_cached(root: Path) -> None:
    """A program given as SPIR-V never enters the cache."""
    assert _ask(root, b"\x03\x02\x23\x07").verdict is Verdict.UNCACHEABLE


@pytest.mark.parametrize(
    ("wanted", "words"),
    [
        ({}, "'source' is missing"),
        ({"source": (b"",), "sauce": (b"",)}, "no field 'sauce'"),
        ({"source": (b"a", b"b")}, "give it once"),
        ({"source": (b"",), "device": (b"a/b",)}, "has a slash"),
        ({"source": (b"",), "device": (DEVICE_TEXT,), "pyopencl": (b"new",)}, "version"),
    ],
)
def test_what_cannot_be_asked(root: Path, wanted: dict[str, tuple[bytes, ...]], words: str) -> None:
    """A field that is unknown, lacks or cannot be parsed is refused with the remedy."""
    with pytest.raises(UsageError, match=words):
        list(opened(root).explain(wanted))


def _added() -> str:
    return all_options([], {})
