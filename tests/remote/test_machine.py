"""Which entries of a store fit a machine, by facts alone."""

import msgspec
import pytest

from gpucache.assembly import machine_of
from gpucache.model import Device, Target, Toolchain
from gpucache.remote.machine import Machine, backends_of
from gpucache.remote.records import Record, RecordedFile

_FILES = (RecordedFile("a", "0" * 64, 1, 0o644),)
_HERE = Machine(
    {
        "architecture": frozenset({"sm_90", "gfx90a:sramecc+", "pthread-cpu"}),
        "version": frozenset({"3.9.0"}),
        "driver": frozenset({"3.1+debian"}),
    },
    [{"driver version": "1", "device name": "cpu"}, {"NVRTC version": "13.0"}],
)


def _record(*facts: tuple[str, str], system: str = "triton") -> Record:
    return Record(system, "k", _FILES, facts)


@pytest.mark.parametrize(
    ("facts", "differs"),
    [
        ([("architecture", "sm_90")], ()),
        ([("architecture", "sm_80")], ("architecture",)),
        ([("architecture", "sm_80"), ("architecture", "sm_90")], ()),
        ([("architecture", "gfx90a")], ()),
        ([("driver", "3_1_debian")], ()),
        ([("driver", "3_2_debian")], ("driver",)),
        ([("architecture", "gfx942")], ("architecture",)),
        ([("architecture", "other-cpu")], ("architecture",)),
        ([("PTX for", "compute_80")], ()),
        ([("PTX for", "compute_100")], ("PTX for",)),
        ([("PTX for", "compute_90a")], ("PTX for",)),
        ([("version", "3.8.0")], ("version",)),
        ([("Python", "3.11.2")], ()),
    ],
)
def test_a_fact_differs_if_it_is_known_and_another(
    facts: list[tuple[str, str]], differs: tuple[str, ...]
) -> None:
    """Unknown facts do not keep an entry away; of several values one suffices."""
    assert tuple(one.fact for one in _HERE.differences(_record(*facts))) == differs


def test_unknown_facts_are_named() -> None:
    """A machine without a visible GPU knows no architecture of GPUs, whatever its CPU."""
    blind = Machine({"architecture": frozenset({"pthread-cpu"})})
    record = _record(("architecture", "sm_90"), ("Python", "3.11"))
    assert blind.unknown(record) == ("architecture", "Python")
    assert not blind.differences(record)
    assert blind._replace(untold=("Python", "NVRTC")).unknown(record) == ("architecture", "Python", "NVRTC")


def test_our_own_entries_fit_one_compiler_whole() -> None:
    """The nearest compiler of the same fields says which one differs; other kinds do not count."""
    fits = _record(("driver version", "1"), ("device name", "cpu"), system="gpucache")
    old = _record(("driver version", "0"), ("device name", "cpu"), system="gpucache")
    other = _record(("else", "1"), system="gpucache")
    assert not _HERE.differences(fits)
    assert [one.fact for one in _HERE.differences(old)] == ["driver version"]
    assert (_HERE.differences(other), _HERE.unknown(other)) == ((), ("toolchain",))


@pytest.mark.parametrize(
    ("target", "facts", "backends"),
    [
        ("cuda:sm_90", [("architecture", "sm_90")], ("cuda",)),
        ("cuda:compute_80", [("PTX for", "compute_80"), ("Python", "3.11")], ("cuda",)),
        ("hip:gfx942", [("architecture", "gfx942")], None),
        ("cuda:sm_90", [("architecture", "pthread-cpu")], None),
        ("cuda:sm_90", [("architecture", "sm_90"), ("CPU feature", "avx")], None),
        ("", [], None),
    ],
)
def test_opencl_is_not_asked_for_what_cuda_tells(
    target: str, facts: list[tuple[str, str]], backends: tuple[str, ...] | None
) -> None:
    """OpenCL devices are queried only if an entry has facts that CUDA does not know."""
    record = msgspec.structs.replace(_record(*facts), target=target)
    cuda = msgspec.structs.replace(_record(("architecture", "sm_90")), target="cuda:sm_90")
    assert backends_of([cuda, record, cuda]) == backends


def test_devices_tell_what_their_machine_has() -> None:
    """The features of the CPU one by one, none if they are not known; the LLVM that a compiler names."""
    fields = (("platform version", "OpenCL 3.0 PoCL 3.1, None+Asserts, LLVM 15.0.6, SLEEF"),)
    known = [("CPU features", "avx avx2"), ("CPU features", "unknown: riscv64")]
    first, second = (Toolchain("pocl", (*fields, one), ()) for one in known)
    target = Target("opencl", "pocl/cpu")
    devices = [
        Device(target, "opencl", "cpu", "3.1", available=True, detail="", toolchain=one)
        for one in (first, second)
    ]
    both, unknown = machine_of(devices, elsewhere=True), machine_of(devices[1:], elsewhere=True)
    assert sorted(both.known["LLVM"]) == ["15.0.6"] and sorted(both.known["CPU feature"]) == ["avx", "avx2"]
    assert not unknown.known["CPU feature"] and sorted(both.known["driver"]) == ["3.1"]
