"""The OpenCL layer under programs in C and in Python, on PoCL and Intel's CPU runtime.

The server is a dictionary that speaks the wire (``peer``). Whatever it does, a program's output must be
the same as without us.
"""

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from gpucache.host.file_stamps import files_seen
from gpucache.serve.wire import Kind
from tests.children import run_text
from tests.native.peer import Answer, Keeper, Peer, always, devices_of, environment, frame
from tests.patience import wait_until
from tests.pocl import PLATFORM, name_pocl_for_c, need_pocl, need_pocl_for_c

pytestmark = pytest.mark.slow

INTEL = "Intel(R) OpenCL"
_WITH_PYOPENCL = Path(__file__).with_name("pyopencl_program.py")
_MODES = ("facts", "two", "threads", "forks", "closed", "exit", "apart", "linking")
# The local sizes of program.c's launches: the driver's choice, and two given ones.
_SIZES = {(b"plain", b""), (b"plain", b"4"), (b"fixed", b"4")}

Run = Callable[..., str]


@pytest.fixture(params=[PLATFORM, INTEL], ids=["pocl", "intel"])
def platform(request: pytest.FixtureRequest) -> str:
    if request.param == PLATFORM:
        need_pocl()
    return str(request.param)


@pytest.fixture(scope="module")
def printed_bare() -> dict[tuple[str, str], str]:
    """The program's output without us, by mode and platform."""
    return {}


@pytest.fixture
def run(
    program: Path,
    layer: Path,
    platform: str,
    opencl_environment: Mapping[str, str],
    printed_bare: dict[tuple[str, str], str],
    tmp_path: Path,
) -> Run:
    """The program's output in a mode, with or without a server."""
    if platform == PLATFORM:
        need_pocl_for_c()
    vendors = name_pocl_for_c(Path(opencl_environment["OCL_ICD_VENDORS"]), tmp_path / "vendors")
    loader = {"OCL_ICD_VENDORS": str(vendors), "LD_LIBRARY_PATH": str(Path(sys.prefix, "lib"))}
    base = {**opencl_environment, **loader}

    def run(mode: str, peer: Peer | None = None, **settings: str) -> str:
        command = [str(program), mode, platform]
        if peer or settings:
            served = environment(peer, layer, base) if peer else base
            return _output(command, {**served, **settings})
        if (mode, platform) not in printed_bare:
            printed_bare[mode, platform] = _output(command, base)
        return printed_bare[mode, platform]

    return run


def _output(command: list[str], environ: Mapping[str, str]) -> str:
    done = run_text(command, env=environ)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _hits(keeper: Keeper) -> int:
    return sum(keeper.served)


@pytest.mark.parametrize("mode", _MODES)
def test_a_program_learns_the_same_bare_on_a_miss_and_on_a_hit(run: Run, platform: str, mode: str) -> None:
    """Every fact that a program queries is the same, whichever process compiled."""
    bare = run(mode)
    keeper = Keeper()
    with Peer(keeper) as peer:
        assert run(mode, peer) == bare
        missed = keeper.served.count(False)
        assert run(mode, peer) == bare
    if (mode, platform) not in (("apart", PLATFORM), ("linking", PLATFORM)):
        assert missed > 0
        assert _hits(keeper) > 0
    assert peer.of_kind(Kind.REJECTED) == []


def test_pyopencl_is_served_under_its_own_loader(
    layer: Path, platform: str, opencl_environment: Mapping[str, str]
) -> None:
    """PyOpenCL brings another loader, and its information and results are the same."""
    command = [sys.executable, str(_WITH_PYOPENCL), platform]
    bare = _output(command, opencl_environment)
    keeper = Keeper()
    with Peer(keeper) as peer:
        served = environment(peer, layer, opencl_environment)
        assert _output(command, served) == bare
        assert keeper.served.count(True) == 0
        assert _output(command, served) == bare
    assert _hits(keeper) == 2


def test_a_build_is_described_in_full(run: Run, platform: str) -> None:
    """A request has directory, environment, options, source and the facts about the device."""
    with Peer(Keeper()) as peer:
        run("exit", peer, OF_THE_PROGRAM="it")
    first = peer.of_kind(Kind.BUILD)[0]
    seen, folder, environ, options, source, number = first[:6]
    assert os.fsdecode(seen) == files_seen()
    assert Path(os.fsdecode(folder)) == Path.cwd()
    assert b"OF_THE_PROGRAM=it" in environ.split(b"\0")
    assert options == b"-DN=3"
    assert source.startswith(b"__attribute__") and b"table[2]" in source
    assert int(number) == 1
    [(library, platform_name, *rest)] = devices_of(first)
    assert Path(os.fsdecode(library)).name.startswith(("libpocl", "libintelocl"))
    assert platform_name.decode() == platform
    assert all(rest)


def test_a_server_hears_of_each_process_that_may_build(run: Run) -> None:
    """It prepares meanwhile, and gets no message from programs that use no OpenCL."""
    with Peer(Keeper()) as peer:
        run("exit", peer)
        run("exit", peer)
    assert peer.loaded == [Kind.LOADED] * 2


def test_a_program_that_lists_devices_starts_no_server(
    layer: Path, opencl_environment: Mapping[str, str]
) -> None:
    """Only a context is made to build for; the note shows that the layer was there."""
    listing = "import pyopencl as cl; print([one.get_devices() for one in cl.get_platforms()])"
    with Peer(Keeper()) as peer:
        _output([sys.executable, "-c", listing], environment(peer, layer, opencl_environment))
        notes = peer.path.with_name("notes").read_text(encoding="ascii")
    assert "loaded" in notes
    assert peer.loaded == []


def test_compilers_that_build_late_are_not_asked_for_binaries(run: Run) -> None:
    """If the server wants no binary none is fetched, and each different launch is reported once."""
    with Peer(Keeper(wanted=False)) as peer:
        run("facts", peer)
        notes = peer.path.with_name("notes").read_text(encoding="ascii")
    built = peer.of_kind(Kind.BUILT)
    assert built and all(fields[3] == b"" for fields in built)
    token = built[0][0]
    told = [fields[1:] for fields in peer.of_kind(Kind.LAUNCHED) if fields[0] == token]
    assert sorted(told) == sorted(_SIZES)
    # A message may be lost, as nobody waits for its reply; a note is not.
    noted = [
        line.split()[2:] for line in notes.splitlines() if line.startswith(f"launched {token.decode()} ")
    ]
    assert sorted(noted) == sorted([size.decode()] for _, size in _SIZES if size)


def test_what_is_only_recorded_is_told_without_binaries(run: Run) -> None:
    """A PASS with a token still gets the end of the build and its launches; without one nothing follows."""
    bare = run("exit")
    with Peer(always(frame(Kind.PASS, b"t"))) as peer:
        assert run("exit", peer) == bare
    assert [(code, binary) for _, code, _, binary, _ in peer.of_kind(Kind.BUILT)] == [(b"0", b"")] * 2
    assert peer.of_kind(Kind.LAUNCHED) == [(b"t", b"plain", b"")]
    with Peer(always(frame(Kind.PASS, b""))) as peer:
        assert run("exit", peer) == bare
    assert {kind for kind, _ in peer.heard} == {Kind.BUILD}


def test_the_end_of_a_served_build_is_told(run: Run) -> None:
    """A hit is followed by its end, so that the server knows the program's wait."""
    with Peer(Keeper()) as peer:
        run("exit", peer)
        heard = len(peer.heard)
        run("exit", peer)
    served = [fields for kind, fields in peer.heard[heard:] if kind == Kind.BUILT]
    assert [rest for _, *rest in served] == [[b"0", b"0", b"", b""]] * 2


def test_a_link_is_named_by_its_parts_in_their_order(run: Run, platform: str) -> None:
    """A link of the same parts in another order is another question."""
    if platform == PLATFORM:
        pytest.skip("PoCL compiles late")
    with Peer(Keeper()) as peer:
        run("apart", peer)
    assert len(peer.of_kind(Kind.PART)) == len(peer.of_kind(Kind.PART_COMPILED))
    links = [fields[4].split() for fields in peer.of_kind(Kind.LINK)]
    one, other = (marks for marks in links if len(set(marks)) == 3)
    assert one == [other[0], other[2], other[1]]


def test_a_link_of_a_part_that_is_compiled_again_meanwhile_is_not_kept(
    run: Run, platform: str, tmp_path: Path
) -> None:
    """The driver links the later object, and the question was about the earlier one."""
    if platform == PLATFORM:
        pytest.skip("PoCL compiles late")
    keeper, go = Keeper(), tmp_path / "go"

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes:
        if kind == Kind.LINK:
            with peer.meanwhile():
                go.touch()
                wait_until(lambda: len(peer.of_kind(Kind.PART_COMPILED)) == 3)
        return keeper(kind, fields)

    with Peer(answer) as peer:
        assert "gives 32" in run("racing", peer, PROGRAM_GO=str(go))
    [(_, code, _, binary, _)] = peer.of_kind(Kind.BUILT)
    assert (code, binary) == (b"0", b"")


def test_parts_whose_headers_changed_meanwhile_are_linked_by_the_driver(run: Run) -> None:
    """The server is asked again after the compile, and gets no report of such a link."""
    bare, keeper = run("apart"), Keeper()

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes:
        return frame(Kind.PASS, b"") if kind == Kind.PART_COMPILED else keeper(kind, fields)

    with Peer(answer) as peer:
        assert run("apart", peer) == bare
    assert peer.of_kind(Kind.LINK) == []


@pytest.mark.parametrize("binary", [b"", b"garbage", b"\x7fELF" + bytes(60)])
def test_a_linked_binary_that_the_driver_refuses_is_linked_from_its_parts(
    run: Run, platform: str, binary: bytes
) -> None:
    """The server gets the driver's error, and then the new link."""
    if platform == PLATFORM:
        pytest.skip("PoCL compiles late")
    bare, keeper = run("apart"), Keeper()

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes:
        if kind == Kind.LINK:
            keeper(kind, fields)
            return frame(Kind.HIT, b"0", binary, b"a log")
        return keeper(kind, fields)

    with Peer(answer) as peer:
        assert run("apart", peer) == bare
    assert len(peer.of_kind(Kind.REJECTED)) == len(peer.of_kind(Kind.LINK)) > 0


@pytest.mark.parametrize("binary", [b"", b"garbage", b"poclbin" + bytes(40), b"\x7fELF" + bytes(60)])
def test_a_binary_that_the_driver_refuses_is_built_from_source(run: Run, binary: bytes) -> None:
    """The server gets the driver's error, and the new binary if it wants that."""
    bare = run("exit")

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes:
        if kind == Kind.BUILD:
            return frame(Kind.HIT, b"t", binary, b"a log")
        return frame(Kind.MISS, b"t", b"1") if kind == Kind.REJECTED else frame(Kind.OK)

    with Peer(answer) as peer:
        assert run("exit", peer) == bare
    assert [int(code) < 0 for _, code in peer.of_kind(Kind.REJECTED)] == [True, True]
    assert all(fields[3] for fields in peer.of_kind(Kind.BUILT))


def _too_few(kind: int, fields: tuple[bytes, ...]) -> bytes:
    return frame(Kind.HIT, b"t", b"a binary without a log")


_MISBEHAVING: Mapping[str, Answer] = {
    "nothing": always(None),
    "garbage": always(b"\xff" * 100),
    "empty": always(b""),
    "another version": always(frame(Kind.OK)[:4] + b"\2" + frame(Kind.OK)[5:]),
    "no such kind": always(frame(0x99)),
    "too few fields": _too_few,
}


@pytest.mark.parametrize("answer", _MISBEHAVING.values(), ids=_MISBEHAVING)
def test_a_server_that_makes_no_sense_is_asked_once(run: Run, answer: Answer) -> None:
    """The program goes on as without it, and stops asking."""
    bare = run("exit")
    with Peer(answer) as peer:
        assert run("exit", peer, GPUCACHE_RUN_TIMEOUT_MS="200") == bare
        wait_until(lambda: bool(peer.heard))
    assert [kind for kind, _ in peer.heard] == [Kind.BUILD]


@pytest.mark.parametrize("mode", ["facts", "threads"])
def test_a_server_may_end_while_the_program_runs(run: Run, mode: str) -> None:
    """Served programs go on working, and the rest are compiled."""
    bare = run(mode)
    keeper = Keeper()
    with Peer(keeper) as peer:
        run(mode, peer)
    left = iter(range(9))

    def answer(kind: int, fields: tuple[bytes, ...]) -> bytes:
        if next(left, None) is None:
            dying.stop_listening()
            return b""
        return keeper(kind, fields)

    with Peer(answer) as dying:
        assert run(mode, dying) == bare
    assert _hits(keeper) > 0


def test_without_a_server_the_layer_does_nothing(run: Run, layer: Path) -> None:
    """Nothing differs if the layer is named but has no server."""
    bare = run("exit")
    assert run("exit", OPENCL_LAYERS=str(layer)) == bare
    assert run("exit", OPENCL_LAYERS=str(layer), GPUCACHE_RUN_SOCKET="/nonexistent/socket") == bare


def test_a_layer_that_is_named_twice_serves_once(run: Run, layer: Path) -> None:
    """One command that runs another may lead to a list with the layer twice."""
    keeper = Keeper()
    with Peer(keeper) as peer:
        twice = f"{layer}:{layer}"
        assert run("exit", peer, OPENCL_LAYERS=twice) == run("exit", peer, OPENCL_LAYERS=twice)
    assert keeper.served == [False, False, True, True]


_CONTEXTS_OF_TWO_LOADERS = """
import ctypes, sys
Function = ctypes.CFUNCTYPE(ctypes.c_void_p, *[ctypes.c_void_p] * 6)
layer, asked, functions, tables = ctypes.CDLL(sys.argv[1]), [], [], []
for number in range(2):
    functions.append(Function(lambda *_, number=number: asked.append(number)))
    below = (ctypes.c_void_p * 200)(*[ctypes.cast(functions[-1], ctypes.c_void_p).value] * 200)
    count, table = ctypes.c_uint(), ctypes.POINTER(ctypes.c_void_p)()
    assert layer.clInitLayer(len(below), below, ctypes.byref(count), ctypes.byref(table)) == 0
    tables.append(table)
for table in reversed(tables):
    for place in (4, 5):  # clCreateContext and clCreateContextFromType
        Function(table[place])(*[None] * 6)
print(asked)
"""


def test_each_loader_of_a_process_makes_its_own_contexts(layer: Path, tmp_path: Path) -> None:
    """Another may not have its platforms, and without a platform it would take one of its own."""
    environ = {**os.environ, "GPUCACHE_RUN_SOCKET": str(tmp_path / "absent")}
    assert _output([sys.executable, "-c", _CONTEXTS_OF_TWO_LOADERS, str(layer)], environ) == "[1, 1, 0, 0]\n"
