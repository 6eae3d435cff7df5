"""What an explanation is asked for, read from raw bytes.

Owns the fields and their meaning. Must not know files nor keys.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gpucache.caches.futhark.keys import native_signed
from gpucache.caches.futhark.logs import LogReading, read_log
from gpucache.caches.futhark.options import CUDA_VARIABLES, HIP_VARIABLE
from gpucache.caches.interface import Wanted
from gpucache.errors import UsageError
from gpucache.units import format_size, printable

BACKENDS = ("cuda", "hip", "opencl")
FIELDS: Mapping[str, str] = {
    "source": "the kernels, as the program's --dump-cuda, --dump-hip or --dump-opencl FILE writes them",
    "log": "what the program writes to stderr with -L: gives its options, its backend and what it made of "
    "the file",
    "option": "a build option, repeated in the program's order, where there is no log",
    "backend": f"one of {', '.join(BACKENDS)}; else that of the log, or of what the file holds",
    "char": "signed or unsigned, where the program runs on another kind of machine than this one",
    "environment": f"NAME=VALUE of another start, for {', '.join(CUDA_VARIABLES)} or {HIP_VARIABLE}: a value "
    "to try as explanation",
}
_CHARS = {"signed": True, "unsigned": False}
_OPENCL_ONLY = b"-cl-fp32-correctly-rounded-divide-sqrt"


@dataclass(frozen=True, slots=True)
class Question:
    """A program as it is built now."""

    source: bytes
    options: tuple[bytes, ...]
    """In order; of OpenCL's one string the parts between its spaces."""
    backend: str
    """Empty where neither the question nor its log says."""
    signed: bool
    environ: Mapping[str, str] = field(default_factory=dict)
    log: LogReading | None = None

    def of(self, backend: str) -> "Question":
        """The same for a backend, where none was named."""
        options = b" ".join(self.options).split(b" ") if backend == "opencl" else self.options
        return replace(self, backend=backend, options=tuple(options))

    @property
    def inputs(self) -> tuple[bytes, ...]:
        """What enters the key."""
        joined = (b" ".join(self.options),) if self.backend == "opencl" else self.options
        return (*joined, self.source)

    @property
    def words(self) -> str:
        """What is asked for, in a few words."""
        size = format_size(len(self.source))
        return f"{self.backend} source of {size} with {len(self.options)} options".strip()


def read_question(wanted: Wanted) -> Question:
    """What is asked for; raises UsageError for a field that does not exist, lacks or has no such value."""
    unknown = [name for name in wanted if name not in FIELDS]
    if unknown:
        raise UsageError(f"Futhark's cache files have no field {unknown[0]!r}; ask for {', '.join(FIELDS)}")
    source = _one(wanted, "source")
    if source is None:
        raise UsageError("the field 'source' is missing; run the program with --dump-cuda FILE and give FILE")
    log = _one(wanted, "log")
    reading = None if log is None else read_log(log)
    backend = _choice(wanted, "backend", BACKENDS) or (reading.backend if reading else "")
    options = _options(wanted, reading)
    if not backend and any(_OPENCL_ONLY in option for option in options):
        backend = "opencl"
    char = _choice(wanted, "char", tuple(_CHARS))
    signed = _CHARS[char] if char else native_signed()
    return Question(source, options, "", signed, _environ(wanted), reading).of(backend)


def _options(wanted: Wanted, log: LogReading | None) -> tuple[bytes, ...]:
    options = wanted.get("option") or (log.options if log else None)
    if options is None:
        raise UsageError(
            "the build options are missing; give 'log', the program's stderr with -L (which lists them), "
            "or each as 'option'"
        )
    return options


def _one(wanted: Wanted, name: str) -> bytes | None:
    values = wanted.get(name, ())
    if len(values) > 1:
        raise UsageError(f"the field {name!r} is given {len(values)} times; give it once")
    return values[0] if values else None


def _choice(wanted: Wanted, name: str, values: tuple[str, ...]) -> str:
    given = _one(wanted, name)
    if given is None:
        return ""
    text = given.decode("utf-8", "replace").strip()
    if text not in values:
        raise UsageError(
            f"the field {name!r} cannot be {printable(given)!r}; give one of {', '.join(values)}"
        )
    return text


def _environ(wanted: Wanted) -> dict[str, str]:
    found = {}
    for pair in wanted.get("environment", ()):
        name, sign, value = pair.decode("utf-8", "surrogateescape").partition("=")
        if not sign or name not in (*CUDA_VARIABLES, HIP_VARIABLE):
            raise UsageError(
                f"the field 'environment' cannot be {printable(pair)!r}; {FIELDS['environment']}"
            )
        found[name] = value
    return found


def cancelled(question: Question) -> tuple[bytes, ...]:
    """Options that are given an even number of times, so that the key is the same as without them."""
    if question.backend == "opencl":
        return ()
    counts = Counter(question.options)
    return tuple(option for option, count in counts.items() if count % 2 == 0)
