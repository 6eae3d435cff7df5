"""``warm --on``: the workers of a cluster build, and this process keeps what they made."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from msgspec import msgpack

from gpucache import __version__
from gpucache.engine.workers import clusters
from gpucache.engine.workers.clusters import LACKS_PARTS, Cluster, Job, Task, in_process, look, open_cluster
from gpucache.engine.workers.pool import Died, Done, Failed
from gpucache.errors import WorkersError
from gpucache.model import CacheKey, Device, Entry, Target, Toolchain
from gpucache.probe.profile import Profile, encode_profile
from gpucache.store.directory import DirectoryStore
from gpucache.store.format import parse_true
from tests.children import has_ended, run_text
from tests.cli.conftest import BAD_CU, Answer
from tests.clusters import Dask, Mpi, compiling, parent
from tests.patience import PATIENCE_S, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.cli.conftest import Run


GOOD_CU = '#include "f.h"\nextern "C" __global__ void k{0}(float *a) {{ a[threadIdx.x] *= FACTOR + {0}; }}\n'
Write = Callable[..., Path]
VECTOR = 'extern "C" __global__ void vector(float *a) { a[threadIdx.x] += 1; }\n'
PLAIN_CL = '#include "f.h"\n__kernel void twice(__global float *a) { a[get_global_id(0)] *= FACTOR; }\n'
CALLS_CL = """\
#include "f.h"
#define NAME "named.h"
#include NAME
__kernel void twice(__global float *a) { a[get_global_id(0)] *= FACTOR * NAMED; }
"""
CHECKED_CL = """\
#include <gpucache/check.h>
kernel void k(GPUCACHE_CHECKED global int *out, int n)
{
    GPUCACHE_BEGIN;
    GPUCACHE_CHECK(n > 0, "n is %d", n);
    out[0] = n;
}
"""
MANIFEST = """\
[[program]]
source = "k.cu"
include = ["inc"]
targets = ["{nvrtc}"]
variants = {{ SIZE = [1, 2] }}

[[program]]
source = "k.cl"
include = ["inc"]
headers = ["inc/named.h"]
targets = ["{intel}"]

[[program]]
source = "checked.cl"
checks = "sync"
targets = ["{intel}"]
"""


Start = Callable[..., "Dask | Mpi"]


@pytest.fixture(params=[Dask, Mpi])
def kind(request: pytest.FixtureRequest) -> Any:
    """The kind of the cluster; tests of one alone name it."""
    return request.param


@pytest.fixture
def start(tmp_path: Path, vendors: Path, kind: type[Dask | Mpi]) -> Iterator[Start]:
    """Start a cluster with a worker for each of some environments."""
    pytest.importorskip("distributed" if kind is Dask else "mpi4py")
    with ExitStack() as ends:

        def started(*environments: Mapping[str, str]) -> Dask | Mpi:
            place = tmp_path / "cluster"
            place.mkdir()
            seen = {"OCL_ICD_VENDORS": str(vendors)}
            cluster = kind(place, [seen | dict(one) for one in environments])
            ends.callback(cluster.close)
            return cluster

        yield started


def _begun(cluster: Dask | Mpi, root: Path, *words: object) -> subprocess.Popen[str]:
    command = cluster.command(("--root", root, "--json", "warm", *words))
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=cluster.environ, stdout=pipe, stderr=pipe, text=True, cwd="/")


def _compiling(cluster: Dask | Mpi, child: subprocess.Popen[str]) -> dict[int, subprocess.Popen[Any]]:
    """The processes of jobs, each with the process that began its worker."""
    return compiling(cluster.workers if isinstance(cluster, Dask) else [child])


def _ended(child: subprocess.Popen[str]) -> Answer:
    with child:
        out, err = child.communicate(timeout=PATIENCE_S)
    said_by_mpiexec, brace, rest = out.partition("{")
    return Answer(child.returncode, f"{brace}{rest}", f"{err}{said_by_mpiexec}")


def _warm(cluster: Dask | Mpi, root: Path, *words: object) -> Answer:
    return _ended(_begun(cluster, root, *words))


def _entries(root: Path) -> dict[str, Entry]:
    """The entries of a root without their times and logs, which differ between two builds."""
    found = {}
    for file in (root / "v1" / "entries").rglob("*.gpc"):
        entry = parse_true(file.read_bytes(), CacheKey(file.stem))
        head = entry.head._replace(created_ns=0, compile_ns=0)
        found[file.stem] = entry._replace(head=head, detail=entry.detail._replace(build_log=""))
    return found


def _history(root: Path) -> set[tuple[str, str, str]]:
    lines = (line for line in (root / "v1" / "log.jsonl").read_text().splitlines() if '"what"' in line)
    events = map(json.loads, lines)
    return {(one["what"], one["key"], one.get("source", "")) for one in events}


def _results(answer: Answer) -> dict[str, str]:
    assert answer.out, answer.err
    return {row["program"]: row["result"] for row in answer.document["outcomes"]}


@pytest.mark.slow
def test_entries_are_those_of_a_build_at_home(
    run: Run, start: Start, write: Write, root: Path, intel: str, nvrtc: str, tmp_path: Path
) -> None:
    """Headers, named headers and variants travel; entries and histories are equal but for their times."""
    texts = {"k.cu": GOOD_CU.format(1), "k.cl": CALLS_CL, "checked.cl": CHECKED_CL, "bad.cu": BAD_CU}
    texts |= {"inc/f.h": "#define FACTOR 2\n", "inc/named.h": "#define NAMED 3\n"}
    sources = write({**texts, "m.toml": MANIFEST.format(intel=intel, nvrtc=nvrtc)})
    cluster = start({})
    away = tmp_path / "away"
    answer = _warm(cluster, away, "--manifest", sources / "m.toml")
    assert answer.code == 0, answer.err or answer.out
    # Intel's binary depends on what its process compiled before.
    assert run("warm", "--manifest", sources / "m.toml", "--jobs", "1").code == 0
    assert _entries(away) == _entries(root)
    assert _history(away) == _history(root)
    again = _warm(cluster, away, "--manifest", sources / "m.toml")
    assert {*_results(again).values()} == {"hit"}
    bad = _warm(cluster, away, sources / "bad.cu", "--target", nvrtc)
    [row] = bad.document["outcomes"]
    assert (bad.code, row["result"], "bad.cu(1)" in row["log"]) == (3, "failed", True)


SLOW = "S<60, 0>", "S<14, 0>"
"""The depth of the endless program, and one that takes seconds."""


@pytest.mark.slow
def test_a_process_that_is_killed_is_tried_once_more(
    start: Start, write: Write, endless: str, nvrtc: str, tmp_path: Path
) -> None:
    """A worker whose process dies of a build stays, and the build is tried again."""
    sources, cluster = write({"slow.cu": endless.replace(*SLOW)}), start({})
    child = _begun(cluster, tmp_path / "away", sources, "--target", nvrtc, "--timeout", "600")
    wait_until(lambda: bool(_compiling(cluster, child)))
    os.kill(min(_compiling(cluster, child)), signal.SIGKILL)
    assert _results(_ended(child)) == {"slow.cu": "built"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Mpi])
def test_a_lost_process_of_mpiexec_ends_the_run_and_the_next_one_goes_on(
    start: Start, write: Write, endless: str, nvrtc: str, tmp_path: Path
) -> None:
    """MPI ends all of its processes with one of them; what came back before is kept."""
    sources = write({"inc/f.h": "#define FACTOR 2\n", "endless.cu": endless})
    for number in range(3):
        write({f"k{number}.cu": GOOD_CU.format(number)})
    cluster, away = start({}, {}), tmp_path / "away"
    options = ("-I", sources / "inc", "--target", nvrtc)
    child = _begun(cluster, away, sources, *options)
    wait_until(lambda: len([*(away / "v1" / "entries").rglob("*.gpc")]) == 3)  # not half-written ones
    pids = _compiling(cluster, child)
    os.kill(parent(min(pids)), signal.SIGKILL)
    assert _ended(child).code != 0
    wait_until(lambda: all(map(has_ended, pids)))
    (sources / "endless.cu").unlink()
    assert {*_results(_warm(cluster, away, sources, *options)).values()} == {"hit"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Dask])
def test_a_lost_worker_costs_nothing_but_time(
    start: Start, write: Write, endless: str, nvrtc: str, tmp_path: Path
) -> None:
    """Another worker compiles the program of a worker that was killed."""
    sources = write({"inc/f.h": "#define FACTOR 2\n", "a_slow.cu": endless.replace(*SLOW)})
    for number in range(4):
        write({f"k{number}.cu": GOOD_CU.format(number)})
    cluster = start({}, {})
    options = (sources, "-I", sources / "inc", "--target", nvrtc, "--timeout", "600")
    child = _begun(cluster, tmp_path / "away", *options)
    wait_until(lambda: bool(_compiling(cluster, child)))
    pid, worker = next(iter(_compiling(cluster, child).items()))
    os.killpg(worker.pid, signal.SIGKILL)  # its nanny as well, which would start another
    answer = _ended(child)
    assert {*_results(answer).values()} == {"built"}, answer.out
    wait_until(lambda: has_ended(pid))


_HASTE = """
import sys
from gpucache.cli import main
from gpucache.engine.workers import clusters
clusters._GRACE_S, clusters._RETURN_S = -590.0, 0.0
sys.exit(main())
"""
"""gpucache, which waits only seconds for a build with a time limit of 600."""


@pytest.mark.slow
def test_a_worker_that_is_stopped_ends_no_run(
    start: Start, write: Write, endless: str, nvrtc: str, tmp_path: Path
) -> None:
    """A stopped worker's build fails after its time limit, and the run ends."""
    cluster = start({})
    words = ("--json", "--root", tmp_path / "away", "warm", write({"endless.cu": endless}))
    command = cluster.command((*words, "--target", nvrtc, "--timeout", "600"))
    command = [{"-m": "-c", "gpucache": _HASTE}.get(word, word) for word in command]
    pipe = subprocess.PIPE
    child = subprocess.Popen(command, env=cluster.environ, stdout=pipe, stderr=pipe, text=True)
    wait_until(lambda: bool(_compiling(cluster, child)) or child.poll() is not None)
    stopped = [parent(pid) for pid in _compiling(cluster, child)]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    answer = _ended(child)
    for pid in stopped if isinstance(cluster, Dask) else ():
        os.kill(pid, signal.SIGCONT)
    [row] = answer.document["outcomes"]
    assert row["result"] == "failed"
    assert "is left" in row["reason"] and "gave no answer within 10 s" in row["reason"]
    assert answer.code == 3 or isinstance(cluster, Mpi)  # of a process that mpiexec kills


@pytest.mark.slow
def test_an_endless_compile_is_poison_at_home(
    start: Start, write: Write, endless: str, nvrtc: str, tmp_path: Path
) -> None:
    """A compile over its time limit on a worker is tried twice, and left out of the next run here."""
    sources, cluster = write({"endless.cu": endless, "vector.cu": VECTOR}), start({})
    options = (sources, "--target", nvrtc, "--timeout", "2")
    answer = _warm(cluster, tmp_path / "away", *options)
    rows = {row["program"]: row for row in answer.document["outcomes"]}
    assert (answer.code, rows["vector.cu"]["result"]) == (3, "built")
    assert "did not end within 2 s, twice" in rows["endless.cu"]["reason"]
    answer = _warm(cluster, tmp_path / "away", *options)
    assert _results(answer) == {"endless.cu": "poisoned", "vector.cu": "hit"}


@pytest.mark.slow
def test_an_interrupt_ends_the_compiles_of_the_workers(
    run: Run, start: Start, write: Write, endless: str, nvrtc: str, tmp_path: Path
) -> None:
    """Ctrl-C is exit 130 with an outcome for each item; no worker goes on, and no lock is held."""
    sources, cluster, store = (
        write({"endless.cu": endless}),
        start({}),
        DirectoryStore(tmp_path / "away", writable=True),
    )
    [row] = run("--json", "warm", sources, "--target", nvrtc, "--check").document["outcomes"]
    child = _begun(cluster, store.root, sources, "--target", nvrtc)
    wait_until(lambda: bool(_compiling(cluster, child)))
    [pid] = _compiling(cluster, child)
    with store.single_flight(CacheKey(row["key"]), 0) as free:
        assert not free
    child.send_signal(signal.SIGINT)
    answer = _ended(child)
    assert _results(answer) == {"endless.cu": "interrupted"} and "Traceback" not in answer.err
    assert answer.code in ((0, 130) if isinstance(cluster, Mpi) else (130,))  # after a signal mpiexec's own
    wait_until(lambda: has_ended(pid))
    with store.single_flight(CacheKey(row["key"]), 0) as free:
        assert free


@pytest.mark.slow
def test_builds_go_to_workers_that_can_make_them(
    start: Start, write: Write, vendors: Path, intel: str, nvrtc: str, tmp_path: Path
) -> None:
    """Of two workers only one has OpenCL; it gets every program in OpenCL C, the process that is free."""
    texts = {f"k{number}.cl": f"{PLAIN_CL}// {number}\n" for number in range(3)}
    sources = write(
        {**texts, "vector.cu": VECTOR, "f.h": "#define FACTOR 2\n", "named.h": "#define NAMED 3\n"}
    )
    none = tmp_path / "none"
    none.mkdir()
    cluster = start({}, {"OCL_ICD_VENDORS": str(none)})
    answer = _warm(cluster, tmp_path / "away", sources, "--target", intel, "--target", nvrtc)
    assert {*_results(answer).values()} == {"built"}, answer.out


@pytest.fixture
def dask(tmp_path: Path) -> Iterator[Callable[..., Dask]]:
    """Starts a Dask cluster with a worker for each of some environments."""
    pytest.importorskip("distributed")
    with ExitStack() as ends:

        def started(*environments: Mapping[str, str]) -> Dask:
            cluster = Dask(tmp_path, environments)
            ends.callback(cluster.close)
            return cluster

        yield started


@pytest.mark.slow
@pytest.mark.parametrize(
    "modules", [(), ("engine/__init__", "engine/workers/__init__", "engine/workers/clusters")]
)
def test_a_worker_that_lacks_gpucache_lives_on(
    modules: tuple[str, ...], dask: Callable[..., Dask], write: Write, tmp_path: Path
) -> None:
    """It, or one with a gpucache of other functions, may run other users' tasks; the remedy is named."""
    from distributed import Client

    stranger = write({f"gpucache/{name}.py": "" for name in ("__init__", *modules)}, "stranger")
    cluster = dask({"PYTHONPATH": str(stranger), "PYTHONSAFEPATH": "1"})
    sources = write({"vector.cu": VECTOR})
    with Client(cluster.address, set_as_default=False) as client:
        before = client.run(os.getpid)
        answer = _warm(cluster, tmp_path / "away", sources, "--target", "cuda:sm_90")
        assert client.run(os.getpid) == before
    assert answer.code == 4 and f"it cannot import gpucache {__version__} (" in answer.err, answer.err


_ADAPTIVE = """
import sys
from distributed import LocalCluster
if __name__ == "__main__":
    with LocalCluster(n_workers=0, threads_per_worker=1, dashboard_address=None, host="127.0.0.1") as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="200ms")
        print(cluster.scheduler_address, flush=True)
        sys.stdin.read()
"""


@pytest.mark.slow
def test_an_adaptive_cluster_starts_a_worker(write: Write, nvrtc: str, tmp_path: Path) -> None:
    """It has none until somebody gives it a task; it is named by its scheduler file."""
    pytest.importorskip("distributed")
    script, sources = write({"a.py": _ADAPTIVE}, "cluster") / "a.py", write({"vector.cu": VECTOR})
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, script], stdin=pipe, stdout=pipe, text=True) as cluster:
        assert cluster.stdout is not None
        file = (
            write({"s.json": json.dumps({"address": cluster.stdout.readline().strip()})}, "file") / "s.json"
        )
        words = ("--json", "warm", sources, "--target", nvrtc, "--on", f"dask://{file}")
        command = [sys.executable, "-m", "gpucache", "--root", str(tmp_path / "away"), *map(str, words)]
        done = run_text(command)
        cluster.communicate("")
    assert (done.returncode, json.loads(done.stdout)["summary"]["built"]) == (0, 1), done.stderr


@pytest.mark.parametrize(
    ("library", "words", "code", "told"),
    [
        ("distributed", ("dask:tcp://127.0.0.1:1",), 2, "pip install distributed"),
        ("", ("dask:tcp://127.0.0.1:1",), 4, "no Dask scheduler can be reached at tcp://127.0.0.1:1"),
        ("", ("dask://127.0.0.1:1",), 4, "no Dask scheduler can be reached at 127.0.0.1:1"),
        ("", ("dask:tls://127.0.0.1:1",), 2, "DASK_DISTRIBUTED__COMM__TLS__CA_FILE"),
        ("", ("dask:///none/s.json",), 2, "the scheduler file /none/s.json cannot be read: No such file"),
        ("", (f"dask://{__file__}",), 2, "is not a scheduler file; name the one of 'dask scheduler"),
        ("", ("dask:carrier-pigeon://127.0.0.1:1",), 4, "no Dask scheduler can be reached at carrier"),
        ("mpi4py", ("mpi",), 2, "pip install mpi4py"),
        ("", ("slurm:here",), 2, "or dask:ADDRESS"),
        ("", ("dask:tcp://127.0.0.1:1", "--check"), 2, "leave"),
    ],
)
def test_a_cluster_that_cannot_be_used_is_told_before_anything_is_built(
    run: Run,
    root: Path,
    monkeypatch: pytest.MonkeyPatch,
    library: str,
    words: tuple[str, ...],
    code: int,
    told: str,
) -> None:
    """A missing library is a usage error that names it; so is a cluster of a kind that is not known."""
    if library:
        monkeypatch.setitem(sys.modules, library, None)
    elif code == 4:
        pytest.importorskip("distributed")
        monkeypatch.setattr("gpucache.engine.workers.clusters._CONNECT_S", 0.5)
    answer = run("warm", "--example", "--on", *words)
    assert (answer.code, told in answer.err) == (code, True), answer.err
    assert not root.exists()


def test_a_server_that_says_nothing_is_no_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes the connection, as one that is stopped does."""
    pytest.importorskip("distributed")
    monkeypatch.setattr(clusters, "_CONNECT_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        name = f"dask:tcp://127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(WorkersError, match="no Dask scheduler can be reached"), open_cluster(name):
            pass


class _Late(Future[object]):
    """A call that ended on a host from which nothing comes any more."""

    def done(self) -> bool:
        return True

    def result(self, timeout: float | None = None) -> object:
        assert timeout is not None
        raise TimeoutError


def _answering(answer: object) -> Future[object]:
    future: Future[object] = Future()
    if isinstance(answer, Future):
        return answer
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)
    return future


class _Told:
    """An engine whose workers give these answers to each look, and one of them to each job."""

    def __init__(self, looks: Mapping[str, object], answer: object = b"") -> None:
        self.looks, self._answer = looks, answer

    def slots(self) -> Mapping[str, int]:
        return dict.fromkeys(self.looks, 1)

    def cancel(self, worker: str, future: object) -> None:
        raise AssertionError(f"{worker} has nothing to stop: {future}")

    def wait(self) -> None:
        """Every answer is there at once."""

    def submit(self, worker: str, function: Callable[..., object], *_: object) -> Future[object]:
        return _answering(self.looks[worker] if function is look else self._answer)


TARGET, TOOLCHAIN = Target("cuda", "sm_90"), Toolchain("nvrtc", (), ())


def _profile(environment: Mapping[str, str], target: Target, toolchain: Toolchain) -> bytes:
    device = Device(target, target.backend, "", "", available=True, detail="", toolchain=toolchain)
    return encode_profile(Profile((device,), dict(environment)))


def _nvrtc(**environment: str) -> bytes:
    return _profile(environment, TARGET, TOOLCHAIN)


def _outcomes(cluster: Cluster, *parts: Mapping[str, bytes]) -> list[Done[Any] | Failed | Died]:
    """The outcomes of jobs with these parts, without their own time limit."""
    tasks = [Task("", TARGET, TOOLCHAIN, partial(Job, b"", each)) for each in parts or [{}]]
    return [outcome for _, outcome in cluster.run("", tasks, None, 0.0, lambda _: None)]


@pytest.mark.parametrize(("most", "odd"), [({}, {"NVVM_A": "1"}), ({"NVVM_A": "1"}, {})])
def test_the_variables_are_those_of_most_workers(most: dict[str, str], odd: dict[str, str]) -> None:
    """A worker with a variable that the others lack, or without one of theirs, builds nothing."""
    looks = {"odd": _nvrtc(**odd), "a": _nvrtc(**most), "b": _nvrtc(**most)}
    cluster = Cluster(_Told(looks), "a test")
    assert cluster.machine.environment == most
    assert {*cluster.slots(Task("", TARGET, TOOLCHAIN, lambda: None))} == {"a", "b"}


def test_each_compiler_has_the_variables_of_its_workers() -> None:
    """Workers with another implementation of OpenCL, and with variables for it, build for it."""
    target, toolchain = Target("opencl", "intel/cpu"), Toolchain("intel", (), ())
    both = {"CL_CONFIG_A": "1", "POCL_B": "2"}
    intel = _profile(both, target, toolchain)
    pocl = _profile({"POCL_B": "3"}, Target("opencl", "pocl/cpu"), Toolchain("pocl", (), ()))
    cluster = Cluster(_Told({"a": intel, "b": pocl, "c": pocl}), "a test")
    assert cluster.machine.environment == {"CL_CONFIG_A": "1", "POCL_B": "3"}
    assert {*cluster.slots(Task("", target, toolchain, lambda: None))} == {"a"}


@pytest.mark.parametrize(
    ("answer", "kind", "told", "lost"),
    [
        (b"1", Done, "", False),
        (-9, Died, "on a ended with status -9", False),
        (1, Died, "on a ended with status 1", True),
        (Future(), Died, "its worker a gave no answer within 0 s", True),
        (CancelledError("unknown"), Died, "the connection to a test was lost", True),
        (_Late(), Died, "its worker a gave no answer (TimeoutError)", True),
        (ConnectionResetError("closed"), Died, "its worker a gave no answer (closed)", True),
        ("no room", Failed, "its worker a cannot run it: no room", False),
        (b"too long", Failed, "its worker a gave an answer that cannot be read", False),
        ([1], Failed, "its worker a gave an answer that cannot be read", False),
    ],
)
def test_only_a_signal_is_held_against_a_program(
    monkeypatch: pytest.MonkeyPatch, answer: object, kind: type, told: str, *, lost: bool
) -> None:
    """Trouble of a worker, its host or the way there is not; no answer is waited for without an end."""
    monkeypatch.setattr(clusters, "_ANSWER_CAP", 7)
    monkeypatch.setattr(clusters, "_GRACE_S", 0.0)
    [outcome] = _outcomes(Cluster(_Told({"a": _nvrtc()}, answer), "a test"))
    assert isinstance(outcome, kind)
    assert told in str(outcome)
    assert (isinstance(outcome, Died) and outcome.lost) is lost


class _Lacking(_Told):
    """An engine whose worker's process is another one for each second job, and lacks its parts."""

    def __init__(self) -> None:
        super().__init__({"a": _nvrtc()})
        self.sent: list[object] = []

    def submit(self, worker: str, function: Callable[..., object], *arguments: object) -> Future[object]:
        if function is in_process:
            self.sent.append(arguments[2])
            return _answering(LACKS_PARTS if len(self.sent) == 2 else b"built")
        return super().submit(worker, function)


def test_a_part_is_sent_to_a_worker_once() -> None:
    """A job names the parts that its worker received; all are sent if they are no longer there."""
    engine, both = _Lacking(), {"x": b"X", "y": b"Y"}
    assert _outcomes(Cluster(engine, "a test"), {"x": b"X"}, both, both) == [Done(b"built")] * 3
    assert engine.sent == [{"x": b"X"}, {"x": None, "y": b"Y"}, both, {"x": None, "y": None}]


def _asked(parts: Mapping[str, bytes | None]) -> bytes:
    answer = in_process("gpucache.engine.warm.elsewhere", b"not a job", parts)
    assert isinstance(answer, bytes)
    return answer


def test_a_process_keeps_parts_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says that it lacks some, answers with those of an earlier job, and is replaced when it has ended."""
    monkeypatch.setattr(clusters, "_FREE", [])
    assert _asked({"x": None}) == LACKS_PARTS
    assert b"cannot build it" in _asked({"x": b"X"})
    assert b"cannot build it" in _asked({"x": None})
    [child] = clusters._FREE
    child._process.kill()
    assert _asked({"x": None}) == LACKS_PARTS
    assert child not in clusters._FREE
    assert clusters._FREE.pop().ask((b"", {}), lambda: False) == -signal.SIGKILL


def test_a_worker_without_room_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system error on a worker comes back as text, which no error of the connection can be."""
    full = OSError(28, "no room")

    def refuse(_: str) -> None:
        raise full

    monkeypatch.setattr(clusters, "_Child", refuse)
    assert in_process("", b"", {}) == str(full)


def test_a_worker_that_does_not_say_what_it_can_build_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """If none says it in time, the error says so."""
    monkeypatch.setattr(clusters, "_PROBE_S", 0.0)
    with pytest.raises(WorkersError, match="did not say within 0 s what it can build for"):
        Cluster(_Told({"a": Future()}), "a test")


def test_a_refused_worker_that_comes_back_is_looked_at_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It may have another version of gpucache now."""
    monkeypatch.setattr(clusters, "_LOOK_S", 0.0)
    engine = _Told({"a": _nvrtc(), "b": OSError("no room")})
    cluster = Cluster(engine, "a test")
    assert {*cluster.slots()} == {"a"}
    engine.looks = {"a": _nvrtc()}
    cluster.notice()
    engine.looks = {"a": _nvrtc(), "b": _nvrtc()}
    cluster.notice()
    assert {*cluster.slots()} == {"a", "b"}


class _Scheduler:
    """A client of Dask whose scheduler does not answer every time."""

    def __init__(self) -> None:
        self.there = True

    def nthreads(self, callback_timeout: float) -> dict[str, int]:
        assert callback_timeout > 0
        if not self.there:
            raise OSError("no answer")
        return {"a": 2}


def test_a_scheduler_that_is_slow_once_has_lost_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only when it has been silent for a while are its workers gone."""
    client = _Scheduler()
    engine = clusters._Dask(client)
    assert engine.slots() == {"a": 2}
    client.there = False
    assert engine.slots() == {"a": 2}
    monkeypatch.setattr(clusters, "_RETURN_S", -1.0)
    assert engine.slots() == {}
    client.there = True
    assert engine.slots() == {"a": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("status", "then"), [(1, "built"), (-9, "poisoned")])
def test_a_process_that_ends_twice_with_a_status_poisons_nothing(
    run: Run, write: Write, nvrtc: str, monkeypatch: pytest.MonkeyPatch, status: int, then: str
) -> None:
    """A host without room ends it with a status, the system one that needs too much memory with a signal."""
    cluster = nullcontext(Cluster(_Told({"a": look(__version__)}, status), "a test"))
    monkeypatch.setattr(clusters, "open_cluster", lambda _: cluster)
    sources = write({"a.cu": VECTOR})
    [row] = run("--json", "warm", sources, "--target", nvrtc, "--on", "dask:x").document["outcomes"]
    assert (row["result"], f"ended with status {status}" in row["reason"]) == ("failed", True), row
    assert _results(run("--json", "warm", sources, "--target", nvrtc)) == {"a.cu": then}


class _Here:
    """An engine whose one worker is this process, and whose second answer is changed on its way back."""

    def __init__(self, change: Callable[[list[bytes]], object]) -> None:
        self._change = change
        self._answers: list[bytes] = []

    def slots(self) -> Mapping[str, int]:
        return {"here": 1}

    def cancel(self, worker: str, future: object) -> None:
        raise AssertionError(f"{worker} has nothing to stop: {future}")

    def wait(self) -> None:
        """Every answer is there at once."""

    def submit(self, _: str, function: Callable[..., Any], *arguments: object) -> Future[object]:
        answer = function(*arguments)
        if function is in_process:
            self._answers.append(answer)
            if len(self._answers) == 2:
                answer = self._change(self._answers)
        return _answering(answer)


def _flipped(answer: bytes) -> bytes:
    """The answer with another bit in the middle of its entry's payload."""
    at = answer.index(b"\x7fELF") + 100
    return answer[:at] + bytes([answer[at] ^ 1]) + answer[at + 1 :]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [
        lambda _: "no room",
        lambda answers: answers[0],
        lambda answers: _flipped(answers[1]),
        lambda answers: answers[1][: len(answers[1]) // 2],
        lambda _: b"\x93\x01\x02\x03",
        lambda _: msgpack.encode({"entry": b""}),
        lambda _: msgpack.encode({"entry": b"", "uncovered": "x" * 100}),
    ],
    ids=["no room", "another", "flipped", "cut", "array", "nothing", "mistyped"],
)
def test_what_comes_back_is_checked(
    run: Run,
    root: Path,
    write: Write,
    nvrtc: str,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[bytes]], object],
) -> None:
    """An answer that is damaged or belongs to another program fails its item once, and is not kept."""
    sources = write({"a.cu": VECTOR, "b.cu": VECTOR.replace("1", "2")})
    cluster = nullcontext(Cluster(_Here(change), "a test"))
    monkeypatch.setattr("gpucache.engine.workers.clusters.open_cluster", lambda _: cluster)
    answer = run("--json", "warm", sources, "--target", nvrtc, "--on", "dask:x")
    assert (answer.code, _results(answer)) == (3, {"a.cu": "built", "b.cu": "failed"}), answer.out
    assert len(_entries(root)) == 1
    assert run("warm", sources, "--target", nvrtc).code == 0  # nothing is held against it
