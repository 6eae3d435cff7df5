"""Push and pull next to the library of each store alone, which moves the same files, 16 at a time.

Every turn of a side begins with an empty store: all entries are pushed, then those of a machine where one
in twenty differs, and the store is pulled to an empty cache. The library lists the store, sends the files
that it lacks under their names, and fetches all into another directory, each by a rename: it checks, hashes
and signs nothing.
"""

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import pytest

from gpucache.caches.interface import Cache
from gpucache.remote.machine import Machine
from gpucache.remote.objects import open_objects
from gpucache.remote.pull import pull
from gpucache.remote.push import push
from gpucache.remote.signing import SigningKey, TrustedKeys, load_signing_key, make_pair
from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort, Measured, Sample, process
from tests.benchmarks.remote_peers import peer_of
from tests.caches.cupy import build as cupy
from tests.contracts.examples import open_example
from tests.remote.servers import docker_registry, make_bucket, moto_url, use_cloud

STORES = ("folder", "s3", "registry")
_ROUNDS = 5
"""At most: a turn takes seconds."""
_SOURCE = b'extern "C" __global__ void work(float *x) { x[threadIdx.x] *= 2.5f; }'
MODE_OF_SEVERAL = 0o775
"""So that signatures count."""
Phases = Mapping[str, Sample]


def run(effort: Effort) -> Iterator[Comparison]:
    """A comparison for each store, system and size, and one of whole commands."""
    entries, size, large = (20, 1_000, 10_000) if effort.small else (500, 100_000, 200_000_000)
    try:
        import cuda.bindings.nvrtc  # noqa: F401
    except ImportError as error:
        yield Comparison("Moving to stores", (), {"NVRTC": str(error)})
        return
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_pair(place / "key")
        made = [_Made(place, system, entries, size) for system in ("cupy", "gpucache")]
        one = _Made(place, "cupy", 1, large)
        for kind in effort.stores or STORES:
            with ExitStack() as stack:
                try:
                    url = stack.enter_context(_STORES[kind](place))
                except pytest.skip.Exception as missing:
                    yield Comparison(f"Moving to {kind}", (), {kind: str(missing)})
                    continue
                for what in (*made, one):
                    yield from what.compared(kind, url, min(effort.rounds, _ROUNDS))


class _Made:
    """The caches of two machines, of which most entries are the same, and a place for others."""

    def __init__(self, place: Path, system: str, entries: int, size: int) -> None:
        self._place, self._system = place, system
        self._whole_commands = system == "cupy" and entries > 1
        self._count, self._size = entries, size
        changed = entries // 20
        self._key = load_signing_key(place / "key")
        self._roots = [place / f"{system}-{entries}-{first}" for first in (0, changed)]
        for root, first in zip(self._roots, (0, changed), strict=True):
            if not root.exists():
                _MAKERS[system](root, first, entries, size)

    def compared(self, kind: str, url: Callable[[], str], rounds: int) -> Iterator[Comparison]:
        """The phases of push and pull by each side."""
        sides: dict[str, Callable[[str], Phases]] = {
            "gpucache": self._ours,
            "its library alone": self._theirs,
        }
        if kind == "folder":
            sides["the same, each file synced"] = partial(self._theirs, synced=True)
        commands = {"gpucache, the command": self._our_command, "its library, a script": self._their_command}
        for group in (sides, commands) if self._whole_commands else (sides,):
            taken: dict[str, list[Phases]] = {name: [] for name in group}
            for number in range(rounds):
                names = list(group)
                for name in names[number % len(names) :] + names[: number % len(names)]:
                    shutil.rmtree(self._place / "pulled", ignore_errors=True)
                    os.sync()
                    taken[name].append(group[name](url()))
            for phase in next(iter(taken.values()))[0]:
                yield Comparison(
                    f"{kind}: {phase} of {self._count} entries of {self._size // 1000} kB ({self._system})",
                    tuple(
                        Measured(name, tuple(one[phase] for one in samples))
                        for name, samples in taken.items()
                    ),
                )

    def _ours(self, url: str) -> Phases:
        trusted = TrustedKeys({self._key.public.id: self._key.public})
        found = self._pushed(lambda root: timed(lambda: push_all(self._cache(root), url, self._key)))
        empty = self._cache(self._place / "pulled")
        return found | {"pull": timed(lambda: pull_all(empty, url, trusted, self._count))}

    def _theirs(self, url: str, *, synced: bool = False) -> Phases:
        peer = peer_of(url, synced=synced)
        found = self._pushed(lambda root: timed(lambda: peer.send(root)))
        return found | {"pull": timed(lambda: peer.fetch(self._place / "pulled"))}

    def _our_command(self, url: str) -> Phases:
        def command(verb: str, root: Path, *more: object) -> Sample:
            words = [sys.executable, "-m", "gpucache", verb, url, "--cache", f"{self._system}:{root}"]
            trusted = str(self._place / "key.pub")
            return process([*words, *map(str, more)], GPUCACHE_TRUSTED_KEYS=trusted, HOME=str(self._place))()

        found = self._pushed(lambda root: command("push", root, "--key", self._place / "key"))
        return found | {"pull": command("pull", self._place / "pulled")}

    def _their_command(self, url: str) -> Phases:
        def command(verb: str, root: Path) -> Sample:
            return process([sys.executable, "-m", "tests.benchmarks.remote_peers", url, verb, root])()

        found = self._pushed(partial(command, "send"))
        return found | {"pull": command("fetch", self._place / "pulled")}

    def _pushed(self, send: Callable[[Path], Sample]) -> dict[str, Sample]:
        found = {"push": send(self._roots[0])}
        if self._count > 1:
            found["push with 5 % changed"] = send(self._roots[1])
        return found

    def _cache(self, root: Path) -> Cache:
        return open_example(self._system, root)


def push_all(cache: Cache, url: str, key: SigningKey) -> None:
    trusted = TrustedKeys({})
    with closing(open_objects(url)) as store:
        for _ in push(
            [(cache, list(cache.scan()))], store,
            key=key, trusted=trusted, sources=True, dry_run=False, progress=lambda *_: None,
        ):  # fmt: skip
            pass


def pull_all(cache: Cache, url: str, trusted: TrustedKeys, count: int) -> None:
    with closing(open_objects(url)) as store:
        outcomes = list(
            pull(
                store, [cache],
                trusted=trusted, machine=lambda _: Machine(), dry_run=False,
                progress=lambda *_: None,
            )
        )  # fmt: skip
    assert len(outcomes) >= count


def timed(action: Callable[[], object]) -> Sample:
    wall, cpu = time.perf_counter_ns(), time.process_time_ns()
    action()
    return Sample(time.perf_counter_ns() - wall, time.process_time_ns() - cpu)


def _make_cupy(root: Path, first: int, entries: int, size: int) -> None:
    """Files of CuPy's: a cubin of NVRTC's with as many other bytes behind it as it lacks."""
    from cuda.bindings import nvrtc

    _, program = nvrtc.nvrtcCreateProgram(_SOURCE, b"work.cu", 0, [], [])
    assert nvrtc.nvrtcCompileProgram(program, 1, [b"-arch=sm_90"])[0] == 0
    cubin = bytes(nvrtc.nvrtcGetCUBINSize(program)[1])
    nvrtc.nvrtcGetCUBIN(program, cubin)
    nvrtc.nvrtcDestroyProgram(program)
    for number in range(first, first + entries):
        filling = number.to_bytes(8, "little") * (max(0, size - len(cubin)) // 8)
        cupy.put(root, number, cupy.file_bytes(cubin + filling))


def _make_own(root: Path, first: int, entries: int, size: int) -> None:
    make_cache(root, entries, 1, first=first, payload_bytes=size)


@contextmanager
def _folder(place: Path) -> Iterator[Callable[[], str]]:
    store = place / "store"

    def url() -> str:
        shutil.rmtree(store, ignore_errors=True)
        store.mkdir()
        store.chmod(MODE_OF_SEVERAL)
        return str(store)

    yield url


@contextmanager
def _s3(place: Path) -> Iterator[Callable[[], str]]:
    with moto_url(place) as url, pytest.MonkeyPatch.context() as patch:
        use_cloud(
            patch, place,
            AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1",
        )  # fmt: skip
        yield lambda: make_bucket(url, f"b-{uuid4().hex}")


@contextmanager
def _registry(place: Path) -> Iterator[Callable[[], str]]:
    with docker_registry(place) as url:
        yield lambda: f"{url}/{uuid4().hex}"


_STORES = {"folder": _folder, "s3": _s3, "registry": _registry}
_MAKERS = {"cupy": _make_cupy, "gpucache": _make_own}
