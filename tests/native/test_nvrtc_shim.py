"""NVRTC under the shim: a program gets the same results, served or not, whatever fails."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path

import pytest

from gpucache.backends.cuda import nvrtc
from gpucache.errors import NoDeviceError
from gpucache.host.file_stamps import files_seen
from gpucache.native import build, locate
from gpucache.serve.wire import Kind
from tests.children import run_text
from tests.native.peer import NVRTCKeeper, Peer, frame
from tests.patience import PATIENCE_S, TIME_OUT_MS, wait_until

pytestmark = pytest.mark.slow

_PROGRAM = Path(__file__).with_name("nvrtc_program.c")
_CASES, _FAILING = 12, 3
"""How many programs it compiles, and how many of them do not compile."""

Answer = Callable[[int, tuple[bytes, ...]], bytes | None]
Run = Callable[..., str]


@pytest.fixture(scope="session")
def audit(libraries: Path) -> Path:
    """The library for LD_AUDIT, with the shims next to it."""
    return libraries / build.file_name("nvrtc_audit")


@pytest.fixture(scope="session")
def programs(compiler: build.Compiler, library: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with the program: loading NVRTC by its path, and linked with it in three ways."""
    folder = tmp_path_factory.mktemp("programs")
    flags = ("-O1", "-pthread", str(_PROGRAM))
    ways = {
        "dlopen": (),
        "linked": ("-DLINKED", str(library)),
        "runpath": ("-DLINKED", str(library), f"-Wl,--enable-new-dtags,-rpath,{library.parent}"),
        "rpath": ("-DLINKED", str(library), f"-Wl,--disable-new-dtags,-rpath,{library.parent}"),
    }
    for way, more in ways.items():
        command = [*compiler.command, *flags, *more, "-o", str(folder / way), "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def bare(programs: Path, library: Path) -> Run:
    """A program's output without us, which is the same each time."""

    @cache
    def run(mode: str, way: str = "dlopen", **variables: str) -> str:
        return _run(programs / way, mode, str(library), **variables)

    return run


@pytest.fixture
def shimmed(programs: Path, library: Path, audit: Path) -> Run:
    def run(peer: Peer | Path, mode: str, way: str = "dlopen", **variables: str) -> str:
        path = peer.path if isinstance(peer, Peer) else peer
        variables = {"GPUCACHE_RUN_TIMEOUT_MS": TIME_OUT_MS, **variables}
        return _run(
            programs / way,
            mode,
            str(library),
            LD_AUDIT=str(audit),
            GPUCACHE_RUN_SOCKET=str(path),
            **variables,
        )

    return run


def _run(*command: str | Path, **variables: str) -> str:
    done = run_text(command, env={**_without_libraries(os.environ), **variables}, errors="replace")
    return f"{done.stdout}{done.stderr}ended with {done.returncode}"


def _without_libraries(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in ("LD_LIBRARY_PATH", "LD_AUDIT")}


@pytest.fixture
def keeper() -> NVRTCKeeper:
    return NVRTCKeeper()


@pytest.fixture
def peer(keeper: NVRTCKeeper) -> Iterator[Peer]:
    with Peer(keeper) as one:
        yield one


@pytest.mark.parametrize("way", ["dlopen", "linked", "runpath", "rpath"])
def test_every_answer_is_nvrtcs_own(
    bare: Run, shimmed: Run, peer: Peer, keeper: NVRTCKeeper, library: Path, way: str
) -> None:
    """Bytes, logs, names and errors are the same without us, at a miss and at a hit, however it is found."""
    where = {"LD_LIBRARY_PATH": str(library.parent)} if way == "linked" else {}
    plain = bare("plain", way, **where)
    assert "warned.cu(1): warning" in plain
    assert shimmed(peer, "plain", way, **where) == plain
    assert (len(peer.of_kind(Kind.COMPILE)), keeper.hits) == (_CASES, 0)
    assert shimmed(peer, "plain", way, **where) == plain
    assert (len(peer.of_kind(Kind.COMPILE)), keeper.hits) == (2 * _CASES, _CASES - _FAILING)


def test_it_says_what_came_out(shimmed: Run, peer: Peer, library: Path) -> None:
    """A request has every input, and the report every result."""
    shimmed(peer, "plain")
    seen, folder, environment, version, path, name, source, *rest = peer.of_kind(Kind.COMPILE)[1]
    assert os.fsdecode(seen) == files_seen()
    assert Path(os.fsdecode(folder)) == Path.cwd()
    assert b"GPUCACHE_RUN_SOCKET=" in environment
    assert version.decode() == ".".join(map(str, nvrtc.version()))
    assert Path(os.path.normpath(os.fsdecode(path))) == library
    assert (name, source[:8]) == (b"template.cu", b"template")
    assert rest == [b"0", b"2", b"-arch=sm_90", b"-std=c++17", b"3", b"k<int>", b"k<float>", b"k<int>"]
    _, code, spent, log, artifacts, kind, ptx, also, cubin, names, *lowered = peer.of_kind(Kind.COMPILED)[1]
    assert (code, log, artifacts, kind, also, names) == (b"0", b"", b"2", b"ptx", b"cubin", b"3")
    assert int(spent) > 0
    assert cubin.startswith(b"\x7fELF")
    assert ptx.endswith(b"\0")
    assert lowered[:2] == [b"k<int>", b"_Z1kIiEvPT_"]


_CHANGING = """
import ctypes, os, sys, threading, time
from pathlib import Path
library, go = ctypes.CDLL(sys.argv[1]), Path(sys.argv[2])
def change():
    while not go.exists():
        time.sleep(0.001)
    os.environ["SET_MEANWHILE"] = "1"
    go.unlink()
thread = threading.Thread(target=change)
thread.start()
program = ctypes.c_void_p()
library.nvrtcCreateProgram(ctypes.byref(program), b"__global__ void k() {}", b"k.cu", 0, None, None)
print(library.nvrtcCompileProgram(program, 0, None))
thread.join()
"""


@pytest.mark.parametrize("changes", [True, False])
def test_a_compile_whose_variables_changed_since_it_asked_is_not_kept(
    audit: Path, library: Path, keeper: NVRTCKeeper, tmp_path: Path, changes: bool
) -> None:
    """The key has the variables of the question, and the compiler may have read later ones."""
    go = tmp_path / "go"

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes | None:
        if kind == Kind.COMPILE and changes:
            go.touch()
            wait_until(lambda: not go.exists())
        if kind == Kind.COMPILED and not changes:
            go.touch()
        return keeper(kind, fields)

    with Peer(answer) as peer:
        where = {"LD_AUDIT": str(audit), "GPUCACHE_RUN_SOCKET": str(peer.path)}
        where["GPUCACHE_RUN_TIMEOUT_MS"] = TIME_OUT_MS
        assert _run(sys.executable, "-c", _CHANGING, str(library), str(go), **where) == "0\nended with 0"
        told = [why for _, why in peer.of_kind(Kind.COMPILE_DOUBTED)]
    assert told == [b"its environment changed meanwhile"] * changes


def test_headers_in_memory_are_sent(shimmed: Run, peer: Peer) -> None:
    shimmed(peer, "plain")
    (asked,) = (fields for fields in peer.of_kind(Kind.COMPILE) if fields[5] == b"memory.cu")
    assert asked[7:12] == (b"2", b"a/b.h", b"#include <c.h>\n", b"c.h", b"#define SEVEN 7\n")


def test_it_has_the_functions_of_nvrtc(bare: Run, shimmed: Run, peer: Peer) -> None:
    """A program finds exactly the functions that its NVRTC has."""
    assert shimmed(peer, "functions") == bare("functions")


@pytest.mark.parametrize("what", ["no server", "gone at once", "garbage", "silence", "pass", "pass and told"])
def test_whatever_the_server_does(bare: Run, shimmed: Run, tmp_path: Path, what: str) -> None:
    """A missing, ending, silent or broken server changes nothing."""
    plain = bare("plain")
    if what == "no server":
        assert shimmed(tmp_path / "nobody", "plain") == plain
        return
    answers: dict[str, bytes | None] = {
        "garbage": b"\xff" * 64,
        "silence": None,
        "pass": frame(Kind.PASS, b""),
        "pass and told": frame(Kind.PASS, b"7"),
    }

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes | None:
        return answers.get(what, b"")

    with Peer(answer) as peer:
        short = {"GPUCACHE_RUN_TIMEOUT_MS": "200"} if what == "silence" else {}
        assert shimmed(peer, "plain", **short) == plain
        asked, told = {"pass": (_CASES, 0), "pass and told": (_CASES, _CASES)}.get(what, (1, 0))
        wait_until(lambda: len(peer.of_kind(Kind.COMPILED)) >= told)  # no program waits until one is heard
        assert (len(peer.of_kind(Kind.COMPILE)), len(peer.of_kind(Kind.COMPILED))) == (asked, told)


def test_a_server_that_ends_in_the_middle(bare: Run, shimmed: Run, keeper: NVRTCKeeper) -> None:
    """The program goes on by itself. Reports are not counted, as no program waits for one to arrive."""
    plain = bare("plain")

    left = iter(range(2))

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes | None:
        return b"" if kind == Kind.COMPILE and next(left, None) is None else keeper(kind, fields)

    with Peer(answer) as peer:
        assert shimmed(peer, "plain") == plain
        assert len(peer.of_kind(Kind.COMPILE)) == 3


@pytest.mark.parametrize(
    "answer",
    [
        (),
        (b"", b"", b"1"),
        (b"", b"", b"1", b"cubin"),
        (b"", b"", b"1", b"cubin", b"bytes", b"7", b"k"),
        (b"", b"", b"1", b"cubin", b"bytes", b"0", b"more"),
        (b"", b"", b"99999999999999999999", b"cubin", b"bytes", b"0"),
        (b"", b"", b"1", b"cubin", b"bytes", b"1", b"k", b"k"),
    ],
)
def test_a_hit_that_does_not_read_is_none(bare: Run, shimmed: Run, answer: tuple[bytes, ...]) -> None:
    """Missing fields, extra fields or those for other names are not a hit, and NVRTC compiles."""
    plain = bare("again")
    with Peer(lambda *_: frame(Kind.HIT, *answer)) as peer:
        assert shimmed(peer, "again") == plain
        assert len(peer.of_kind(Kind.COMPILE)) == 9


@pytest.mark.parametrize("left", ["all", "even", "odd", "first", "last"])
def test_a_handle_that_is_compiled_again_otherwise(
    bare: Run, shimmed: Run, peer: Peer, keeper: NVRTCKeeper, left: str
) -> None:
    """As with NVRTC a log and a PTX are of the last compile, other results of the last compile with them."""
    plain = bare("change")
    assert shimmed(peer, "change") == plain
    ways = {"all": slice(None), "even": slice(0, None, 2), "odd": slice(1, None, 2)}
    ways |= {"first": slice(1), "last": slice(3, None)}
    kept = list(keeper.kept.items())[ways[left]]
    keeper.kept, keeper.hits = dict(kept), 0
    assert shimmed(peer, "change") == plain
    assert keeper.hits >= len(kept)


def test_another_nvrtc_of_the_same_version_stays_as_it_is(
    programs: Path, library: Path, audit: Path, peer: Peer, tmp_path: Path
) -> None:
    """A program that loads two files gets both, and the first is served."""
    other = tmp_path / library.name
    shutil.copyfile(library, other)
    for builtins in library.parent.glob("libnvrtc-builtins.so*"):
        (tmp_path / builtins.name).symlink_to(builtins)
    command = (programs / "dlopen", "two", str(library), str(other))
    plain = _run(*command)
    seen = _run(*command, LD_AUDIT=str(audit), GPUCACHE_RUN_SOCKET=str(peer.path))
    assert seen == plain
    assert len(peer.of_kind(Kind.COMPILE)) == 1


def test_a_library_of_another_machine_is_passed_over(
    programs: Path, library: Path, audit: Path, peer: Peer, bare: Run, tmp_path: Path
) -> None:
    """The loader goes on to the next directory, as it does without us."""
    (tmp_path / library.name).write_bytes(b"\x7fELF\x01\x01" + bytes(1000))
    where = {"LD_LIBRARY_PATH": f"{tmp_path}:{library.parent}"}
    plain = bare("functions", "linked", **where)
    assert plain.endswith("ended with 0")
    assert (
        _run(
            programs / "linked", "functions", LD_AUDIT=str(audit), GPUCACHE_RUN_SOCKET=str(peer.path), **where
        )
        == plain
    )


def test_the_server_hears_of_nvrtc_once(audit: Path, peer: Peer, shimmed: Run, tmp_path: Path) -> None:
    """It prepares while NVRTC loads. OpenCL's loader is not announced, as it also lists devices."""
    code = "import ctypes\nfor name in 'libOpenCL.so.0', 'libm.so.6':\n"
    code += "    try:\n        ctypes.CDLL(name)\n    except OSError:\n        pass"
    audited = {**os.environ, "LD_AUDIT": str(audit), "GPUCACHE_RUN_SOCKET": str(peer.path)}
    subprocess.run([sys.executable, "-c", code], env=audited, check=True, timeout=PATIENCE_S)
    shimmed(peer, "functions")
    wait_until(lambda: peer.loaded == [Kind.NVRTC_LOADED])
    shimmed(tmp_path / "gone", "functions")


def test_the_users_own_audit_library_is_asked_too(
    compiler: build.Compiler, programs: Path, library: Path, audit: Path, peer: Peer, tmp_path: Path
) -> None:
    """A library after ours sees the loaded files."""
    source, made = tmp_path / "own.c", tmp_path / "own.so"
    source.write_text(
        "#define _GNU_SOURCE\n#include <link.h>\n#include <stdio.h>\n"
        "unsigned la_version(unsigned version) { return version; }\n"
        "unsigned la_objopen(struct link_map *map, Lmid_t space, uintptr_t *cookie) {\n"
        '  (void)space, (void)cookie; fprintf(stderr, "opened %s\\n", map->l_name); return 0; }\n'
    )
    subprocess.run([*compiler.command, "-shared", "-fPIC", str(source), "-o", str(made)], check=True)
    said = _run(
        *(programs / "dlopen", "functions", str(library)),
        LD_AUDIT=f"{audit}:{made}",
        GPUCACHE_RUN_SOCKET=str(peer.path),
    )
    assert f"opened {library.parent}/./{library.name}" in said
    assert said.endswith("ended with 0")


@pytest.mark.parametrize(
    ("version", "fits"), [((2, 34), False), ((), False), ((2, 35), True), ((3, 0), True)]
)
def test_an_old_glibc_is_left_alone(
    audit: Path, monkeypatch: pytest.MonkeyPatch, version: tuple[int, ...], fits: bool
) -> None:
    """Its linker would slow down every call of the program."""
    monkeypatch.setattr(locate, "BUILT", audit.parent)
    monkeypatch.setattr(locate, "_glibc", lambda: version)
    if fits:
        assert locate.locate("nvrtc_audit") == audit
    else:
        with pytest.raises(NoDeviceError, match=r"needs glibc 2\.35"):
            locate.locate("nvrtc_audit")
