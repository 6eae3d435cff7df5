"""SPIR-V modules under ``gpucache run`` and in the library, with Intel's CPU runtime.

The first build of a module is served if its bytes, its constants, the options, the device and the variables
are the same; every other call goes to the driver, so that a program computes what it computes alone.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pyopencl as cl
import pytest

from gpucache.assembly import open_stores
from gpucache.model import Device
from gpucache.payload.spirv import constant_option, constants_first, read_constant
from gpucache.serve.wire import Kind
from gpucache.settings import Settings
from tests.children import run_python, run_text
from tests.modules import module
from tests.serve.conftest import Done
from tests.serve.test_opencl import Command, rows  # noqa: F401 - a fixture

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="run is for Linux")
_PROGRAM = Path(__file__).with_name("module_program.py")
_BINARY = b"a binary of a driver " * 8


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "spec.spv"
    path.write_bytes(module())
    return path


@pytest.mark.slow
@pytest.mark.parametrize("maker", [(), ("khr",)], ids=["core", "khr"])
def test_a_program_computes_the_same_bare_on_a_miss_and_on_a_hit(
    run: Callable[..., Done], environment: Mapping[str, str], file: Path, maker: Sequence[str]
) -> None:
    """So also after a second build with other constants, which drivers answer with the first program."""
    if maker:
        found = [*Path(cl.__file__).parent.glob(".libs/libOpenCL*")]
        if not found:
            pytest.skip("PyOpenCL is built without its own loader")
        maker = ("khr", str(found[0]))
    command = [sys.executable, str(_PROGRAM), str(file), *maker]
    bare = run_text(command, env=environment, check=True).stdout
    missed, hit = run(*command), run(*command)
    assert (missed.out, hit.out) == (bare, bare)
    assert missed.results.count("kept") == 5
    assert hit.results.count("hit") == 8
    assert hit.results.count("passed") == 2  # clCompileProgram and clLinkProgram


@pytest.mark.slow
def test_what_warm_built_is_hit_and_then_without_python(
    run: Callable[..., Done],
    run_without_python: Callable[..., "subprocess.CompletedProcess[str]"],
    gpucache: Callable[..., "subprocess.CompletedProcess[str]"],
    file: Path,
    tmp_path: Path,
) -> None:
    """The second hit is in C, with constants on the command line or in a manifest."""
    script = tmp_path / "program.py"
    script.write_text(
        "import sys, numpy as np, pyopencl as cl\n"
        "[device] = [d for p in cl.get_platforms() if p.name.startswith('Intel') for d in p.get_devices()]\n"
        "context = cl.Context([device])\n"
        f"made = cl._cl._create_program_with_il(context, open({str(file)!r}, 'rb').read())\n"
        "for each in sys.argv[1:]: made.set_specialization_constant(3, np.int32(each))\n"
        "made._build(options=b'', devices=[device])\n",
        encoding="utf-8",
    )
    manifest = tmp_path / "gpucache.toml"
    manifest.write_text('[[program]]\nsource = "spec.spv"\nspec_constants = { 3 = "i32:6" }\n', "utf-8")
    target = ("--target", "opencl:intel")
    assert gpucache("warm", file, *target).returncode == 0
    assert gpucache("warm", file, *target, "--spec-constant", "3=i32:2").returncode == 0
    assert gpucache("warm", "--manifest", manifest, *target).returncode == 0
    for given in ((), ("2",), ("6",)):
        assert run(sys.executable, script, *given).results == ["hit"]
        assert run_without_python(sys.executable, script, *given).returncode == 0
    assert run_without_python(sys.executable, script, "5").returncode == 99


@pytest.mark.slow
def test_a_recording_of_a_module_is_built_elsewhere(
    gpucache: Callable[..., "subprocess.CompletedProcess[str]"],
    run: Callable[..., Done],
    file: Path,
    tmp_path: Path,
) -> None:
    """With its constants, byte by byte."""
    command = [sys.executable, _PROGRAM, file]
    assert gpucache("record", "-o", tmp_path / "recording", "--", *command).returncode == 0
    assert gpucache("warm", "--recording", tmp_path / "recording").returncode == 0
    assert run(*command).results.count("hit") == 8


_LIBRARY = """
import json, sys
import numpy as np
import pyopencl as cl
from gpucache.library.missing import flush
from gpucache.opencl import build_program
[device] = [d for p in cl.get_platforms() if p.name.startswith("Intel") for d in p.get_devices()]
context = cl.Context([device])
queue = cl.CommandQueue(context)
found = []
for given in ({}, {3: np.int32(2)}, {3: np.int32(2), 5: np.int64(1)}, {3: np.int64(2)}):
    out = np.zeros(2, np.int64)
    buffer = cl.Buffer(context, cl.mem_flags.COPY_HOST_PTR, hostbuf=out)
    try:
        program = build_program(context, open(sys.argv[1], "rb").read(), specialization_constants=given)
        program.spec(queue, (2,), None, buffer)
        cl.enqueue_copy(queue, out, buffer)
        found.append([int(out[1]), program.source, program.kernel_names])
    except Exception as error:
        found.append(type(error).__name__)
flush()
print(json.dumps(found))
"""


@pytest.mark.slow
def test_the_library_builds_and_hits_modules(environment: Mapping[str, str], file: Path, root: Path) -> None:
    """A constant of another size than the module declares is the driver's error."""
    missed, hit = (json.loads(run_python("-c", _LIBRARY, str(file), env=dict(environment))) for _ in range(2))
    assert hit == missed
    assert [one[0] for one in hit[:3]] == [7009, 2009, 2001]
    assert "Error" in hit[3]
    assert len([*root.rglob("*.gpc")]) == 3


@pytest.fixture
def command(tmp_path: Path, rows: Sequence[Device]) -> Iterator[Command]:  # noqa: F811
    with ExitStack() as ends:
        yield Command(open_stores(Settings(tmp_path / "root", "--root"), command="app"), rows, ends)


def _asked(il: bytes, *constants: tuple[int, bytes]) -> bytes:
    return b"\0" + b"".join(b"%d %s\n" % (n, value.hex().encode()) for n, value in constants) + b"\n" + il


_TWO, _SIX = b"\2\0\0\0", b"\6\0\0\0"
_IL = module()
_WITH = _asked(_IL, (3, _TWO))
_CHANGES: Mapping[str, Mapping[str, Any]] = {
    "another byte": {"source": _asked(module(thousand=999), (3, _TWO))},
    "a byte more": {"source": _asked(_IL + b"\0", (3, _TWO))},
    "a byte less": {"source": _asked(_IL[:-1], (3, _TWO))},
    "another end of a line": {"source": _asked(_IL.replace(b"\n", b"\r\n"), (3, _TWO))},
    "no constant": {"source": _asked(_IL)},
    "another value": {"source": _asked(_IL, (3, _SIX))},
    "another number": {"source": _asked(_IL, (5, _TWO))},
    "another size": {"source": _asked(_IL, (3, _TWO + bytes(4)))},
    "one more constant": {"source": _asked(_IL, (3, _TWO), (5, _TWO))},
    "another option": {"options": "-cl-opt-disable"},
    "the text of a constant as an option": {"source": _asked(_IL), "options": constant_option(3, _TWO)},
    "another device": {"device": "pocl"},
    "a program's text": {"source": _IL},
}


def test_an_equal_module_hits(command: Command) -> None:
    """Its constants, options, device and bytes are the same."""
    command.built(command.build(source=_WITH).fields[0], _BINARY)
    assert command.build(source=_WITH).fields[1] == _BINARY
    command.built(command.build(source=_asked(_IL)).fields[0], _BINARY + b"2")
    assert command.build(source=_asked(_IL)).fields[1] == _BINARY + b"2"
    assert command.build(source=_WITH).fields[1] == _BINARY


@pytest.mark.parametrize("change", _CHANGES.values(), ids=_CHANGES)
def test_a_changed_module_misses(command: Command, change: Mapping[str, Any]) -> None:
    """Each part of the request is in its key."""
    command.built(command.build(source=_WITH).fields[0], _BINARY)
    assert command.build(**{"source": _WITH, **change}).kind != Kind.HIT


def test_ends_of_lines_in_a_module_are_its_bytes(command: Command) -> None:
    """In a text they are one."""
    ends = [b"\x03\x02\x23\x07" + end + bytes(2) for end in (b"\r\n", b"\n")]
    command.built(command.build(source=_asked(ends[0])).fields[0], _BINARY)
    assert command.build(source=_asked(ends[1])).kind == Kind.MISS
    assert command.build(source=_asked(ends[0])).kind == Kind.HIT


def test_a_variable_that_reaches_the_compiler_makes_another_key(
    command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Set, changed or absent."""
    tokens = []
    for environ in (b"", b"CL_CONFIG_CPU_TARGET_ARCH=a\0", b"CL_CONFIG_CPU_TARGET_ARCH=b\0"):
        command.environ = environ
        missed = command.build(source=_WITH)
        assert missed.kind == Kind.MISS
        tokens.append(missed.fields[0])
        command.built(missed.fields[0], _BINARY + environ)
    for environ in (b"", b"CL_CONFIG_CPU_TARGET_ARCH=a\0", b"CL_CONFIG_CPU_TARGET_ARCH=b\0"):
        command.environ = environ
        assert command.build(source=_WITH).fields[1] == _BINARY + environ
    assert len({*tokens}) == 3


@pytest.mark.parametrize("source", [b"\0", b"\0003 4\n\nx", b"\0003 zz\n\nx", b"\0x 40\n\nx", b"\0003 40\n"])
def test_constants_that_cannot_be_read_end_the_request(command: Command, source: bytes) -> None:
    """It is no build then."""
    assert command.build(source=source).kind == Kind.PASS


@pytest.mark.parametrize(
    ("written", "option"),
    [
        ("3=u32:64", "--spec-constant=3:40000000"),
        ("0=i8:-1", "--spec-constant=0:ff"),
        ("7=f64:0.5", "--spec-constant=7:000000000000e03f"),
        ("1=bool:true", "--spec-constant=1:01"),
        ("1=u16:0x10", "--spec-constant=1:1000"),
    ],
)
def test_a_constant_is_read_as_it_is_written(written: str, option: str) -> None:
    """Number, type and value give a number, a size and bytes."""
    assert read_constant(written) == option


@pytest.mark.parametrize(
    "written", ["3", "3=64", "3=u32:", "3=u8:256", "3=u32:-1", "x=u32:1", "3=bool:2.5", "3=u128:1"]
)
def test_a_constant_that_does_not_fit_is_refused(written: str) -> None:
    """With how to write it."""
    with pytest.raises(ValueError, match="ID=TYPE:VALUE"):
        read_constant(written)


def test_the_last_constant_of_a_number_counts() -> None:
    """As it does for a driver; all are in the order of their numbers."""
    options = [constant_option(5, b"\1"), "-g", constant_option(3, b"\2"), constant_option(5, b"\3")]
    assert constants_first(options) == ((constant_option(3, b"\2"), constant_option(5, b"\3")), ("-g",))


def test_constants_are_for_modules_alone(gpucache_refuses: Callable[..., str], tmp_path: Path) -> None:
    """A program in OpenCL C has none."""
    source = tmp_path / "k.cl"
    source.write_text("kernel void k() {}\n", encoding="utf-8")
    assert "SPIR-V" in gpucache_refuses("warm", source, "--spec-constant", "3=u32:1")


@pytest.fixture
def gpucache_refuses(tmp_path: Path) -> Callable[..., str]:
    """Run gpucache with wrong arguments; returns its message."""

    def call(*arguments: object) -> str:
        environ = {**os.environ, "GPUCACHE_DIR": str(tmp_path / "root")}
        done = run_text([sys.executable, "-m", "gpucache", *arguments], env=environ)
        assert done.returncode == 2
        return done.stderr

    return call
