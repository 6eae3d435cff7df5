"""The command line run in this process on real compilers, and caches that it filled once for all tests.

The machine's own OpenCL platforms are kept out: only Intel's runtime and PoCL are seen.
"""

import contextlib
import io
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from gpucache.cli import main
from gpucache.keys import cache_key
from gpucache.model import Device, Entry
from gpucache.probe.ask import ask
from gpucache.store.directory import DirectoryStore
from tests.pocl import name_pocl, need_pocl

DOUBLE_CL = '#include "factor.h"\n__kernel void twice(__global float *a) { a[get_global_id(0)] *= FACTOR; }\n'
DOUBLE_CU = '#include "factor.h"\nextern "C" __global__ void twice(float *a) { a[threadIdx.x] *= FACTOR; }\n'
BAD_CL = "__kernel void bad(__global float *a) { a[0] = ; }\n"
BAD_CU = 'extern "C" __global__ void bad(float *a) { a[0] = ; }\n'
# Instances that double sixty times over.
ENDLESS_CU = """\
template <int N, unsigned long long P> struct S {
    static constexpr int v = S<N - 1, 2 * P>::v + S<N - 1, 2 * P + 1>::v;
};
template <unsigned long long P> struct S<0, P> { static constexpr int v = 1; };
extern "C" __global__ void endless(int *a) { *a = S<60, 0>::v; }
"""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a command."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


@dataclass(frozen=True, slots=True)
class Filled:
    """A cache that was filled once, its sources, and the output of the command that filled it."""

    root: Path
    sources: Path
    answer: Answer


Run = Callable[..., Answer]


@pytest.fixture(scope="session")
def vendors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that names Intel's runtime to the OpenCL loader, if it is installed, and one PoCL."""
    folder = tmp_path_factory.mktemp("cli-vendors")
    library = Path(sys.prefix, "lib", "libintelocl.so")
    if library.is_file():
        (folder / "intel.icd").write_text(f"{library}\n", encoding="utf-8")
    name_pocl(folder)
    return folder


@pytest.fixture(scope="session")
def devices(vendors: Path) -> list[Device]:
    """The result of one real probe, shared, as most tests are not about probing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OCL_ICD_VENDORS", str(vendors))
        return ask()


@pytest.fixture(scope="session")
def pocl(devices: Sequence[Device]) -> str:
    need_pocl()
    return _target("pocl", devices)


@pytest.fixture(scope="session")
def intel(devices: Sequence[Device]) -> str:
    return _target("intel", devices)


@pytest.fixture(scope="session")
def nvrtc(devices: Sequence[Device]) -> str:
    """A CUDA target; no device is needed for it."""
    if not any(str(device.target) == "cuda:sm_90" and device.available for device in devices):
        pytest.skip("no NVRTC that builds for sm_90 is installed")
    return "cuda:sm_90"


def _target(implementation: str, devices: Sequence[Device]) -> str:
    for device in devices:
        if device.available and device.toolchain and device.toolchain.implementation == implementation:
            return str(device.target)
    pytest.skip(f"no OpenCL device of {implementation} is here")


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch, vendors: Path, devices: Sequence[Device]) -> None:
    """The one real probe serves every probe, and children see the same platforms."""
    monkeypatch.setenv("OCL_ICD_VENDORS", str(vendors))
    monkeypatch.setattr("gpucache.probe.ask.ask", _remembering(devices))


def _remembering(devices: Sequence[Device]) -> Callable[..., list[Device]]:
    def remembered(
        backends: Sequence[str] | None = None, meanwhile: Callable[[], object] = lambda: None
    ) -> list[Device]:
        meanwhile()
        return [device for device in devices if backends is None or device.backend in backends]

    return remembered


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """This test's own cache directory, not created yet."""
    return tmp_path / "gpucache"


@pytest.fixture
def run(probed: None, root: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run gpucache in this process on this test's own root; children's output is captured as well.

    A root that does not exist is the default one if it is read, as one that is named would be refused.
    """

    def command(*arguments: object, at: Path | None = root) -> Answer:
        capfd.readouterr()
        place = [] if at is None else ["--root", str(at)]
        if at == root and not root.exists() and {"inspect", "verify", "evict"} & set(arguments):
            place = []
            monkeypatch.delenv("GPUCACHE_DIR", raising=False)
            monkeypatch.setenv("XDG_CACHE_HOME", str(root.parent))
        code = main([*place, *map(str, arguments)])
        return Answer(code, *capfd.readouterr())

    return command


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write files below a directory of this test: ``write({"a/k.cl": text})``."""

    def files(texts: dict[str, str], folder: str = "sources") -> Path:
        return _written(tmp_path / folder, texts)

    return files


def _written(folder: Path, texts: dict[str, str]) -> Path:
    for name, text in texts.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return folder


@pytest.fixture(scope="session")
def filling(vendors: Path, devices: Sequence[Device]) -> Run:
    def warm(*arguments: object) -> Answer:
        out, err = io.StringIO(), io.StringIO()
        with (
            pytest.MonkeyPatch.context() as patch,
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            patch.setenv("OCL_ICD_VENDORS", str(vendors))
            patch.setattr("gpucache.probe.ask.ask", _remembering(devices))
            code = main(["--json", "warm", *map(str, arguments)])
        return Answer(code, out.getvalue(), err.getvalue())

    return warm


@pytest.fixture(scope="session")
def mixed(
    filling: Run, tmp_path_factory: pytest.TempPathFactory, pocl: str, intel: str, nvrtc: str
) -> Filled:
    """A directory of good and broken programs, warmed for three compilers; read it, change only copies."""
    place = tmp_path_factory.mktemp("mixed")
    texts = {
        "twice.cl": DOUBLE_CL,
        "twice.cu": DOUBLE_CU,
        "factor.h": "#define FACTOR 2\n",
        "sub/bad.cl": BAD_CL,
        "sub/bad.cu": BAD_CU,
    }
    sources = _written(place / "sources", texts)
    targets = [f"--target={target}" for target in (pocl, intel, nvrtc, "cuda:compute_80")]
    answer = filling(sources, *targets, "--local-size", "64", "--root", place / "root")
    return Filled(place / "root", sources, answer)


@pytest.fixture(scope="session")
def example(
    filling: Run, tmp_path_factory: pytest.TempPathFactory, pocl: str, intel: str, nvrtc: str
) -> Filled:
    """The cache that ``warm --example`` makes; read it, change only copies."""
    root = tmp_path_factory.mktemp("example") / "root"
    return Filled(root, root.parent, filling("--example", "--root", root))


@pytest.fixture
def cache(mixed: Filled, root: Path) -> Path:
    """A copy of the mixed cache, times and modes included, at this test's own root."""
    shutil.copytree(mixed.root, root)
    return root


@pytest.fixture(scope="session")
def endless() -> str:
    return ENDLESS_CU


@pytest.fixture
def no_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any start of a worker fails the command."""

    def refuse(*_: object) -> Iterator[Any]:
        raise AssertionError("a worker was started")

    monkeypatch.setattr("gpucache.engine.warm.rounds.run_isolated", refuse)


def entry_files(root: Path) -> list[Path]:
    return sorted((root / "v1" / "entries").rglob("*.gpc"))


@pytest.fixture
def entries() -> Callable[[Path], list[Path]]:
    return entry_files


def upgraded(root: Path, target: str) -> Entry:
    """Publishes the entry of a target as one of 40 days ago, used now, and gives that of an older toolchain.

    That was made the day before, used once, and not since.
    """
    store, entry = entry_of(root, target)
    of_compiler = (one for one in entry.head.toolchain if one[0] not in entry.head.toolchain_identity)
    version_of(store, entry, 40, 0)
    return version_of(store, entry, 41, 40.5, next(of_compiler))


def version_of(
    store: DirectoryStore, entry: Entry, made: float, used: float, other: tuple[str, str] | None = None
) -> Entry:
    """Publishes an entry as if made and last used so many days ago, with ``other`` as that of another value
    of a key field."""
    day_ns, now_ns = 86_400 * 10**9, time.time_ns()
    head = entry.head._replace(
        created_ns=now_ns - round(made * day_ns),
        toolchain=tuple(
            (label, "0.1" if (label, old) == other else old) for label, old in entry.head.toolchain
        ),
    )
    fields = tuple(
        field._replace(value="0.1") if (field.label, field.value) == other else field
        for field in entry.detail.key_fields
    )
    one = entry._replace(key=cache_key(fields), head=head, detail=entry.detail._replace(key_fields=fields))
    store.publish(one)
    (path,) = store.root.rglob(f"{one.key}.gpc")
    if used != made:
        os.utime(path, ns=(now_ns - round(used * day_ns),) * 2)
    return one


def entry_of(root: Path, target: str) -> tuple[DirectoryStore, Entry]:
    """The store of a root, and its entry for a target."""
    store = DirectoryStore(root, writable=True)
    for scanned in store.scan():
        if scanned.head is not None and scanned.head.target == target:
            entry = store.check(scanned)
            assert isinstance(entry, Entry)
            return store, entry
    raise LookupError(target)
