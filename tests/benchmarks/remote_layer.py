"""A start whose entries are in another machine's store, next to one with local entries, and many at once.

Each side is a fresh process that compiles 30 CUDA programs by the library. With the store the root is empty
at each start; entries are signed, verified and kept, as in real use. For many at once, each with its own
root and home, the load of the web server is shown as well.
"""

import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

from gpucache.remote.signing import make_pair
from tests.benchmarks.library_hit import stable_place
from tests.benchmarks.library_start import CUDA, missing
from tests.benchmarks.measure import CHECKOUT, Comparison, Effort, Side, compare, process

_PROGRAMS = 30
_ROUNDS = 3
"""At most, of many starts, which take seconds."""
_START = """
import sys
from gpucache.cuda import compile_program
for number in range(int(sys.argv[1])):
    source = 'extern "C" __global__ void scale(float *x) { x[threadIdx.x] *= %d; }' % number
    compile_program(source, target="sm_90")
"""
_TOGETHER = """
import os, subprocess, sys
started = []
for number in range(int(sys.argv[2])):
    home = os.path.join(sys.argv[3], str(number))
    os.makedirs(home)
    command = [sys.executable, "-c", sys.argv[4], sys.argv[1]]
    own = {"HOME": home, "GPUCACHE_DIR": os.path.join(home, "root")}
    started.append(subprocess.Popen(command, env={**os.environ, **own}))
sys.exit(max(one.wait() for one in started))
"""


def run(effort: Effort) -> Iterator[Comparison]:
    """One start by a directory and by a web server, then many starts at once."""
    title = "A start with 30 programs of CUDA C++"
    if absent := missing(CUDA):
        yield Comparison(title, (), {"cuda.core": absent})
        return
    programs, at_once = (2, 2) if effort.small else (_PROGRAMS, effort.at_once)
    with ExitStack() as stack:
        place = stack.enter_context(stable_place())
        settings = {"a directory elsewhere": _filled(place, programs)}
        absent_peers = {}
        if shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin"):
            from tests.remote.servers import nginx

            url = stack.enter_context(nginx(place / "store", place))
            settings["nginx"] = {**settings["a directory elsewhere"], "GPUCACHE_REMOTE": url}
        else:
            absent_peers["nginx"] = "it is not installed"
        sides = {name: _start(place, programs, **own) for name, own in settings.items()}
        sides["its own root"] = _child(programs, GPUCACHE_DIR=str(place / "maker"))
        sides["no cache"] = _child(programs, GPUCACHE_DISABLE="1")
        yield compare(title, sides, effort.rounds, absent_peers)
        sides = {name: _starts(place, programs, at_once, **own) for name, own in settings.items()}
        sides["empty roots alone"] = _starts(place, programs, at_once)
        sides["no cache"] = _starts(place, programs, at_once, GPUCACHE_DISABLE="1")
        title = f"{at_once} such starts at once, each with an empty root"
        log = place / "access.log"
        log.write_bytes(b"")
        rounds = min(effort.rounds, _ROUNDS)
        yield compare(title, sides, rounds, absent_peers)
        if not absent_peers:
            yield Comparison(
                f"The load of nginx, for each of {rounds + 1} times: {_load(log, rounds + 1)}", ()
            )


def _filled(place: Path, programs: int) -> Mapping[str, str]:
    """The variables of a machine that trusts the entries of a store, which another machine has made."""
    (place / "store").mkdir(mode=0o755)
    public = make_pair(place / "key")
    sending = {"GPUCACHE_REMOTE_WRITE": "1", "GPUCACHE_SIGNING_KEY": str(place / "key")}
    asking = {"GPUCACHE_REMOTE": str(place / "store"), "GPUCACHE_TRUSTED_KEYS": public.text}
    subprocess.run(
        [sys.executable, "-c", _START, str(programs)],
        env={**os.environ, **sending, **asking, "GPUCACHE_DIR": str(place / "maker")},
        cwd=CHECKOUT,
        check=True,
    )
    sent = sum(path.is_file() for path in (place / "store" / "entries").rglob("*"))
    assert sent == programs, f"{sent} entries were sent"
    return asking


def _child(programs: int, *, before: Callable[[], object] | None = None, **environment: str) -> Side:
    return process([sys.executable, "-c", _START, str(programs)], before=before, **environment)


def _start(place: Path, programs: int, **environment: str) -> Side:
    root = place / "root"
    return _child(programs, before=lambda: _remove(root), GPUCACHE_DIR=str(root), **environment)


def _starts(place: Path, programs: int, at_once: int, **environment: str) -> Side:
    words = (str(programs), str(at_once), str(place / "roots"), _START)
    command = [sys.executable, "-c", _TOGETHER, *words]
    return process(command, before=lambda: _remove(place / "roots"), **environment)


def _load(log: Path, times: int) -> str:
    """The requests that a web server logged and the bytes that it sent, and its busiest second."""
    replies = [line.split() for line in log.read_text(encoding="ascii").splitlines()]
    found = sum(status == "200" for _, status, _ in replies)
    ((_, most),) = Counter(int(float(second)) for second, _, _ in replies).most_common(1)
    size = sum(int(sent) for _, _, sent in replies)
    return (
        f"{len(replies) // times} requests, {found // times} of them found, {size / times / 1e6:.1f} MB, "
        f"at most {most} requests in a second"
    )


def _remove(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
