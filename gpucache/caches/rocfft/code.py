"""What the code of a row is, and whether it is for the architecture that the row names. Pure.

rocFFT stores what hiprtc gave it: an ELF file for an AMD GPU, or a clang offload bundle. Sources: LLVM's
"User Guide for AMDGPU Backend" (``EF_AMDGPU_MACH``), "Clang Offload Bundler".
"""

from dataclasses import dataclass, field

from gpucache import payload as payloads
from gpucache.outcomes import FindingKind
from gpucache.payload import PayloadKind

BUNDLE = "offload-bundle"
_BUNDLES = (b"__CLANG_OFFLOAD_BUNDLE__", b"CCOB")
_PORTABLE = frozenset({PayloadKind.SPIRV, PayloadKind.LLVM_BITCODE})
_SPIRV_ARCH = "amdgcnspirv"
_FLAGS = slice(48, 52)  # e_flags of a 64-bit ELF file
_CONSEQUENCE = "hipModuleLoad fails, and rocFFT never compiles the kernel anew"
# fmt: off
_MACHINES = {
    0x20: "600", 0x21: "601", 0x22: "700", 0x23: "701", 0x24: "702", 0x25: "703", 0x26: "704", 0x28: "801",
    0x29: "802", 0x2A: "803", 0x2B: "810", 0x2C: "900", 0x2D: "902", 0x2E: "904", 0x2F: "906", 0x30: "908",
    0x31: "909", 0x32: "90c", 0x33: "1010", 0x34: "1011", 0x35: "1012", 0x36: "1030", 0x37: "1031",
    0x38: "1032", 0x39: "1033", 0x3A: "602", 0x3B: "705", 0x3C: "805", 0x3D: "1035", 0x3E: "1034",
    0x3F: "90a", 0x40: "940", 0x41: "1100", 0x42: "1013", 0x43: "1150", 0x44: "1103", 0x45: "1036",
    0x46: "1101", 0x47: "1102", 0x48: "1200", 0x49: "1250", 0x4A: "1151", 0x4B: "941", 0x4C: "942",
    0x4E: "1201", 0x4F: "950", 0x55: "1152", 0x58: "1153", 0x5A: "1251",
}
# fmt: on


@dataclass(frozen=True, slots=True)
class Code:
    """What some code is."""

    kind: str
    architecture: str | None = None
    """``gfx90a``, from the flags that a loader reads, else from the notes; None where neither says."""
    detail: tuple[tuple[str, str], ...] = field(default=())
    problem: str = ""

    @property
    def pairs(self) -> tuple[tuple[str, str], ...]:
        """All of it by label."""
        told = (("architecture", self.architecture or ""), ("problem", self.problem))
        return (("kind", self.kind), *(pair for pair in told if pair[1]), *self.detail)


def read(data: bytes) -> Code:
    """What some code is; of a part of it only kind and architecture count."""
    if data.startswith(_BUNDLES):
        return Code(BUNDLE, detail=(("size", f"{len(data)} B"),))
    info = payloads.describe(data)
    architecture = info.architecture
    if info.kind is PayloadKind.AMDGPU and data[4] == 2:
        machine = _MACHINES.get(int.from_bytes(data[_FLAGS], "little") & 0xFF)
        architecture = f"gfx{machine}" if machine else architecture
    return Code(info.kind.value, architecture, info.detail, info.problem or "")


def misfit(code: Code, arch: str) -> tuple[FindingKind, str] | None:
    """What is wrong with the code of a row for an architecture; None where nothing is."""
    if code.kind == BUNDLE or (code.kind in _PORTABLE and arch.startswith(_SPIRV_ARCH)):
        return None
    if code.kind != PayloadKind.AMDGPU:
        return FindingKind.MISLABELLED, f"its code is {code.kind} and not for an AMD GPU: {_CONSEQUENCE}"
    wanted = arch.partition(":")[0]
    if code.architecture not in (None, wanted):
        return (
            FindingKind.MISLABELLED,
            f"its code is for {code.architecture} and its row says {wanted}: {_CONSEQUENCE}",
        )
    if code.problem:
        return FindingKind.CORRUPT, f"its code is damaged ({code.problem}): {_CONSEQUENCE}"
    return None
