"""``gpucache warm --check`` for a fleet: 200 profiles by 500 recorded programs, on one core.

The cache has the programs for one GPU and one NVRTC. The machines differ in these: there are ten kinds of
them, or as many as machines. For comparison a process reads the same files and hashes each program for each
machine, which is indispensable.
"""

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpucache.answers.lookup import Miss, Verdict
from gpucache.backends.cuda import BACKEND
from gpucache.engine.lookup import build
from gpucache.engine.stores import Stores
from gpucache.model import Artifact, Device
from gpucache.store.directory import DirectoryStore
from tests.benchmarks.measure import Comparison, Effort, Side, compare, process
from tests.fleets import asked, device_of, gpu_machine, recorded, words

_MACHINES, _PROGRAMS = 200, 500
_GPUS = ("sm_80", "sm_86", "sm_89", "sm_90", "sm_100")
_ROUNDS = 5
"""At most: a round takes seconds."""
_ON_ONE_CORE = """
import os, sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
"""
_OURS = f"{_ON_ONE_CORE}from gpucache.cli import main\nassert main() == 3"
_READING = f"""{_ON_ONE_CORE}
import hashlib, json
machines = [json.dumps(json.load(open(name))).encode() for name in sys.argv[2:]]
names = [os.path.join(sys.argv[1], name) for name in os.listdir(sys.argv[1]) if name.endswith(".jsonl")]
programs = [json.dumps(json.loads(line)).encode() for name in names for line in open(name)]
keys = {{hashlib.sha256(machine[:1024] + program).digest() for machine in machines for program in programs}}
"""


def run(effort: Effort) -> Iterator[Comparison]:
    devices = [device for device in BACKEND.devices() if device.toolchain is not None]
    if not devices:
        yield Comparison("warm --check for a fleet", (), {"NVRTC": "it is not installed"})
        return
    machines, programs = (4, 4) if effort.small else (_MACHINES, _PROGRAMS)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        _fill(place, devices, programs)
        for kinds in (10, machines):
            title = f"A fleet of {machines} machines of {kinds} kinds by {programs} programs, on one core"
            fleet = _fleet(place, devices, machines, kinds)
            yield compare(title, _sides(place, fleet), min(effort.rounds, _ROUNDS))


def _fleet(place: Path, devices: Sequence[Device], machines: int, kinds: int) -> list[Path]:
    """Machines that take turns in the GPU that they have, and all of these in the version of NVRTC."""
    return [
        gpu_machine(
            place / f"{number}.json",
            devices,
            _GPUS[number % len(_GPUS)],
            fields={"NVRTC version": f"13.{5 + number % kinds // len(_GPUS)}"},
        )
        for number in range(machines)
    ]


def _sides(place: Path, fleet: Sequence[Path]) -> dict[str, Side]:
    recording, root = str(place / "recording"), str(place / "root")
    options = ["--check", "--recording", recording, *words("--device-profile", fleet)]
    ours = [sys.executable, "-c", _OURS, "warm", *options]
    reading = [sys.executable, "-c", _READING, recording, *map(str, fleet)]
    return {
        "gpucache warm --check": process(ours, GPUCACHE_DIR=root),
        "the same with --json": process([*ours, "--json"], GPUCACHE_DIR=root),
        "reading the files, hashing": process(reading),
    }


def _fill(place: Path, devices: Sequence[Device], programs: int) -> None:
    """A recording of programs, and a cache that has them for one machine; one compile is enough for it."""
    device = device_of("cuda:sm_90", devices)
    builds = [asked(f"kernel{number}", device, "", f"-DN={number}") for number in range(programs)]
    recorded(place / "recording", builds)
    store = DirectoryStore(place / "root", writable=True)
    store.prepare()
    artifact = BACKEND.compile(builds[0].request, builds[0].compilation)

    def compiled() -> Artifact:
        return artifact

    for one in builds:
        build(Stores(user=store), one, compiled, Miss(Verdict.NEVER_BUILT, ""))
