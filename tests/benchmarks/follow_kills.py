"""Followers that are killed at random moments beside a job that writes entries: which of these are lost.

Each follower is a real ``gpucache push --follow`` to a directory, killed 1 to 20 s after it was ready. A job
writes an entry in every 0.4 s; compiles are left out.
"""

import os
import random
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gpucache.remote.catalogue import read_catalogue
from gpucache.remote.objects import open_objects
from gpucache.remote.signing import TrustedKeys, make_pair
from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort
from tests.patience import PATIENCE_S

_EACH_S, _LONGEST_S = 0.4, 20.0
_AT_ONCE = 6


def run(effort: Effort) -> Iterator[Comparison]:
    """One row: the entries that were written, those that were lost, and the age of the oldest of these."""
    kills, longest_s = (2, 2.0) if effort.small else (200, _LONGEST_S)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_pair(place / "key")
        make_cache(place / "pool", round(longest_s / _EACH_S) + 1, 1, payload_bytes=10_000)
        entries = sorted((place / "pool").rglob("*.gpc"))
        moments = [random.Random(number).uniform(1, longest_s) for number in range(kills)]
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            jobs = pool.map(lambda job: _killed(place, job[0], job[1], entries), enumerate(moments))
            ages = [age for job in jobs for age in job]
    lost = [age for age in ages if age is not None]
    yield Comparison(
        f"{kills} followers killed: of {len(ages)} entries {len(lost)} were not in the store, the oldest "
        f"{max(lost, default=0.0):.1f} s old, {sum(age > 10 for age in lost)} older than 10 s",
        (),
    )


def _killed(place: Path, number: int, moment_s: float, entries: list[Path]) -> list[float | None]:
    """For each entry of a job its age at the kill if the store lacks it, else None."""
    own = place / f"job-{number}"
    make_cache(own / "root", 1, 1, first=1_000 + number, payload_bytes=100)
    ready, theirs = os.pipe()
    environ = {
        **os.environ,
        **{name: str(own / name) for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")},
        "GPUCACHE_DIR": str(own / "root"),
        "GPUCACHE_SIGNING_KEY": str(place / "key"),
        "GPUCACHE_FOLLOWED": f"{os.getpid()} {theirs}",  # as `gpucache run --push` waits for it
    }
    command = (sys.executable, "-m", "gpucache", "push", own / "store", "--cache", "all", "--follow")
    child = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, pass_fds=[theirs])
    os.close(theirs)
    select.select([ready], [], [], PATIENCE_S)
    os.close(ready)
    began, written = time.monotonic(), dict[str, float]()
    for entry in entries:
        if time.monotonic() - began > moment_s:
            break
        to, new = own / "root" / entry.relative_to(place / "pool"), own / "new"
        new.write_bytes(entry.read_bytes())
        new.chmod(0o600)
        new.replace(to)
        written[entry.stem] = time.monotonic()
        time.sleep(_EACH_S)
    child.kill()
    killed = time.monotonic()
    child.wait()
    there = read_catalogue(open_objects(str(own / "store")), TrustedKeys({})).records.values()
    kept = {one.record.key for one in there}
    return [None if key in kept else killed - at for key, at in written.items()]
