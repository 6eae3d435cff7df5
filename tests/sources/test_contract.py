"""The headers that real compilers read, against those that the closure covers."""

import hashlib
import os
import re
import shutil
import subprocess
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpucache.keys import Include
from gpucache.sources import Wanted, read_closure
from gpucache.sources.headers import Headers

pytestmark = pytest.mark.slow

_OPENCL = "\nkernel void show(global int *out) { *out = V; }\n"
_CUDA = '\nextern "C" __global__ void show(int *out) { *out = V; }\n'


def _v(number: int) -> bytes:
    return b"#define V %d\n" % number


@dataclass(frozen=True)
class Layout:
    """A source and a tree with the directories ``a`` and ``b`` (include directories) and ``cwd``.

    Headers that define V decide; which of them the compiler used is read from the value of V.
    """

    source: str
    files: Mapping[str, bytes | str]
    forced: tuple[str, ...] = ()
    only: tuple[str, ...] = ("pocl", "intel", "nvrtc")
    superset: bool = False
    """Whether other headers are possible too: through macros, ``include_next``, or read both ways."""
    refused: tuple[str, ...] = ()
    dirs: Sequence[str] = ("a", "b")


_EVERYWHERE = {"cwd/x.h": _v(1), "a/x.h": _v(2), "b/x.h": _v(3)}
_BESIDE = {"b/sub/x.h": _v(4)}
_CLANG = ("pocl", "intel")
_NVRTC = ("nvrtc",)
_WITHOUT = 9
_PROBE = "#if __has_include(NAME)\n#include NAME\n#else\n#define V 9\n#endif"
_NEXT = {
    "cwd/x.h": _v(1),
    "a/x.h": b"#include_next <x.h>\n",
    "b/x.h": _v(3),
}
_EMBED = 'KEPT char v[] = {\n#embed "x.bin"\n};\n#define V v[0]\n'
LAYOUTS = {
    "quote": Layout('#include "x.h"', _EVERYWHERE),
    "angle": Layout("#include <x.h>", _EVERYWHERE),
    "quote only in cwd": Layout('#include "x.h"', {"cwd/x.h": _v(1)}, refused=_NVRTC),
    "angle only in cwd": Layout("#include <x.h>", {"cwd/x.h": _v(1)}, refused=_NVRTC),
    "below include of cwd": Layout("#include <x.h>", {"cwd/include/x.h": _v(1)}, refused=("pocl", "nvrtc")),
    "quote from a header": Layout("#include <sub/h.h>", {**_EVERYWHERE, "b/sub/h.h": b'#include "x.h"'}),
    "quote beside a header": Layout(
        "#include <sub/h.h>", {**_EVERYWHERE, **_BESIDE, "b/sub/h.h": b'#include "x.h"'}
    ),
    "quote only beside a header": Layout("#include <sub/h.h>", {**_BESIDE, "b/sub/h.h": b'#include "x.h"'}),
    "angle beside a header": Layout(
        "#include <sub/h.h>", {**_EVERYWHERE, **_BESIDE, "b/sub/h.h": b"#include <x.h>"}
    ),
    "angle only beside a header": Layout(
        "#include <sub/h.h>", {**_BESIDE, "b/sub/h.h": b"#include <x.h>"}, refused=(*_CLANG, *_NVRTC)
    ),
    "quote in cwd from a header": Layout(
        "#include <h.h>", {"cwd/x.h": _v(1), "b/h.h": b'#include "x.h"'}, refused=_NVRTC
    ),
    "later directory": Layout('#include "x.h"', {"b/x.h": _v(3)}),
    "directories in order": Layout("#include <x.h>", {"a/x.h": _v(2), "b/x.h": _v(3)}, dirs=("b", "a")),
    "include_next": Layout("#include <x.h>", {"a/x.h": b"#include_next <x.h>\n", "b/x.h": _v(3)}),
    "include_next with quotes": Layout(
        "#include <x.h>", {**_NEXT, "a/x.h": b'#include_next "x.h"\n'}, superset=True
    ),
    "include_next past cwd": Layout("#include <x.h>", _NEXT, superset=True),
    "parent of a header": Layout(
        "#include <sub/h.h>", {"b/sub/h.h": b'#include "../x.h"', "b/x.h": _v(3), "x.h": _v(5)}
    ),
    "linked header": Layout(
        "#include <h.h>",
        {"a/h.h": "../real/h.h", "real/h.h": b'#include "x.h"', "real/x.h": _v(5), "a/x.h": _v(2)},
    ),
    "parent of a linked folder": Layout(
        "#include <link/../x.h>",
        {"a/link": "../real/deep", "real/deep/h.h": b"", "real/x.h": _v(5), "a/x.h": _v(2)},
    ),
    "folder in the way": Layout("#include <x.h>", {"a/x.h/y": b"", "b/x.h": _v(3)}),
    "signs of a comment in a name": Layout("#include <sub//x.h>", {"b/sub/x.h": _v(4)}),
    "signs of a comment in a probe": Layout(
        "#if __has_include(<sub//x.h>)\n#define V 4\n#else\n#define V 9\n#endif", {"b/sub/x.h": _v(4)}
    ),
    "behind a comment of two lines": Layout("struct s; /*\n*/ #include <x.h>", _EVERYWHERE, refused=_CLANG),
    "splice, digraph and comments": Layout(
        '/* c\n */ %:/* #include "y.h" */in\\\r\nclude /* " */ "x.h"', _EVERYWHERE
    ),
    "blank after a splice": Layout(
        "// a comment \\  \n#include <x.h>\n#ifndef V\n#define V 9\n#endif", _EVERYWHERE
    ),
    "byte order mark": Layout(
        "#include <h.h>", {"a/h.h": b"\xef\xbb\xbf#include <x.h>\n", "b/x.h": _v(3)}, refused=_NVRTC
    ),
    "no-break space": Layout(
        "#include\N{NO-BREAK SPACE}<x.h>", {"a/x.h": _v(2)}, refused=("pocl", "nvrtc"), superset=True
    ),
    "carriage return": Layout(
        "#include <h.h>", {"a/h.h": b"// c\r#include <x.h>\r", "b/x.h": _v(3)}, refused=_NVRTC
    ),
    "carriage return as a blank": Layout("#include \r<x.h>", _EVERYWHERE, refused=_CLANG),
    "import": Layout('#import "x.h"', _EVERYWHERE, refused=_NVRTC),
    "suffix": Layout("#include <x>", {"a/x.stdh": _v(2), "b/x": _v(3)}),
    "trigraph": Layout('??=include "x.h"', _EVERYWHERE, refused=_NVRTC),
    "probe": Layout(_PROBE.replace("NAME", "<x.h>"), _EVERYWHERE),
    "probe with quotes": Layout(_PROBE.replace("NAME", '"x.h"'), _EVERYWHERE),
    "probe of nothing": Layout(_PROBE.replace("NAME", "<x.h>"), {}),
    "embed": Layout(_EMBED, {"cwd/x.bin": b"\1", "a/x.bin": b"\2"}, refused=("pocl", "nvrtc"), superset=True),
    "embed from a header": Layout(
        "#include <h.h>",
        {"cwd/x.bin": b"\1", "a/x.bin": b"\2", "a/h.h": _EMBED.encode()},
        refused=("pocl", "nvrtc"),
        superset=True,
    ),
    "embed from a directory": Layout(
        _EMBED, {"a/x.bin": b"\2"}, refused=("pocl", "intel", "nvrtc"), superset=True
    ),
    "through a macro": Layout('#define H "x.h"\n#include H', _EVERYWHERE, superset=True),
    "forced": Layout("", _EVERYWHERE, forced=("x.h",), only=_NVRTC),
    "forced from a directory": Layout("", {"b/x.h": _v(3)}, forced=("x.h",), only=_NVRTC),
}


def _deciding(files: Mapping[str, bytes | str]) -> dict[str, int]:
    """Digest to value of the headers that decide V."""
    values = {}
    for content in files.values():
        if isinstance(content, bytes) and (match := re.fullmatch(rb"#define V (\d+)\n|([\1\2])", content)):
            values[hashlib.sha256(content).hexdigest()] = int(match[1]) if match[1] else content[0]
    return values


@pytest.mark.parametrize("name", ["pocl", "intel", "nvrtc"])
def test_the_header_a_real_compiler_uses_is_the_one_covered(
    name: str, compiler: Callable[[str], Any], tree: Callable[..., Path], job: Callable[..., Any]
) -> None:
    """For every layout, the header that decided the value of V is covered, and no other without a reason."""
    real = compiler(name)
    layouts = {label: layout for label, layout in LAYOUTS.items() if name in layout.only}
    jobs, closures = [], []
    for label, layout in layouts.items():
        root = tree({"cwd/.keep": b"", **layout.files}, root=re.sub(r"\W", "-", label))
        dirs = [str(root / each) for each in layout.dirs]
        source = f"{layout.source}{_CUDA if name == 'nvrtc' else _OPENCL}// {label}\n"
        options = [
            f"-DKEPT={'__constant__' if name == 'nvrtc' else '__constant'}",
            *(f"-I{each}" for each in dirs),
        ] + [word for each in layout.forced for word in ("-include", each)]
        jobs.append(job(source, options, root / "cwd"))
        closures.append(
            read_closure(
                Wanted(
                    source.encode(),
                    rule=real.rule,
                    include_dirs=dirs,
                    cwd=str(root / "cwd"),
                    forced=layout.forced,
                )
            )
        )
    for (label, layout), value, closure in zip(layouts.items(), real.values(jobs), closures, strict=True):
        assert isinstance(value, str) == (name in layout.refused), (label, value)
        assert closure.uncacheable is None, label
        deciding = _deciding(layout.files)
        covered = {deciding[item.digest] for item in closure.includes if item.digest in deciding}
        if isinstance(value, str):
            if re.search("cannot open source file \"x.h\"|'x.h' file not found", value):
                assert Include("x.h", None) in closure.includes, label
        elif value == _WITHOUT:
            assert covered or Include("x.h", None) in closure.includes, label
        else:
            assert value in covered, label
            assert covered == {value} or layout.superset, (label, covered)


_PACKAGES = Path(sysconfig.get_path("purelib"))


def _opened(trace: Path, below: Path) -> set[Path]:
    """Regular files below a directory that a traced process opened."""
    calls = re.findall(r'openat\([^"\n]*"([^"]+)", [^=\n]*(?:= \d+|<unfinished \.\.\.>)', trace.read_text())
    paths = {Path(name).resolve() for name in calls}
    return {path for path in paths if path.is_relative_to(below.resolve()) and path.is_file()}


@pytest.fixture
def strace(tmp_path: Path) -> list[str]:
    """The command that traces opened files into ``trace``; skips where processes cannot be traced."""
    program = shutil.which("strace")
    if program is None:
        pytest.skip("strace is not installed")
    command = [program, "-f", "--seccomp-bpf", "-e", "trace=openat", "-o", str(tmp_path / "trace")]
    if subprocess.run([*command, "true"], capture_output=True, check=False).returncode:
        pytest.skip("processes cannot be traced here")
    return command


def test_every_header_that_pocl_opens_is_covered(
    strace: list[str], tmp_path: Path, compiler: Callable[[str], Any], job: Callable[..., Any]
) -> None:
    """PyOpenCL's random numbers: all opened headers are covered, and few others. For NVRTC see contracts."""
    folder = _PACKAGES / "pyopencl/cl"
    real = compiler("pocl")
    source = (
        "#include <pyopencl-random123/philox.cl>\n#include <pyopencl-random123/threefry.cl>\n"
        "kernel void show(global int *out) { *out = 1; }\n"
    )
    closure = read_closure(Wanted(source.encode(), real.rule, [str(folder)], str(tmp_path)))
    answers = real.values([job(source, [f"-I{folder}"], tmp_path)], wrapper=strace)
    opened = _opened(tmp_path / "trace", folder)
    covered = {Path(path).resolve() for path in closure.files}
    assert [type(answer) for answer in answers] == [int]
    assert len(opened) >= 4
    assert opened <= covered
    assert len(covered) <= 1.2 * len(opened)
    assert closure.uncacheable is None


_LOOKED_FOR = {
    "pocl": ["absent-quoted.h", "absent-angled.h", "absent-beside.h"],
    "intel": ["absent-quoted.h", "absent-angled.h", "absent-beside.h"],
    "nvrtc": ["absent-angled.h", "absent-beside.h"],
}


@pytest.mark.parametrize("name", _LOOKED_FOR)
def test_the_closure_looks_where_a_real_compiler_looks(
    name: str,
    strace: list[str],
    tmp_path: Path,
    tree: Callable[..., Path],
    compiler: Callable[[str], Any],
    job: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """For a missing name, both search the same places in the same order, to the last."""
    real = compiler(name)
    probes = [
        f"#if __has_include({spelled})\n#endif\n" for spelled in ('"absent-quoted.h"', "<absent-angled.h>")
    ]
    root = tree({"a/h.h": b'#if __has_include("absent-beside.h")\n#endif\n', "cwd/include/.keep": b""})
    source = "".join(probes) + "#include <h.h>\n#define V 1" + (_CUDA if name == "nvrtc" else _OPENCL)
    looked: list[tuple[str, str]] = []
    at = Headers.at

    def watched(self: Headers, directory: bytes, header: bytes) -> object:
        looked.append((os.fsdecode(directory), os.fsdecode(header)))
        return at(self, directory, header)

    monkeypatch.setattr(Headers, "at", watched)
    cwd = str(root / "cwd")
    read_closure(Wanted(source.encode(), rule=real.rule, include_dirs=[str(root / "a")], cwd=cwd))
    assert real.values([job(source, [f"-I{root / 'a'}"], root / "cwd")], wrapper=strace) == [1]
    trace = (tmp_path / "trace").read_text()
    for header in _LOOKED_FOR[name]:
        opened = re.findall(rf'openat\([^"\n]*"([^"]*/)?{header}"', trace)
        there = dict.fromkeys(os.path.realpath(Path(cwd, folder)) for folder in opened)
        covered = dict.fromkeys(os.path.realpath(place) for place, each in looked if each == header)
        assert list(there) == list(covered), header


def test_a_quoted_header_beside_pocls_copy_of_the_program_is_covered(
    tree: Callable[..., Path], compiler: Callable[[str], Any], job: Callable[..., Any]
) -> None:
    """PoCL compiles a file that it writes into its cache, so a header there comes first."""
    real = compiler("pocl")
    root = tree({"a/x.h": _v(2), "cwd/x.h": _v(1)})
    source = '#include "x.h"' + _OPENCL
    Path(real.environment["POCL_CACHE_DIR"], "x.h").write_bytes(_v(3))
    closure = read_closure(
        Wanted(source.encode(), rule=real.rule, include_dirs=[str(root / "a")], cwd=str(root / "cwd"))
    )
    assert real.values([job(source, [f"-I{root / 'a'}"], root / "cwd")]) == [3]
    assert closure.includes == (Include("x.h", hashlib.sha256(_v(3)).hexdigest()),)
