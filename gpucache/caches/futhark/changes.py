"""The changes of options that could explain another key, the likely ones first. Pure.

Owns which options Futhark's programs are known to differ by: directories of CUDA, the architecture,
debugging, sizes of the device, macros and tuning parameters. Numbers are bounded, see
:data:`NATURAL_LIMIT` and :data:`EVERY_LIMIT`. Must not know keys.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest

from gpucache.caches.futhark.options import CUDA_ARCHITECTURES, CUDA_VARIABLES, HIP_VARIABLE, TR_OPTIONS

LIKELY_LIMIT = 40_000
"""Options left out, added, or with another name of an architecture or folder."""
NATURAL_LIMIT = 100_000
"""Changes to powers of two, multiples and other values that people and devices have."""
EVERY_LIMIT = 100_000
"""Changes to any small number."""
_SMALL = range(4097)
_FIXED = (b"TR_", b"LOCKSTEP_WIDTH")
_FEW = frozenset(1 << power for power in range(8))
_SIZED = (b"max_", b"MAX_")
_SMALLEST_SIZE = 32
_DEFINE_LIMIT = 1000
_LISTED_LIMIT = 64
_DEFINE = re.compile(rb"(-D([A-Za-z_]\w{0,200})=)(-?\d{1,20})")
_CUDA_ARCHITECTURE = re.compile(rb"((?:-arch=|--gpu-architecture=)?)(?:compute|sm)_\d{1,4}[af]?")
_HIP_ARCHITECTURE = re.compile(rb"(--gpu-architecture=|--offload-arch=)gfx[0-9a-f]{3,8}[:+\w-]{0,64}")
_DEBUGGING = (b"-G", b"-lineinfo")
_QUIET = b"--disable-warnings"
_FLAGS: Mapping[str, tuple[bytes, ...]] = {
    "cuda": (b"-default-device", b"-G", b"-lineinfo", _QUIET, b"--use_fast_math", b"-use_fast_math"),
    "hip": (b"-G", b"-lineinfo", b"-O3", b"-ffast-math"),
    "opencl": (
        b"-DEMULATE_F16",
        b"-cl-fast-relaxed-math",
        b"-cl-mad-enable",
        b"-cl-fp32-correctly-rounded-divide-sqrt",
        *(b"-cl-std=CL" + number for number in (b"1.1", b"1.2", b"2.0", b"3.0")),
    ),
}
_CUDA_FOLDERS = ("/usr/local/cuda", "/usr/lib/cuda", "/opt/cuda", "/usr")
_CUDA_VERSIONS = tuple(f"{major}.{minor}" for major in (10, 11, 12, 13) for minor in range(10))
_HIP_FOLDERS = ("/opt/rocm", "/opt/rocm/hip")
_GFX = (
    "900 906 908 90a 940 941 942 950 1010 1012 1030 1031 1032 1034 1035 1036 1100 1101 1102 1103 "
    "1150 1151 1152 1200 1201"
)
_GFX_FEATURES = ("", ":xnack-", ":sramecc+:xnack-", ":sramecc-:xnack-", ":sramecc+:xnack+", ":sramecc+")
_PAIRED = (b"max_thread_block_size", b"MAX_THREADS_PER_BLOCK")  # both are the device's block size
_KEPT_BACK = (0, 16, 20, 4)


@dataclass(frozen=True, slots=True)
class Edit:
    """One option that differs: as the file was made, and as it is wanted; None where it is not there."""

    stored: bytes | None
    wanted: bytes | None
    place: int
    """Of the wanted option in the list; of the stored one, where it would have stood."""


Change = tuple[Edit, ...]
"""Edits that come together."""


@dataclass(frozen=True, slots=True)
class _Define:
    """An option ``-Dname=number`` in the list."""

    place: int
    option: bytes
    name: bytes
    start: bytes
    value: int

    def to(self, value: int) -> Edit:
        return Edit(self.start + b"%d" % value, self.option, self.place)


def likely(options: Sequence[bytes], backend: str, environ: Mapping[str, str]) -> Iterator[Change]:
    """Each option left out, each well-known one added, another architecture, debugging on or off."""
    return islice(_likely(options, backend, environ), LIKELY_LIMIT)


def _likely(options: Sequence[bytes], backend: str, environ: Mapping[str, str]) -> Iterator[Change]:
    for place, option in enumerate(options):
        yield (Edit(None, option, place),)
        yield from _replaced(place, option, backend, environ)
    yield from _added(options, backend, environ)
    yield from _debugging(options)
    yield from _own_architecture(options)
    for define in _flags_of_parameters(options):
        yield (define.to(1 - define.value),)


def natural(options: Sequence[bytes]) -> Iterator[Change]:
    """Each numeric option with values that people and devices have, alone and with what goes with it."""
    return islice(_natural(options), NATURAL_LIMIT)


def every(options: Sequence[bytes]) -> Iterator[Change]:
    """Each numeric option with every small number, of many options fewer numbers each."""
    defines = [define for define in _defines(options) if _is_free(define)]
    numbers = _SMALL[: max(1, EVERY_LIMIT // max(1, len(defines)))]
    changes = ((define.to(value),) for value in numbers for define in defines if value != define.value)
    return islice(changes, EVERY_LIMIT)


def label_of(option: bytes) -> bytes:
    """What an option is called, without its value."""
    if re.fullmatch(rb"(?:compute|sm)_\w+", option):
        return b"-arch"
    if option.startswith((b"-I", b"-L")):
        return option[:2]
    return option.partition(b"=")[0]


def _replaced(place: int, option: bytes, backend: str, environ: Mapping[str, str]) -> Iterator[Change]:
    if option.startswith(b"-I"):
        values = (include for include in _includes(backend, environ))
    elif match := _CUDA_ARCHITECTURE.fullmatch(option):
        values = (match[1] + name for name in _cuda_names())
    elif match := _HIP_ARCHITECTURE.fullmatch(option):
        values = (match[1] + name for name in _hip_names())
    elif option.startswith(b"-cl-std="):
        values = (flag for flag in _FLAGS["opencl"] if flag.startswith(b"-cl-std="))
    else:
        return
    yield from ((Edit(value, option, place),) for value in values if value != option)


def _added(options: Sequence[bytes], backend: str, environ: Mapping[str, str]) -> Iterator[Change]:
    known = (*_FLAGS.get(backend, ()), *(option.encode() for option in TR_OPTIONS))
    folders = _includes(backend, environ) if backend != "opencl" else ()
    # In one joined string the place matters; in a list it does not, as the key forgets the order.
    places = range(len(options) + 1) if backend == "opencl" else (len(options),)
    for option in dict.fromkeys((*known, *folders)):
        if option not in options:
            yield from ((Edit(option, None, place),) for place in places)


def _debugging(options: Sequence[bytes]) -> Iterator[Change]:
    """Debugging takes ``--disable-warnings`` away and adds two options."""
    end = len(options)
    if _QUIET in options and not set(_DEBUGGING) & set(options):
        yield (Edit(None, _QUIET, options.index(_QUIET)), *(Edit(one, None, end) for one in _DEBUGGING))
    elif set(_DEBUGGING) <= set(options):
        gone = tuple(Edit(None, one, options.index(one)) for one in _DEBUGGING)
        yield gone if _QUIET in options else (*gone, Edit(_QUIET, None, end))
        yield gone


def _own_architecture(options: Sequence[bytes]) -> Iterator[Change]:
    """An architecture of the user's own takes the place of Futhark's two strings, and the other way."""
    forms = (b"-arch=", b"--gpu-architecture=")
    for place, option in enumerate(options):
        if option == b"-arch" and place + 1 < len(options):
            gone = Edit(None, options[place + 1], place + 1)
            yield from ((Edit(form + name, option, place), gone) for form in forms for name in _cuda_names())
        elif option.startswith(forms):
            both = Edit(b"-arch", option, place)
            yield from ((both, Edit(name, None, place)) for name in _cuda_names())


def _includes(backend: str, environ: Mapping[str, str]) -> tuple[bytes, ...]:
    names = (HIP_VARIABLE,) if backend == "hip" else CUDA_VARIABLES
    versions = (f"/usr/local/cuda-{version}" for version in _CUDA_VERSIONS)
    known = _HIP_FOLDERS if backend == "hip" else (*_CUDA_FOLDERS, *versions)
    given = (environ[name] for name in names if name in environ)
    paths = (f"-I{folder}/include" for folder in (*given, *known))
    return tuple(dict.fromkeys(path.encode("utf-8", "surrogateescape") for path in paths))


def _cuda_names() -> tuple[bytes, ...]:
    """Virtual architectures, and the real ones of the capabilities as a user may name them."""
    virtual = dict.fromkeys((*CUDA_ARCHITECTURES.values(), "compute_90a", "compute_103", "compute_110"))
    real = (f"sm_{major}{minor}" for major, minor in CUDA_ARCHITECTURES)
    own = (f"compute_{major}{minor}" for major, minor in CUDA_ARCHITECTURES)
    return tuple(name.encode() for name in dict.fromkeys((*virtual, *own, *real)))


def _hip_names() -> tuple[bytes, ...]:
    return tuple(f"gfx{one}{feature}".encode() for one in _GFX.split() for feature in _GFX_FEATURES)


def _defines(options: Sequence[bytes]) -> list[_Define]:
    found = ((place, option, _DEFINE.fullmatch(option)) for place, option in enumerate(options))
    defines = (
        _Define(place, option, match[2], match[1], int(match[3])) for place, option, match in found if match
    )
    return list(islice(defines, _DEFINE_LIMIT))


def _is_free(define: _Define) -> bool:
    """Whether the number can be any: flags, what Futhark fixes and sizes of devices cannot."""
    return not define.name.startswith((b"set_", *_FIXED, *_SIZED))


def _can_be(define: _Define, value: int) -> bool:
    """Whether a number can have a value; the fewer can, the fewer changes look alike in the key."""
    if define.name.startswith(_FIXED):
        return value in _FEW
    return value >= _SMALLEST_SIZE or not define.name.startswith(_SIZED)


def _flags_of_parameters(options: Sequence[bytes]) -> Iterator[_Define]:
    """Whether tuning parameters were given."""
    flags = (define for define in _defines(options) if define.name.startswith(b"set_"))
    return (define for define in flags if define.value in (0, 1))


def _natural(options: Sequence[bytes]) -> Iterator[Change]:
    defines = _defines(options)
    listed = {define.value for define in defines}
    by_name = {define.name: define for define in defines}
    sizes = [define for define in defines if not define.name.startswith(b"set_")]
    # A value of each in turn, so that no option is left out where the number of changes is limited.
    for row in zip_longest(*(_values(define, listed) for define in sizes)):
        for define, value in zip(sizes, row, strict=True):
            if value is not None and _can_be(define, value):
                yield from _to(define, _partner(define, by_name), value)


def _to(define: _Define, partner: _Define | None, value: int) -> Iterator[Change]:
    yield (define.to(value),)
    if partner is not None and _with(partner, value) != partner.value:
        yield (define.to(value), partner.to(_with(partner, value)))


def _partner(define: _Define, by_name: Mapping[bytes, _Define]) -> _Define | None:
    """What changes together with a number: the other name of the block size, the parameter's flag."""
    if define.name == _PAIRED[0]:
        return by_name.get(_PAIRED[1])
    if define.name.startswith(b"val_"):
        flag = by_name.get(b"set_" + define.name[4:])
        return flag if flag is not None and flag.value in (0, 1) else None
    return None


def _with(partner: _Define, value: int) -> int:
    return value if partner.name in _PAIRED else 1 - partner.value


def _shared(define: _Define) -> Iterator[int]:
    """Sizes of shared memory: whole KiB, in OpenCL less some bytes that Futhark keeps back."""
    if define.name == b"max_shared_memory":
        yield from (kib * 1024 - kept for kept in _KEPT_BACK for kib in range(8, 257))


def _values(define: _Define, listed: set[int]) -> tuple[int, ...]:
    """Numbers near a number, and those that sizes often have, each once and without the number itself."""
    value = define.value
    near = (value + 1, value - 1, *(value * times for times in (2, 3, 4, 8)), value // 2, value // 4)
    powers = (1 << power for power in range(32))
    multiples = (*range(0, 1025, 32), *range(1024, 8193, 512), *range(8192, 262_145, 8192))
    others = islice(sorted(listed), _LISTED_LIMIT)
    found = dict.fromkeys((*near, *range(17), *powers, *multiples, *others, *_shared(define)))
    return tuple(one for one in found if one != value and abs(one) < 2**64)
