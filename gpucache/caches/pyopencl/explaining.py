"""Whether PyOpenCL would serve a build from a folder, and what is in the way.

Knows what PyOpenCL checks when it finds a key (the headers) and what it does not (headers that it has
no record of, or that now come from elsewhere). Must not change anything.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from gpucache.answers.entries import FindingKind
from gpucache.answers.lookup import Verdict
from gpucache.answers.why import Reach, Served
from gpucache.caches import files
from gpucache.caches.format import Clock
from gpucache.caches.pyopencl import (
    checks,
    comparison,
    entry_files,
    headers,
    keys,
    locks,
    names,
    nearest,
    sources,
)
from gpucache.caches.pyopencl.checks import Fault
from gpucache.caches.pyopencl.headers import State
from gpucache.caches.pyopencl.keys import DeviceIdentity, Keyed
from gpucache.caches.pyopencl.pickled import Info
from gpucache.caches.pyopencl.question import Question
from gpucache.errors import FormatError
from gpucache.folders import Folder
from gpucache.keys import Difference
from gpucache.units import format_age

_SPIRV = (b"\x03\x02\x23\x07", b"\x07\x23\x02\x03")
_LEFT_TO_DRIVER = {
    "Portable Computing Language": "PoCL's own cache",
    "NVIDIA CUDA": "the CUDA driver's own cache",
}


def explain(question: Question, folders: Sequence[Path], clock: Clock) -> Iterator[Reach]:
    """For every folder and device whether the build would be served; raises UsageError."""
    if question.source.startswith(_SPIRV):
        detail = "PyOpenCL does not cache programs that are given as SPIR-V"
        yield _reach(question, None, Verdict.UNCACHEABLE, detail)
        return
    for folder in folders:
        found = _Folder(folder, question, clock)
        for device in question.devices:
            yield found.answer(device)
        if not question.devices:
            yield found.answer_without_device()


class _Folder:
    """One folder, asked for one source."""

    def __init__(self, path: Path, question: Question, clock: Clock) -> None:
        self._path = path
        self._question = question
        self._clock = clock
        self._near: nearest.Found | None = None

    def answer(self, device: DeviceIdentity) -> Reach:
        """Whether a build for a device would be served."""
        question = self._question
        owner = _LEFT_TO_DRIVER.get(device.platform_name)
        if owner is not None:
            detail = f"PyOpenCL leaves programs for {device.platform_name} to {owner}"
            return _reach(question, device, Verdict.NOT_CONSULTED, detail)
        readings = [keys.all_options(one, device, question.environ) for one in question.options]
        version = keys.version_numbers(question.version)
        with suppress(OSError), files.open_folder(self._path) as root:
            blocked = self._lock(root)
            if blocked:
                return _reach(question, device, Verdict.NOT_CONSULTED, blocked)
            for options in readings:
                key = Keyed(question.source, options)(device, version)
                with suppress(FileNotFoundError), root.folder(key) as inner:
                    found = _served(question, device, key, inner, options)
                    return found if options == readings[0] else _respelled(found, options)
        return self._missed(device, readings, version)

    def answer_without_device(self) -> Reach:
        """What can be said of a source alone."""
        found = self._found()
        if not found.same:
            return self._other(None, found)
        detail = (
            f"the source is stored {comparison.times(len(found.same))}, but an entry stores neither options "
            f"nor device; give device={'/'.join(keys.LABELS)} to have the key made "
            "('gpucache devices --json' shows these texts under toolchain)"
        )
        wanted = " ".join(self._question.options[0])
        differences = comparison.options(found.same[0].options, wanted) if wanted else ()
        return _reach(
            self._question, None, Verdict.OPAQUE_KEY, detail, differences, nearest_key=found.same[0].key
        )

    def _missed(
        self, device: DeviceIdentity, readings: Sequence[tuple[str, ...]], version: tuple[int, ...]
    ) -> Reach:
        found = self._found()
        if not found.same:
            return self._other(device, found)
        wanted, asked = " ".join(readings[0]), bool(self._question.options[0])
        solved = nearest.solve(found.same, self._question.source, readings, device, version)
        if solved is not None:
            differences = (
                *comparison.options(solved.options, wanted),
                *comparison.version(solved.version, version),
            )
            detail = f"it is stored, but {comparison.told(differences)}"
            key = solved.key
            if differences and not asked and not comparison.told_folder(differences):
                differences = tuple(one for one in differences if one.label != "options")
                detail += f"; give those of the program with options=, such as '{solved.options}'"
        else:
            key, logged = found.same[0].key, found.same[0].options
            differences = comparison.options(logged, wanted) if asked else ()
            why = comparison.unsolved(logged, differences, asked=asked)
            detail = f"the source is stored {comparison.times(len(found.same))}, but {why}"
        return _reach(self._question, device, Verdict.KEY_CHANGED, detail, differences, nearest_key=key)

    def _other(self, device: DeviceIdentity | None, found: nearest.Found) -> Reach:
        """Of a source that is not stored."""
        if not found.similar or found.line is None:
            detail = f"no entry{comparison.python(self._path)} has this source or one like it"
            return _reach(self._question, device, Verdict.NEVER_BUILT, detail)
        detail = (
            f"the nearest entry{comparison.python(self._path)} has another source: {found.line.label} differs"
        )
        return _reach(
            self._question, device, Verdict.KEY_CHANGED, detail, (found.line,), nearest_key=found.similar
        )

    def _found(self) -> nearest.Found:
        if self._near is None:
            self._near = nearest.search(self._path, self._question.source)
        return self._near

    def _lock(self, root: Folder) -> str:
        age = locks.age_ns(root, self._clock)
        if age is None or age <= locks.STALE_NS:
            return ""
        return (
            f"PyOpenCL's lock was left behind {format_age(age)} ago, so that the program waits 60 s and then "
            "dies; run 'gpucache verify --cache pyopencl --repair'"
        )


def _served(
    question: Question, device: DeviceIdentity, key: str, inner: Folder, options: tuple[str, ...]
) -> Reach:
    """What comes of an entry whose key is the one that is asked for."""
    problems = [one for one in checks.faults(inner) if not one.served]
    try:
        info = entry_files.info_of(inner)
    except FormatError:
        info = Info((), "")
    verdict, detail, differences = _judged(problems, info) or _hit(
        question, device, key, inner, info, options
    )
    return _reach(question, device, verdict, detail, differences, nearest_key=key)


_Judgement = tuple[Served | Verdict, str, tuple[Difference, ...]]


def _judged(problems: Sequence[Fault], info: Info) -> _Judgement | None:
    """What keeps PyOpenCL from serving an entry; None where nothing does."""
    broken = next((one for one in problems if one.kind is not FindingKind.STALE), None)
    if broken is not None:
        return Verdict.CORRUPT, f"{broken.detail} (gpucache verify --cache pyopencl --repair removes it)", ()
    if not problems:
        return None
    compared = headers.compare_all(info.dependencies)
    differences = tuple(
        Difference(f"header {one.path}", one.dependency.md5, _now(one))
        for one in compared
        if one.state not in (State.SAME, State.UNREAD)
    )
    return Verdict.KEY_CHANGED, problems[0].detail, differences


def _now(one: headers.Compared) -> str | None:
    """What a header is now, in words where its checksum is no difference."""
    if one.state is State.MISSING:
        return None
    return one.md5 if one.md5 != one.dependency.md5 else one.state.value


def _hit(
    question: Question,
    device: DeviceIdentity,
    key: str,
    inner: Folder,
    info: Info,
    options: tuple[str, ...],
) -> _Judgement:
    with suppress(OSError, FormatError):
        if entry_files.read_source(inner) != question.source:
            detail = "PyOpenCL serves an entry that was made from another source, as its source.cl says"
            return Served.FALSE_HIT, detail, ()
    elsewhere = _elsewhere(question, info, options)
    if elsewhere:
        detail = (
            f"PyOpenCL serves the entry though {elsewhere[0].label.removeprefix('header ')} is what a build "
            "would read now: it looks only at the headers of the time; remove the entry with gpucache evict"
        )
        return Served.FALSE_HIT, detail, elsewhere
    unknown = ", ".join(sources.unfollowed(question.source)[:4])
    caution = f"; it has no record of {unknown} and does not see that change" if unknown else ""
    return Served.HIT, f"PyOpenCL serves the entry {key[:12]}{caution}{_unkeyed(question, device)}", ()


def _respelled(found: Reach, options: tuple[str, ...]) -> Reach:
    """An answer for options that were asked for in another spelling, which the key tells apart."""
    return replace(
        found, detail=f"{found.detail}, where the program gives its options as {' '.join(options)!r}"
    )


def _unkeyed(question: Question, device: DeviceIdentity) -> str:
    """The variables that change what Intel's compiler makes, and that no key holds."""
    if not device.platform_name.startswith("Intel"):
        return ""
    found = sorted(name for name in question.environ if name.startswith("CL_CONFIG_"))
    return f"; {', '.join(found)} may want another binary, which the key does not tell" if found else ""


def _elsewhere(question: Question, info: Info, options: tuple[str, ...]) -> tuple[Difference, ...]:
    """Headers that a build would read now, and that PyOpenCL does not compare."""
    now = headers.resolved(question.source, keys.include_path(options), question.folder)
    recorded = {one.path: one.md5 for one in info.dependencies}
    return tuple(
        Difference(f"header {path}", recorded.get(path), md5)
        for path, md5 in (now or {}).items()
        if recorded.get(path) != md5 and (path in recorded or md5 not in recorded.values())
    )


def _reach(
    question: Question,
    device: DeviceIdentity | None,
    verdict: Served | Verdict,
    detail: str,
    differences: tuple[Difference, ...] = (),
    *,
    nearest_key: str = "",
) -> Reach:
    words = f"{question.words} for {device.name}" if device else question.words
    return Reach(names.NAME, words, verdict, detail, differences, nearest_key)
