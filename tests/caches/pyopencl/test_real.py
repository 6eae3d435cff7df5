"""A cache that PyOpenCL made on Intel's CPU runtime: read, damaged, repaired, and used by PyOpenCL again."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.verify import Checked
from gpucache.answers.why import Reach, Served
from gpucache.caches.interface import Cache
from gpucache.caches.pyopencl.key import DeviceIdentity, all_options, key_of, version_numbers
from gpucache.caches.registry import of_others
from tests.caches.pyopencl.build import DEFEAT, touch
from tests.patience import PATIENCE_S

SYSTEM = of_others("pyopencl")

pytestmark = pytest.mark.slow

_PROCESS = Path(__file__).with_name("opencl_process.py")
_SOURCE = '#include "value.h"\n__kernel void show(__global int *out) { *out = VALUE + X; }\n'
Damage = Callable[[Path], object]


@dataclass
class Program:
    """One program, its directory of headers, and its environment."""

    folder: Path
    environment: Mapping[str, str]
    source: str = _SOURCE

    @property
    def options(self) -> list[str]:
        return ["-I", str(self.folder / "include"), "-DX=1"]

    def header(self, value: int) -> None:
        path = self.folder / "include" / "value.h"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"#define VALUE {value}\n", encoding="ascii")
        os.utime(path, (value, value))  # PyOpenCL looks at the content only when the time is another

    def process(self) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, str(_PROCESS)],
            input=json.dumps({"source": self.source, "options": self.options}),
            env=self.environment,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=PATIENCE_S,
        )

    def run(self) -> Any:
        done = self.process()
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def cache(self) -> Cache:
        return SYSTEM.open(SYSTEM.locations(self.environment)[0])

    def entry(self) -> Path:
        (entry,) = self.cache().scan()
        return Path(entry.path)

    def repaired(self) -> list[Checked]:
        """Everything found, then repaired, as verify does it."""
        cache = self.cache()
        found = [(cache.check(entry), entry) for entry in cache.scan()]
        loose = list(cache.leftovers())
        return [cache.repair(one, entry) for one, entry in found] + [cache.repair(one, None) for one in loose]

    def ask(self, answer: Any, *options: str) -> Reach:
        wanted = {
            "source": (self.source.encode(),),
            "options": tuple(map(str.encode, options or self.options)),
            "device": tuple(map(str.encode, answer["device"])),
        }
        (reach,) = self.cache().explain(wanted)
        return reach


@pytest.fixture(scope="module")
def made(icd_vendors: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Program, Any]:
    """A program that ran once, and what it said."""
    folder = tmp_path_factory.mktemp("real")
    environment = {
        **os.environ,
        "OCL_ICD_VENDORS": str(icd_vendors),
        "XDG_CACHE_HOME": str(folder / "cache"),
    }
    program = Program(folder, environment)
    program.header(40)
    return program, program.run()


@pytest.fixture
def program(made: tuple[Program, Any], tmp_path: Path) -> Program:
    """The same with a copy of the cache that may be harmed; its headers are put back."""
    first, _ = made
    shutil.copytree(first.folder / "cache", tmp_path / "cache")
    first.header(40)
    return Program(first.folder, {**first.environment, "XDG_CACHE_HOME": str(tmp_path / "cache")})


@pytest.fixture
def answer(made: tuple[Program, Any]) -> Any:
    return made[1]


def test_a_real_cache_is_sound(program: Program, answer: Any) -> None:
    """PyOpenCL's own entry reads: kernel, kind, options, header and log, without a finding."""
    cache = program.cache()
    (entry,) = cache.scan()
    assert (entry.program, entry.artifact_kind) == ("show", "intel-opencl-cpu")
    assert cache.check(entry).findings == ()
    assert list(cache.leftovers()) == []
    report = cache.report(entry)
    assert [one.label for one in report.key_fields][-1] == f"header {program.folder}/include/value.h"
    assert "-DX=1" in entry.variant
    assert "Compilation" in report.build_log
    assert answer["value"] == 41


def test_the_key_is_the_real_one(program: Program, answer: Any) -> None:
    """The key made from source, options, device and version is the directory's name."""
    device = DeviceIdentity(*answer["device"])
    options = all_options(program.options, program.environment)
    key = key_of(program.source.encode(), options, device, version_numbers(answer["version"]))
    assert program.entry().name == key


def test_a_real_hit_leaves_the_entry_alone(program: Program) -> None:
    """A sound entry is used by PyOpenCL after it was checked, and nothing is written."""
    program.repaired()
    binary = program.entry() / "binary"
    before = binary.stat()
    assert program.run() | {"device": 0, "version": 0} == {
        "value": 41,
        "cached": True,
        "device": 0,
        "version": 0,
    }
    after = binary.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def _cut(name: str, end: int) -> Damage:
    return lambda entry: (entry / name).write_bytes((entry / name).read_bytes()[:end])


def _gone(name: str) -> Damage:
    return lambda entry: (entry / name).unlink()


_DAMAGE: dict[str, tuple[Damage, FindingKind, bool]] = {
    "binary cut": (_cut("binary", -100), FindingKind.CORRUPT, True),
    "binary empty": (_cut("binary", 0), FindingKind.TRUNCATED, True),
    "binary gone": (_gone("binary"), FindingKind.TRUNCATED, True),
    "info cut": (_cut("info", -100), FindingKind.TRUNCATED, True),
    "info empty": (_cut("info", 0), FindingKind.TRUNCATED, False),
    "info gone": (_gone("info"), FindingKind.ORPHAN, False),
    "source gone": (_gone("source.cl"), FindingKind.ORPHAN, False),
}


@pytest.mark.parametrize("damage", _DAMAGE)
def test_damage_is_found_and_repaired(program: Program, damage: str) -> None:
    """Each damage is found, PyOpenCL dies of it where that is said, and after a repair it builds and hits."""
    harm, kind, dies = _DAMAGE[damage]
    harm(program.entry())
    (entry,) = program.cache().scan()
    (finding,) = program.cache().check(entry).findings
    assert finding.kind is kind
    assert ("dies with KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL'" in finding.detail) is dies
    if dies:
        assert "KeyError: 'PYOPENCL_CACHE_FAILURE_FATAL'" in program.process().stderr
    (checked,) = program.repaired()
    assert [one.repaired for one in checked.findings] == [True]
    assert [program.run()["cached"] for _ in range(2)] == [False, True]


def test_a_source_is_not_needed(program: Program) -> None:
    """PyOpenCL serves an entry without its source, as the finding says."""
    (program.entry() / "source.cl").unlink()
    assert program.run()["cached"]


def test_a_stale_lock(program: Program, answer: Any) -> None:
    """A lock left behind is found and said to be in the way; after a repair PyOpenCL hits."""
    lock = program.entry().parent / "lock"
    lock.write_bytes(b"")
    touch(lock)
    with pytest.raises(FileExistsError):  # what PyOpenCL tries for 60 s
        os.open(lock, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
    assert program.ask(answer).verdict is Verdict.NOT_CONSULTED
    (_, checked) = program.repaired()
    assert [(one.kind, one.repaired) for one in checked.findings] == [(FindingKind.MISPLACED, True)]
    assert program.run()["cached"]
    assert program.ask(answer).verdict is Served.HIT


def test_a_changed_header(program: Program, answer: Any) -> None:
    """A changed header is named, and PyOpenCL builds in the same directory what is then a hit."""
    program.header(50)
    cache = program.cache()
    (entry,) = cache.scan()
    assert [one.kind for one in cache.check(entry).findings] == [FindingKind.STALE]
    reach = program.ask(answer)
    assert reach.verdict is Verdict.KEY_CHANGED
    assert "value.h changed" in reach.detail
    rebuilt = program.run()
    assert (rebuilt["value"], rebuilt["cached"]) == (51, False)
    assert program.entry().name == entry.key
    assert program.ask(answer).verdict is Served.HIT


def test_a_header_without_a_record(program: Program, answer: Any) -> None:
    """PyOpenCL serves an old binary after a change of a header that it does not watch, which is noted."""
    unwatched = Program(program.folder, program.environment, program.source.replace('h"\n', 'h" // why\n'))
    assert unwatched.run()["value"] == 41
    unwatched.header(60)
    served = unwatched.run()
    assert (served["value"], served["cached"]) == (41, True)
    cache = unwatched.cache()
    notes = [note for entry in cache.scan() for note in cache.check(entry).notes]
    assert len(notes) == 1
    assert "value.h" in notes[0]


def test_other_options_are_known_from_the_log(program: Program, answer: Any) -> None:
    """Intel's log names the options, so that other options are proved to be what differs."""
    reach = program.ask(answer, "-I", str(program.folder / "include"), "-DX=2")
    assert (reach.verdict, [one.label for one in reach.differences]) == (Verdict.KEY_CHANGED, ["options"])
    assert "-DX=2" in str(reach.differences[0].right)


def test_an_old_pythons_folder(program: Program) -> None:
    """The directory of a Python that was upgraded is found, and its entries can be removed."""
    own = program.entry().parent
    old = own.with_name("pyopencl-compiler-cache-v2-py3.9.18.final.0")
    shutil.copytree(own, old)
    locations = SYSTEM.locations(program.environment)
    assert [Path(one.root) for one in locations] == [own, old]
    cache = SYSTEM.open(locations[1])
    assert [*cache.leftovers()] == []
    assert [cache.remove(entry, "test") for entry in cache.scan()] == [None]
    assert list(old.iterdir()) == []
    assert program.run()["cached"]


def test_a_removed_entry_is_built_again(program: Program) -> None:
    """After an eviction PyOpenCL builds, and the new entry is a hit."""
    cache = program.cache()
    (entry,) = cache.scan()
    assert (entry.key, (Path(entry.path) / "source.cl").read_bytes()[-len(DEFEAT) :][:20]) == (
        Path(entry.path).name,
        DEFEAT[:20],
    )
    assert cache.remove(entry, "test") is None
    assert [program.run()["cached"] for _ in range(2)] == [False, True]
