"""Programs that see other files than gpucache, or run another compiler: nothing is kept or served."""

import ctypes
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpucache.backends.cuda import nvrtc
from gpucache.backends.installation import mark
from gpucache.errors import NoDeviceError
from gpucache.native.build import BUILT, build, find_compiler
from gpucache.native.locate import locate
from gpucache.serve.environment import TIMEOUT
from tests.children import run_text
from tests.patience import PATIENCE_S, TIME_OUT_MS
from tests.redirecting import FUNCTIONS, redirecting

_PROGRAM = """
import ctypes, hashlib, sys
lib = ctypes.CDLL(sys.argv[1])
print('loaded', flush=True)
for line in sys.stdin:
    source, *options = line.rstrip("\\n").split("\\t")
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    text = source.replace("\\v", "\\n").encode()
    lib.nvrtcCreateProgram(ctypes.byref(program), text, b"p.cu", 0, None, None)
    given = (ctypes.c_char_p * len(options))(*map(str.encode, options))
    assert lib.nvrtcCompileProgram(program, len(options), given) == 0
    lib.nvrtcGetPTXSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    lib.nvrtcGetPTX(program, text)
    print(hashlib.sha256(text.raw).hexdigest(), flush=True)
"""
_RESTRICTED = """
import ctypes, os, struct, sys
denied = sys.argv[1]
call = ctypes.CDLL(None, use_errno=True)
rules = call.syscall(444, struct.pack("Q", 4), 8, 0)  # landlock_create_ruleset, for reading files
assert rules >= 0
def allow(folder, names):
    for name in os.listdir(folder):
        path = os.path.join(folder, name)
        if name == names[0]:
            if names[1:]:
                allow(path, names[1:])
        elif not os.path.islink(path):
            try:
                place = os.open(path, os.O_PATH)
            except OSError:
                continue
            call.syscall(445, rules, 1, struct.pack("=Qi", 4, place), 0)
            os.close(place)
allow("/", denied.strip("/").split("/"))
call.prctl(38, 1, 0, 0, 0)
assert call.syscall(446, rules, 0) == 0
os.execvp(sys.argv[2], sys.argv[2:])
"""
_ARCH = "-arch=compute_90"


class Running:
    """A program that compiles by NVRTC, each line that it is sent."""

    def __init__(
        self,
        folder: Path,
        library: Path,
        *,
        plain: bool = False,
        wrapper: tuple[str, ...] = (),
        below: tuple[str, ...] = (),
    ) -> None:
        (folder / "program.py").write_text(_PROGRAM)
        self._report = folder / f"{os.urandom(4).hex()}.json"
        words = [*wrapper, sys.executable, str(folder / "program.py"), str(library)]
        run = [
            *below,
            sys.executable,
            "-m",
            "gpucache",
            "run",
            "--quiet",
            "--report",
            str(self._report),
            "--",
        ]
        self._process = subprocess.Popen(
            words if plain else [*run, *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=folder,
            env={**os.environ, "GPUCACHE_DIR": str(folder / "root"), TIMEOUT: TIME_OUT_MS},
        )

        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "loaded\n"

    def compile(self, source: str, *options: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write("\t".join((source.replace("\n", "\v"), *options)) + "\n")
        self._process.stdin.flush()
        return self._process.stdout.readline()

    def end(self) -> list[Mapping[str, Any]]:
        """The outcome of each compile; empty without gpucache."""
        self._process.communicate(timeout=PATIENCE_S)
        if not self._report.exists():
            return []
        found: list[Mapping[str, Any]] = json.loads(self._report.read_text())["outcomes"]
        return found


def _once(folder: Path, library: Path, *options: str, **how: Any) -> tuple[str, Mapping[str, Any]]:
    program = Running(folder, library, **how)
    made = program.compile('#include "h.h"\n__global__ void k(int *o) { *o = V; }', _ARCH, *options)
    outcomes = program.end()
    return made, outcomes[0] if outcomes else {}


@pytest.fixture
def library() -> Path:
    if sys.platform != "linux":
        pytest.skip("commands are intercepted on Linux")
    compiler = find_compiler()
    try:
        locate("nvrtc_audit")
        found = nvrtc.nvrtc_libraries(nvrtc.version())[0]
    except NoDeviceError as error:
        if compiler is None or "NVRTC is not" in str(error):
            pytest.skip(str(error))
        build(compiler, BUILT)
        found = nvrtc.nvrtc_libraries(nvrtc.version())[0]
    assert found is not None
    return found


@pytest.fixture
def headers(tmp_path: Path) -> tuple[Path, Path]:
    """Two directories with different headers of one name."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "h.h").write_text(f"#define V {ord(name)}\n")
    return tmp_path / "a", tmp_path / "b"


@pytest.mark.parametrize("begun", [True, False], ids=["server began before", "server begins after"])
def test_a_compiler_that_was_replaced_keeps_nothing_for_the_new_one(
    tmp_path: Path, library: Path, *, begun: bool
) -> None:
    """A process goes on with the library that it has loaded, whose results the new one's key is not for."""
    folder = tmp_path / "lib"
    folder.mkdir()
    for file in library.parent.glob("libnvrtc*.so*"):
        shutil.copy(file, folder)
    mine = folder / library.name
    (tmp_path / "root" / "v1" / "rows").mkdir(mode=0o700, parents=True)  # so that no server gets ready
    old = Running(tmp_path, mine)
    sources = [f"__global__ void k{number}(int *o) {{ *o = {number}; }}" for number in range(3)]
    if begun:
        old.compile(sources[0], "-arch=compute_80")
    of_build = bytes.fromhex(mark(library))
    data = bytearray(mine.read_bytes())
    data[data.index(of_build)] ^= 1
    (folder / "new").write_bytes(data)
    (folder / "new").chmod(0o755)
    (folder / "new").replace(mine)
    old.compile(sources[1], _ARCH)
    new = Running(tmp_path, mine)
    new.compile(sources[1], _ARCH)
    new.compile(sources[2], _ARCH)
    assert [one["result"] for one in new.end()] == ["kept", "kept"]
    old.compile(sources[2], _ARCH)
    results = ["kept", "passed", "passed"] if begun else ["left", "passed"]
    assert [one["result"] for one in old.end()] == results


@pytest.mark.parametrize("functions", [FUNCTIONS, ("fopen",)], ids=["all", "fopen"])
def test_a_program_whose_paths_are_redirected_keeps_nothing(
    tmp_path: Path, library: Path, headers: tuple[Path, Path], functions: Sequence[str]
) -> None:
    """Its headers are others than those that gpucache reads; nor is it served what was made of these.

    NVRTC opens headers by fopen, which gpucache does not use.
    """
    here, there = headers
    variables = redirecting(tmp_path, here, there, *functions)
    wrapper = ("env", *(f"{name}={value}" for name, value in variables.items()))
    option = f"-I{here}"
    plain, _ = _once(tmp_path, library, option, plain=True)
    redirected, _ = _once(tmp_path, library, option, plain=True, wrapper=wrapper)
    assert plain != redirected
    made, outcome = _once(tmp_path, library, option, wrapper=wrapper)
    assert (made, outcome["result"]) == (redirected, "left")
    assert "its process sees other files than gpucache (a preloaded library" in outcome["reason"]
    made, outcome = _once(tmp_path, library, option)
    assert (made, outcome["result"]) == (plain, "kept")
    made, outcome = _once(tmp_path, library, option, wrapper=wrapper)
    assert (made, outcome["result"]) == (redirected, "passed")
    made, outcome = _once(tmp_path, library, option)
    assert (made, outcome["result"]) == (plain, "hit")


def test_a_program_that_may_not_read_a_header_keeps_nothing(
    tmp_path: Path, library: Path, headers: tuple[Path, Path]
) -> None:
    """Landlock hides a header from it, so that the compiler takes the next one."""
    if ctypes.CDLL(None).syscall(444, None, 0, 1) < 1:
        pytest.skip("this kernel has no Landlock")
    here, there = headers
    (tmp_path / "restricted.py").write_text(_RESTRICTED)
    wrapper = (sys.executable, str(tmp_path / "restricted.py"), str(here))
    options = (f"-I{here}", f"-I{there}")
    plain, _ = _once(tmp_path, library, *options, plain=True)
    hidden, _ = _once(tmp_path, library, *options, plain=True, wrapper=wrapper)
    assert plain != hidden
    made, outcome = _once(tmp_path, library, *options, wrapper=wrapper)
    assert (made, outcome["result"]) == (hidden, "left")
    made, outcome = _once(tmp_path, library, *options)
    assert (made, outcome["result"]) == (plain, "kept")
    made, outcome = _once(tmp_path, library, *options, wrapper=wrapper)
    assert (made, outcome["result"]) == (hidden, "passed")


_FILTERED = """
import ctypes, os, struct, sys
steps = [(0x20, 0, 0, 0)]
for number in filter(None, sys.argv[1].split(",")):
    steps += [(0x15, 0, 1, int(number)), (0x06, 0, 0, int(sys.argv[2], 16))]
steps.append((0x06, 0, 0, 0x7FFF0000))
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
call = ctypes.CDLL(None, use_errno=True)
call.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
program = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(steps), ctypes.addressof(code)))
assert call.prctl(22, 2, program) == 0  # PR_SET_SECCOMP, SECCOMP_MODE_FILTER
os.execvp(sys.argv[3], sys.argv[3:])
"""
_SOCKET, _UTIMENSAT = "41", "280"
_CONTAINER = (
    "101,103,134,136,139,153,155,156,163,164,165,166,167,168,169,170,171,172,173,174,175,176,177,178,179,180,212,"
    "227,237,238,239,246,248,249,250,256,272,279,298,300,304,308,310,311,312,313,320,321,323,425,426,427,428,"
    "429,430,431,432,433,435,438,440,442,443,450"
)
"""The calls that Docker and containerd refuse by default, such as ptrace, mount, bpf and io_uring."""
_KILL, _REFUSE = "80000000", "00050026"
"""Actions: end the process, and fail with ENOSYS, after which glibc starts threads by another call."""
_WITHOUT_PROC = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh")


def _filtered(numbers: str, action: str) -> tuple[str, ...]:
    """A command that runs another one below a filter of some system calls."""
    if platform.machine() != "x86_64":
        pytest.skip("the numbers are those of x86-64")
    return (sys.executable, "-c", _FILTERED, numbers, action)


@pytest.mark.parametrize("outer", [(), _WITHOUT_PROC], ids=["", "without /proc"])
def test_a_sandbox_that_ends_programs_at_a_socket_ends_none(
    tmp_path: Path, library: Path, headers: tuple[Path, Path], outer: tuple[str, ...]
) -> None:
    """A program that has a filter which run does not have, or may have one, is served by the index alone."""
    if outer and run_text([*outer, "true"]).returncode:
        pytest.skip("nothing may be mounted here")
    include, sandbox = f"-I{headers[0]}", (*outer, *_filtered(_SOCKET, _KILL))
    plain, _ = _once(tmp_path, library, include, plain=True)
    made, outcome = _once(tmp_path, library, include, wrapper=sandbox)
    assert (made, outcome["result"]) == (plain, "passed") and "a filter of system calls" in outcome["reason"]
    assert _once(tmp_path, library, include)[1]["result"] == "kept"
    made, outcome = _once(tmp_path, library, include, wrapper=sandbox)
    assert (made, outcome["result"]) == (plain, "hit")


def test_a_sandbox_that_ends_programs_at_a_change_of_times_ends_none(
    tmp_path: Path, library: Path, headers: tuple[Path, Path]
) -> None:
    """The use of an entry is then not recorded."""
    include = f"-I{headers[0]}"
    plain, outcome = _once(tmp_path, library, include)
    assert outcome["result"] == "kept"
    made, outcome = _once(tmp_path, library, include, wrapper=_filtered(_UTIMENSAT, _KILL))
    assert (made, outcome["result"]) == (plain, "hit")


def test_in_a_container_with_its_default_profile_misses_are_kept(
    tmp_path: Path, library: Path, headers: tuple[Path, Path]
) -> None:
    """The filter is that of run, too; a sandbox inside still opens no socket."""
    include, profile = f"-I{headers[0]}", _filtered(_CONTAINER, _REFUSE)
    sandbox = {"below": profile, "wrapper": _filtered(_SOCKET, _KILL)}
    outcomes = [
        _once(tmp_path, library, include, **how)[1]["result"]
        for how in (sandbox, {"below": profile}, {"below": profile}, sandbox)
    ]
    assert outcomes == ["passed", "kept", "hit", "hit"]
