"""Stores under pushes, pulls, repairs and evictions at once, with kills: which entries are lost.

Two pushers, eight pullers, one that repairs and one that evicts some programs, each a real command. A quarter
of them is killed at a random moment. An hour of removal is 20 s. Lost is what a push reported as sent or as
there, of programs that nobody evicts, and a pull to an empty root at the end does not get.
"""

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Thread

import pytest

from gpucache.remote.signing import make_pair
from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort
from tests.remote.servers import docker_registry, make_bucket, moto_url, nginx, use_cloud

_ROUND_S = 20.0
_PROGRAMS, _KEPT, _SOME = 300, 250, 12
_KILLED, _LONGEST_S = 0.25, 6.0
_COMMAND = """
import sys
from gpucache.remote import removal
removal._HOUR_NS, removal._YOUNG_NS, removal._YOUNG_S, removal._TURN_S = 20 * 10**9, 16 * 10**9, 2, 10
from gpucache.cli import main
sys.exit(main())
"""
"""A command for which an hour has 20 s, as all parts of it."""
KINDS = ("folder", "web", "s3", "registry")


def run(effort: Effort) -> Iterator[Comparison]:
    """One row for each kind: the commands by their ends, the entries that were reported, and those lost."""
    for kind in effort.stores or KINDS:
        with ExitStack() as stack:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            try:
                store = _STORES[kind](place, stack)
            except pytest.skip.Exception as missing:
                yield Comparison(f"Kills at {kind}", (), {kind: str(missing)})
                continue
            seconds = 2.0 if effort.small else _ROUND_S * effort.rounds
            yield Comparison(_Trial(place, *store).told(kind, seconds), ())


class _Trial:
    """Commands at one store, by the place to write to and that to read from."""

    def __init__(self, place: Path, url: str, served: str) -> None:
        self._place, self._url, self._served = place, url, served
        self._ends = Counter[str]()
        self._reported = set[str]()
        make_pair(place / "key")
        make_cache(place / "root", _PROGRAMS, 1, payload_bytes=2_000)

    def told(self, kind: str, seconds: float) -> str:
        self._push(range(_KEPT - 1, _KEPT + 1))
        self._until = time.monotonic() + seconds
        work = [self._push, self._push, *(partial(self._pull, number) for number in range(8))]
        threads = [Thread(target=self._again, args=(one,)) for one in (*work, self._repair, self._evict)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        left = {one["key"] for one in self._command("pull", self._served, root="last", kill=0.0)}
        lost = self._reported - left
        ends = ", ".join(f"{what} {count}" for what, count in sorted(self._ends.items()))
        return f"{kind}, {seconds:g} s: {len(self._reported)} reported, {len(lost)} lost; {ends}"

    def _again(self, work: Callable[[], object]) -> None:
        while time.monotonic() < self._until:
            work()

    def _push(self, some: Sequence[int] = ()) -> None:
        numbers = some or random.sample(range(_PROGRAMS), _SOME)
        names = [f"folder-{number % 100}/kernel-{number}.cu" for number in numbers]
        words = ("push", self._url, *names, "--key", str(self._place / "key"))
        for one in self._command(*words, kill=0.0 if some else _KILLED):
            if _is_kept(one) and one["result"] in ("sent", "present"):
                self._reported.add(one["key"])

    def _pull(self, number: int) -> None:
        self._command("pull", self._served, root=f"pulled-{number}")
        shutil.rmtree(self._place / f"pulled-{number}", ignore_errors=True)

    def _repair(self) -> None:
        self._command("verify", self._url, "--repair")

    def _evict(self) -> None:
        number = random.randrange(_KEPT, _PROGRAMS)
        name = f"folder-{number % 100}/kernel-{number}.cu"
        self._command("evict", "--cache", self._url, "--program", name, "--yes")

    def _command(self, *words: str, root: str = "root", kill: float = _KILLED) -> list[dict[str, str]]:
        """The outcomes of a command; none if it was killed."""
        homes = ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
        own = {name: str(self._place / "home") for name in homes}
        own |= {"GPUCACHE_TRUSTED_KEYS": f"{self._place}/key.pub", "GPUCACHE_DIR": f"{self._place}/{root}"}
        child = subprocess.Popen(
            [sys.executable, "-c", _COMMAND, "--json", *words],
            env={**os.environ, **own},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        try:
            out, err = child.communicate(
                timeout=random.uniform(0.2, _LONGEST_S) if random.random() < kill else None
            )
        except subprocess.TimeoutExpired:
            child.kill()
            child.communicate()
            self._ends[f"{words[0]} killed"] += 1
            return []
        code = child.returncode
        why = "" if code in (0, 2, 3) else f" ({err.decode().strip()[-200:]})"
        self._ends[f"{words[0]} {code}{why}"] += 1
        found: list[dict[str, str]] = json.loads(out)["outcomes"] if out.strip() else []
        for one in found:
            if words[0] == "pull" and one["result"] not in ("pulled", "present", "differs"):
                self._ends[f"pull: {one['result']} {'kept' if _is_kept(one) else 'evicted'}"] += 1
        return found


def _is_kept(one: Mapping[str, str]) -> bool:
    return int(one["program"].rpartition("-")[2].removesuffix(".cu")) < _KEPT


def _folder(place: Path, _: ExitStack) -> tuple[str, str]:
    return str(place / "store"), str(place / "store")


def _web(place: Path, stack: ExitStack) -> tuple[str, str]:
    (place / "store").mkdir()
    return str(place / "store"), stack.enter_context(nginx(place / "store", place))


def _s3(place: Path, stack: ExitStack) -> tuple[str, str]:
    url, patch = stack.enter_context(moto_url(place)), stack.enter_context(pytest.MonkeyPatch.context())
    use_cloud(
        patch, place,
        AWS_ENDPOINT_URL=url, AWS_ACCESS_KEY_ID="a", AWS_SECRET_ACCESS_KEY="b", AWS_REGION="us-east-1",
    )  # fmt: skip
    bucket = make_bucket(url, "stress")
    return bucket, bucket


def _registry(place: Path, stack: ExitStack) -> tuple[str, str]:
    url = stack.enter_context(docker_registry(place))
    return url, url


_STORES = {"folder": _folder, "web": _web, "s3": _s3, "registry": _registry}
