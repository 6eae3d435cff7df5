"""Whether PyOpenCL would serve a build, and what is in the way."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


def _of(**made: Any) -> Callable[[Path], object]:
    """An entry of a source with some options, whose log may name them."""
    return lambda root: write(
        root,
        keyed(made.get("source", SOURCE), made.get("options", ()), made.get("version", VERSION)),
        source=made.get("source", SOURCE),
        told=_logged(made["logged"]) if "logged" in made else made.get("told", b""),
    )


def _without(name: str, content: bytes | None = None) -> Callable[[Path], object]:
    def make(root: Path) -> None:
        folder = write(root, keyed())
        (folder / name).unlink() if content is None else (folder / name).write_bytes(content)

    return make


def _locked(root: Path) -> None:
    write(root, keyed())
    (root / "lock").write_bytes(b"")
    os.utime(root / "lock", (1, 1))


def _changed_header(root: Path) -> None:
    write(root, keyed(), told=info([header(root.parent / "a.h", b"a")]))
    (root.parent / "a.h").write_bytes(b"b")
    touch(root.parent / "a.h")


_PLATFORM = DEVICE_TEXT.replace(b"rusticl", b"%s")
_WHOLE = "-DX=1 -I /v/pyopencl/cl"
_X1 = f"-DX=1 {all_options([], {})}"
_KEPT = "device, driver or PyOpenCL"
_CHANGED = Verdict.KEY_CHANGED
_CASES: dict[str, tuple[Callable[[Path], object], dict[str, bytes], Served | Verdict, list[str], str]] = {
    "an entry": (_of(), {}, Served.HIT, [], ""),
    "options": (_of(options=["-DX=1", "-DY=a b"]), {"options": b"-DX=1 -DY=a b"}, Served.HIT, [], ""),
    "another spelling": (_of(options=["-DN=4"]), {"options": b"-D N=4"}, _CHANGED, ["key"], _KEPT),
    "another source": (_of(), {"source": b"int x;"}, Verdict.NEVER_BUILT, [], ""),
    "other options": (
        _of(options=["-DX=1"], logged=_X1), {"options": b"-DX=2"}, _CHANGED, ["options"], "options",
    ),
    "another PyOpenCL": (_of(version="2025.2.7"), {}, _CHANGED, ["key"], _KEPT),
    "another device": (
        _of(logged=all_options([], {})), {"device": DEVICE_TEXT + b"1"}, _CHANGED, ["key"], _KEPT,
    ),
    "a source alone": (_of(logged=_WHOLE), {"device": b"", "options": b"-DX=2"}, _CHANGED, ["options"], ""),
    "no device": (
        _of(logged=_WHOLE), {"device": b"", "options": _WHOLE.encode()}, Verdict.NOT_RECORDED, [], "device",
    ),
    "a line of the source": (
        _of(source=b"int a;\n" + SOURCE), {"source": b"int b;\n" + SOURCE}, _CHANGED, ["source, line 1"], "",
    ),
    "a changed header": (_changed_header, {}, _CHANGED, [], "a.h changed"),
    "no binary in it": (_without("binary", b""), {}, Verdict.CORRUPT, [], "binary is empty"),
    "no record in it": (_without("info", b""), {}, Verdict.CORRUPT, [], "info is empty"),
    "no source in it, which PyOpenCL never reads": (_without("source.cl"), {}, Served.HIT, [], ""),
    "no directory": (lambda root: root.rmdir(), {}, Verdict.NEVER_BUILT, [], ""),
    "a stale lock": (_locked, {}, Verdict.NOT_CONSULTED, [], "lock"),
    "PoCL": (
        _of(), {"device": _PLATFORM % b"Portable Computing Language"}, Verdict.NOT_CONSULTED, [], "PoCL",
    ),
    "NVIDIA": (_of(), {"device": _PLATFORM % b"NVIDIA CUDA"}, Verdict.NOT_CONSULTED, [], "driver's own"),
    "SPIR-V": (_of(), {"source": b"\x03\x02\x23\x07"}, Verdict.UNCACHEABLE, [], ""),
}  # fmt: skip


@pytest.mark.parametrize("name", _CASES)
def test_a_question_is_answered(name: str, root: Path) -> None:
    """By source, options and key; what an entry does not store is named where nothing else differs."""
    make, fields, verdict, labels, words = _CASES[name]
    make(root)
    reach = _ask(root, **fields)
    assert (reach.verdict, [one.label for one in reach.differences]) == (verdict, labels)
    assert words in reach.detail


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


def test_a_cache_that_is_off(root: Path) -> None:
    """A cache that is turned off is not consulted."""
    write(root, keyed())
    environ = {"XDG_CACHE_HOME": str(root.parents[1]), "PYOPENCL_NO_CACHE": "1"}
    (location,) = SYSTEM.locations(environ)
    (reach,) = SYSTEM.open(location).explain({"source": (SOURCE,)})
    assert reach.verdict is Verdict.NOT_CONSULTED
    assert "PYOPENCL_NO_CACHE" in reach.detail


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
