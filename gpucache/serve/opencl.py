"""A command's OpenCL builds: requests to our engine with the keys of warm and the library, served and kept.

Owns the removal of everything that makes keys differ (PyOpenCL's mark against caches, its variable, ours),
and the parts that only OpenCL has: several devices, binaries that a driver refuses, devices that are not
known yet, and compilers that go on at launches, whose builds are noted. Must not load a GPU stack.
"""

import os
import platform
import re
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from gpucache.answers.lookup import Hit
from gpucache.answers.run import Intercepted, RunResult
from gpucache.backends.opencl import BACKEND
from gpucache.backends.opencl.installations import FEATURES, cpu_features
from gpucache.backends.opencl.options import EXTRA_OPTIONS, INTEL, as_pyopencl_reads, program_log
from gpucache.backends.opencl.options import variables as variables_of
from gpucache.engine.prepare import UNNAMED, Prepared, prepare, program_name
from gpucache.engine.stores import Stores
from gpucache.errors import GpucacheError, OptionError
from gpucache.host.file_stamps import files_seen
from gpucache.keys import PART, cache_key, digest
from gpucache.model import Artifact, ArtifactKind, BuildRequest, CacheKey, KeyField, Language, Program
from gpucache.payload.spirv import CONSTANT, constant_option, constants_first, constants_of
from gpucache.probe.remembered import EARLY_FILE
from gpucache.serve.answering import Compiler, Part, Question, targets_of
from gpucache.serve.conditions import CPU, Conditions, Met, UncoveredError, is_tied, require_covered, texts
from gpucache.serve.devices import Devices, Facts, NotKnownYetError
from gpucache.serve.environment import Libraries, drain_s, step_s, without_us
from gpucache.serve.index import DEVICE_FIELDS, DEVICES, SOURCE, Condition, Hole, is_compared, source_field
from gpucache.serve.server import HEARD, PASSED, Handlers, Reply, require_same_files
from gpucache.serve.session import Build, Session, wanted
from gpucache.serve.telling import Say, is_required, miss_line, refused, silent
from gpucache.serve.wire import LARGEST, Fields, Kind, WireError, number, variables
from gpucache.sources import Memos

K = TypeVar("K")
V = TypeVar("V")
# PyOpenCL appends this on platforms that keep no cache of sources, so that no other cache hits.
DEFEATER = re.compile(rb"\n\n__constant int pyopencl_defeat_cache_([0-9a-f_]{32}) = 0;\Z")
_IL = b"\0"
"""The first byte of a module in the place of a source: see ``native/opencl_handles.h``."""
_CONSTANT = re.compile(rb"(\d{1,10}) ((?:[0-9a-f]{2})+)")
_COMPILES_NOTHING = ("clCreateProgramWithBinary", "clCreateProgramWithBuiltInKernels")
_MARKS = re.compile(rb"([0-9a-f]{64}(\t[^\n]*)?\n)+")
_NOT_LINKED = re.compile("-create-library|-enable-link-options")
_LAUNCH = re.compile(rb"(@?)(\w+) (\d+(?:,\d+){0,2})")
"""A note of a launch: a token, or after a sign a row, as ``native/wire.h`` has it; and the local size."""
_CONFIGURATION = "cl.cfg"
"""Read by Intel's runtime from next to its library, and from its process's directory when it is loaded."""
_EARLY = "configuration at the start"
_SIZES_CAP = 256
_DIMENSIONS = 3
_COMPILING_CAP = 1 << 10
"""The most parts that are being compiled, whose sources may be large."""
_UNSEEN = (
    "its devices were identified too late to ask which headers its process sees, so it was not kept; "
    "the next run remembers them"
)
_NAME_HEADERS = "for a command no headers can be named, so it is compiled as without gpucache"


@dataclass(frozen=True, slots=True)
class Asked:
    """A build as a command asks for it, without our additions or PyOpenCL's."""

    files_seen: str
    cwd: str
    environ: Mapping[str, str]
    options: str
    source: bytes
    devices: tuple[Facts, ...]
    parts: tuple[tuple[str, ...], ...] = ()
    """Of the programs that a link puts together, in their order, the mark, name and options; else empty."""
    name: str = ""
    language: Language = Language.OPENCL_C
    constants: tuple[str, ...] = ()
    """Options that set the module's specialization constants."""

    is_ours = False

    @property
    def told_options(self) -> str:
        """The build options as logs repeat them."""
        return self.options


class OpenCL(Compiler[Asked]):
    """Builds of OpenCL programs, whose parts are devices."""

    ask, told, doubted = Kind.BUILD, Kind.BUILT, Kind.BUILD_DOUBTED
    refusals = (-11, -43)
    """CL_BUILD_PROGRAM_FAILURE and CL_INVALID_BUILD_OPTIONS; other codes say nothing about the program."""
    first_payload, tells_all, is_whole = 1, True, False

    def __init__(self, devices: Devices, libraries: Libraries) -> None:
        self.devices = devices
        self._libraries = libraries

    def read(self, fields: Fields) -> Asked:
        return read_build(fields, self._libraries)

    def prepare(self, asked: Asked, memos: Memos | None = None) -> tuple[Prepared, ...]:
        return prepare_build(asked, self.devices, memos)

    def answer(self, _asked: Asked, hits: Sequence[Hit], logs: Sequence[bytes]) -> Iterator[bytes]:
        """A token, and the binary and log of each device."""
        yield b""
        for hit, log in zip(hits, logs, strict=True):
            yield from (hit.payload, log)

    def files(self, asked: Asked) -> Sequence[Sequence[str]]:
        return [self.devices.files(facts) for facts in asked.devices]

    def conditions(
        self,
        asked: Asked,
        prepared: Sequence[Prepared],
        keys: Sequence[CacheKey],
        since_ns: int = sys.maxsize,
    ) -> Met:
        return of_build(asked, prepared, keys, self.files(asked), since_ns)

    def holes(self, question: Question, asked: Asked, _given: Sequence[bytes]) -> tuple[Hole, ...]:
        mark = None if asked.language is Language.SPIR_V else DEFEATER.search(question[SOURCE])
        return (Hole(SOURCE, mark.start(1), len(mark[1])),) if mark else ()


def read_build(fields: Fields, libraries: Libraries) -> Asked:
    """A build of the fields of a request; raises WireError."""
    files_seen, cwd = fields.text(), fields.text()
    environ = _environment(fields.take(), libraries)
    options, source = fields.text(), fields.take()
    devices = tuple(
        Facts(fields.text(), tuple(fields.text() for _ in range(Facts.COUNT - 1)))
        for _ in range(fields.count())
    )
    fields.end()
    language = Language.OPENCL_C
    constants: tuple[str, ...] = ()
    if source.startswith(_IL):
        language = Language.SPIR_V
        constants, source = _of_module(source)
    else:
        source = DEFEATER.sub(b"", source)
    name = program_name(source)
    return Asked(
        files_seen, cwd, environ, options, source, devices, name=name, language=language, constants=constants
    )


def _of_module(field: bytes) -> tuple[tuple[str, ...], bytes]:
    """The constants and the module in the place of a source; raises WireError."""
    constants, at = [], len(_IL)
    while (end := field.find(b"\n", at)) > at:
        set_here = _CONSTANT.fullmatch(field, at, end)
        if set_here is None:
            raise WireError("a specialization constant has no value")
        constants.append(constant_option(int(set_here[1]), bytes.fromhex(set_here[2].decode())))
        at = end + 1
    if end < 0:
        raise WireError("a module does not begin")
    return tuple(constants), field[end + 1 :]


def source_asked(program: Program, options: Sequence[str]) -> tuple[bytes, tuple[str, ...]]:
    if program.language is not Language.SPIR_V:
        return program.source, tuple(options)
    constants, others = constants_first(options)
    lines = b"".join(b"%d %s\n" % (number, value.hex().encode()) for number, value in constants_of(constants))
    return b"".join((_IL, lines, b"\n", program.source)), others


def prepare_build(asked: Asked, devices: Devices, memos: Memos | None = None) -> tuple[Prepared, ...]:
    """The lookup for each device; raises OptionError, and TargetError for an unknown device."""
    require_same_files(asked.files_seen, asked.cwd)
    options = as_pyopencl_reads((asked.options,))
    if CONSTANT in asked.options:  # no driver's option, and none of ours where a program writes it
        raise OptionError(f"its build options contain {CONSTANT!r}")
    options = (*asked.constants, *options)
    program = Program(asked.name, asked.language, asked.source)
    found = [devices.match(facts, asked.cwd) for facts in asked.devices]
    return tuple(
        prepare(
            BACKEND,
            BuildRequest(
                program=program,
                target=target,
                options=options,
                name_headers=_NAME_HEADERS,
                cwd=asked.cwd,
                searches_cwd=True,
            ),
            toolchain,
            asked.environ,
            memos,
        )
        for target, toolchain in found
    )


def of_build(
    asked: Asked,
    prepared: Sequence[Prepared],
    keys: Sequence[CacheKey],
    files: Sequence[Sequence[str]],
    since_ns: int = sys.maxsize,
) -> Met:
    """The conditions of the answer to a build; raises UncoveredError.

    For each device its lookup, the key that was found, and the files of its driver, known as they were at
    ``since_ns``.
    """
    tied = any(map(is_tied, [BACKEND] * len(keys), prepared, keys, [asked.environ] * len(keys)))
    for one, key in zip(prepared, keys, strict=True):
        require_covered(one, key, asked.cwd)
    found = Conditions(asked.cwd, tied=tied, since_ns=since_ns)
    for at, one in enumerate(prepared):
        toolchain = one.compilation.inputs.toolchain
        fields = dict(toolchain.fields)
        if _EARLY in fields:
            raise UncoveredError(f"its driver was configured by a {_CONFIGURATION} where the command began")
        found.add_closure(one, BACKEND, asked.environ)
        found.add_variables(variables_of(toolchain.implementation), asked.environ)
        place = DEVICES + at * DEVICE_FIELDS
        found.add_compiler(place, asked.devices[at].library, files[at], asked.environ)
        found.add_folders(files[at])
        if toolchain.implementation == INTEL:
            found.add(Condition("A", b"s", _CONFIGURATION.encode()))
            if not any(Path(file).name == _CONFIGURATION for file in files[at]):
                found.add(Condition("A", b"%d" % place, _CONFIGURATION.encode()))
        if CPU in fields:
            x86 = platform.machine() in ("x86_64", "i686")
            found.add(Condition("C", b"", texts(FEATURES if x86 else "*"), texts(cpu_features().split())))
    return found.all()


class Parts(OpenCL):
    """Programs that are compiled to be linked: nothing of them is kept, and each is named by a mark."""

    ask = Kind.PART

    def prepare(self, asked: Asked, memos: Memos | None = None) -> tuple[Prepared, ...]:
        """The lookup that a build would have for each device; raises OptionError if it could not be kept."""
        found = super().prepare(asked, memos)
        for one in found:
            if one.refusal is not None:
                raise OptionError(one.refusal)
            if one.compilation.late:
                raise OptionError("its compiler builds at first launch")
        return found


def keys_of_part(prepared: Sequence[Prepared]) -> list[CacheKey]:
    """The key of a part's object for each device: the located one if the object may contain paths."""
    placed = (one.is_bound or one.compilation.holds_paths for one in prepared)
    return [
        one.located_key if is_placed else one.key for one, is_placed in zip(prepared, placed, strict=True)
    ]


def mark_of(part: Sequence[Prepared]) -> bytes:
    """The digest of a part's keys; its name and options follow for lists of entries."""
    mark = digest("\n".join(map(str, keys_of_part(part))).encode())
    named = part[0].request.program.name, *part[0].compilation.inputs.options
    return b"\t".join((mark.encode(), *(text.encode("unicode_escape") for text in named)))


class Links(OpenCL):
    """Links, whose parts' marks are in the place of a source."""

    ask = Kind.LINK

    def read(self, fields: Fields) -> Asked:
        asked = super().read(fields)
        if not _MARKS.fullmatch(asked.source):
            raise WireError("a link has no marks of parts")
        lines = [line.split(b"\t") for line in asked.source.split(b"\n")[:-1]]
        parts = tuple(tuple(text.decode("unicode_escape") for text in line) for line in lines)
        source = b"".join(b"%s\n" % mark for mark, *_ in lines)
        name = next((named[0] for _, *named in parts if named and named[0] != UNNAMED), UNNAMED)
        return replace(asked, source=source, parts=parts, name=name)

    def prepare(self, asked: Asked, memos: Memos | None = None) -> tuple[Prepared, ...]:
        if option := _NOT_LINKED.search(asked.options):
            raise OptionError(f"links with the option {option[0]} are not served")
        marks = [KeyField(PART, mark) for mark, *_ in asked.parts]
        # Lists of entries tell links of one program apart by the options. Older layers' marks have no names.
        names = [text for mark, *named in asked.parts for text in named or (UNNAMED, mark)]

        def linked(one: Prepared) -> Prepared:
            fields = [item for each in one.fields for item in (marks if each.label == "source" else [each])]
            inputs = one.compilation.inputs._replace(options=(*one.compilation.inputs.options, *names))
            compilation = one.compilation._replace(inputs=inputs)
            return one._replace(compilation=compilation, fields=tuple(fields), key=cache_key(fields))

        return tuple(map(linked, super().prepare(asked, memos)))


def _remember(known: dict[K, V], key: K, value: V, most: int) -> None:
    """Add a value, and drop the oldest of too many."""
    known[key] = value
    with suppress(KeyError, RuntimeError):  # other threads add and drop, too
        while len(known) > most:
            del known[next(iter(known))]


@lru_cache(maxsize=16)
def _environment(data: bytes, libraries: Libraries) -> Mapping[str, str]:
    """The variables of a program without us.

    Of the options that PyOpenCL reads in a variable nothing is left: its programs have put them among
    theirs, and other programs ignore them.
    """
    environ = without_us(variables(data), libraries)
    environ.pop(EXTRA_OPTIONS, None)
    return environ


class OpenCLServing(Session[Asked]):
    """Serves a command's OpenCL builds from the stores."""

    def __init__(self, stores: Stores, devices: Devices, libraries: Libraries, say: Say = silent) -> None:
        super().__init__(OpenCL(devices, libraries), stores, say)
        self.noted: set[CacheKey] = set()
        """The keys of the builds that were noted for ``warm --misses``."""
        self.binaries = 0
        """How many programs were made from binaries, which need no compile."""
        self._devices = devices
        self._parts = Parts(devices, libraries)
        self._links = Links(devices, libraries)
        self._compiling: dict[bytes, tuple[Question, Asked, tuple[Prepared, ...]]] = {}
        """The parts that are being compiled; no lookup where devices were not known by then."""

    @property
    def handlers(self) -> Handlers:
        more = {Kind.REJECTED: self._reject, Kind.OTHER: self._other}
        links = {Kind.PART: self._part, Kind.PART_COMPILED: self._part_compiled, Kind.LINK: self._link}
        return {**super().handlers, **more, **links}

    def finish(self) -> tuple[Intercepted, ...]:
        self._devices.end(drain_s())
        return super().finish()

    def passed(self, one: Build[Asked], error: GpucacheError) -> Reply:
        """Leave a build to its compiler; one whose devices are not known yet is kept all the same."""
        if not isinstance(error, NotKnownYetError):
            return super().passed(one, error)
        try:
            libraries = [facts.library for facts in one.asked.devices if facts.library]
            one.view = self.view_of((), libraries)
        except OptionError as changed:
            one.outcome = replace(one.outcome, reason=str(changed))
            return super().passed(one, changed)
        one.is_unknown, one.wanted = True, self.stores.target is not None
        return Reply(Kind.MISS, (self._begin(one), wanted(one)), one.view)

    def _told(self, fields: Fields) -> Reply:
        token = fields.take()
        one = self.known(token)
        code, compile_ns = fields.number(), fields.number()
        given = fields.rest()
        if one.served and not one.is_unknown:
            one.outcome = replace(one.outcome, build_ns=time.perf_counter_ns() - one.outcome.begun_ns)
            one.ended = True
            if not one.late:
                self.end(token)
            return HEARD
        if len(given) != 2 * len(one.asked.devices):
            raise WireError("a build has a binary and a log for each device")

        def settle(one: Build[Asked]) -> Intercepted:
            if one.is_unknown:
                self._look_up_again(one)
            for place, prepared, found in one.missing():
                result = _Result(code, compile_ns, *given[2 * place : 2 * place + 2])
                one.outcome = self._settled(one, result, prepared, found)
                self.say(miss_line(one.outcome, compile_ns))
            if one.outcome.result is RunResult.KEPT:
                self.keep_found(one)
            return one.outcome

        return self.settled(token, settle)

    def _reject(self, fields: Fields) -> Reply:
        token = fields.take()
        one = self.known(token)
        one.rejected = f"the driver refused the binary with {fields.number()}"
        one.outcome = replace(one.outcome, result=RunResult.LEFT, saved_ns=0, all_kernels=False)
        if is_required(one.asked.environ):
            self.missed(one)
            self.builds.pop(token, None)
            return self._refuse(one.outcome)
        one.wanted = self.wants(one)
        if one.wanted:
            from gpucache.engine.lookup import discard

            one.held = self.hold(one, time.monotonic() + step_s())
            for _, _, found in one.missing():
                if isinstance(found, Hit):
                    discard(self.stores, found, one.rejected)  # so that no build hits a replaced entry
        return Reply(Kind.MISS, (token, wanted(one)), one.view)

    def _other(self, fields: Fields) -> Reply:
        fields.number()  # the process
        entry_point = fields.text()
        reason, now_ns = f"{entry_point} is not served", time.perf_counter_ns()
        outcome = Intercepted("", "", RunResult.PASSED, reason=reason, begun_ns=now_ns)
        if self.stores.require:
            outcome, _ = refused(outcome)
        if entry_point not in _COMPILES_NOTHING:
            self.done(outcome)
        with self._lock:
            self.binaries += entry_point == "clCreateProgramWithBinary"
        return HEARD

    def compiler_of(self, asked: Asked) -> Compiler[Asked]:
        return self._links if asked.parts else self.compiler

    def _part(self, fields: Fields) -> Reply:
        question = fields.rest()
        asked = self._parts.read(Fields(question))
        prepared: tuple[Prepared, ...] = ()
        view = b""
        try:
            prepared = self._parts.prepare(asked, self.stores)
            view = self.view(asked, prepared)
        except NotKnownYetError:
            pass  # they may be when it is compiled
        except GpucacheError as error:
            return self._no_part(asked, str(error))
        token = number(next(self._tokens))
        _remember(self._compiling, token, (question, asked, prepared), _COMPILING_CAP)
        return Reply(Kind.HIT, (token, b""), view)

    def _part_compiled(self, fields: Fields) -> Reply:
        from gpucache.engine.lookup import changed_headers

        token = fields.take()
        compiling = self._compiling.pop(token, None)
        if compiling is None:
            return PASSED
        question, asked, prepared = compiling
        try:
            found = prepared or self._parts.prepare(asked, self.stores)
        except GpucacheError as error:
            return self._no_part(asked, str(error))
        if not prepared and any(map(_reads, found)):
            return self._no_part(asked, _UNSEEN)
        if any(changed_headers(self.stores, one) for one in prepared):
            return self._no_part(asked, "some of its headers may have changed while it was compiled")

        mark = mark_of(found)

        def then() -> None:
            with suppress(UncoveredError, GpucacheError):
                self.rows.keep_part(self._parts, question, asked, found, keys_of_part(found), mark)

        return Reply(Kind.HIT, (mark,), then=then if self.stores.keeps else None)

    def _no_part(self, asked: Asked, why: str) -> Reply:
        reason, now_ns = f"clCompileProgram is not served: {why}", time.perf_counter_ns()
        outcome = Intercepted(asked.name, "", RunResult.PASSED, reason=reason, begun_ns=now_ns)
        if is_required(asked.environ):
            return self._refuse(outcome)
        self.say(miss_line(outcome))
        self.done(outcome)
        return PASSED

    def _link(self, fields: Fields) -> Reply:
        return self._ask(fields, self._links.read)

    def _look_up_again(self, one: Build[Asked]) -> None:
        """Look a build up that has ended, and whose devices were not known when it began."""
        try:
            prepared, found = self.look_up(one.asked)
            self.view(one.asked, prepared)  # its program was only asked about the driver's own library
        except GpucacheError as error:
            one.outcome = replace(one.outcome, reason=str(error))
            return
        one.prepared = prepared
        one.found = tuple(part._replace(payload=b"") if isinstance(part, Hit) else part for part in found)
        if any(map(_reads, one.prepared)):
            one.doubt = one.doubt or _UNSEEN
        one.wanted = self.wants(one)
        why = "it is cached, but its devices were identified too late to serve it"
        one.outcome = replace(one.outcome, target=targets_of(one.prepared), result=RunResult.LEFT, reason=why)

    def _settled(self, one: Build[Asked], given: "_Result", prepared: Prepared, found: Part) -> Intercepted:
        """Publish or note the build for one device; returns the outcome."""
        from gpucache.engine.lookup import discard, leave

        miss = self.explain(one, prepared, found)
        if given.code != 0:
            miss = self.note_miss(prepared, miss, given.code)
        outcome = replace(one.outcome, verdict=miss.verdict, reason=miss.detail, key=str(prepared.key))
        if given.code != 0:
            self.show_failure((prepared,), given.log)
            return replace(outcome, result=RunResult.FAILED)
        if not one.wanted or not given.binary:
            if isinstance(found, Hit):
                discard(self.stores, found, one.rejected)
            plain = leave(
                self.stores, prepared, miss, given.compile_ns, _reaching(one, prepared), _noted(one)
            )
            if plain.noted.is_kept:
                self.noted.add(prepared.key)
                return replace(outcome, result=RunResult.NOTED)
            lost = " or a part was compiled again during the link" * bool(one.asked.parts)
            lacks = f"no binary of at most {LARGEST} came from the driver{lost}"
            why = plain.note or f"{lacks}, so it was not kept"
            return replace(outcome, result=RunResult.LEFT, reason=why)
        said = program_log(given.log.decode(errors="replace"), prepared.request.program.name)
        artifact = Artifact(ArtifactKind.OPENCL_BINARY, given.binary, said, given.compile_ns)
        self.note_miss(prepared, miss)
        if isinstance(why_not := self.publish(one, prepared, artifact, miss), str):
            return replace(outcome, result=RunResult.LEFT, reason=why_not)
        return replace(outcome, result=RunResult.KEPT)

    def note_launches(self, launched: Iterable[bytes]) -> None:
        """Note local sizes, each after the token of a build, or after a row whose entry lacks it."""
        sizes: dict[str, set[str]] = {}
        for row, token, size in (found.groups() for found in map(_LAUNCH.fullmatch, launched) if found):
            one = self.builds.get(token)  # most are retired, as no step waits for their sizes
            if row:
                sizes.setdefault(token.decode(), set()).add(size.decode())
            # A build whose devices are still being identified may turn out to be a late compiler's.
            elif one and (one.late or one.is_unknown) and len(one.sizes) < _SIZES_CAP:
                one.sizes.add(local_size(size.decode()))
        environ = without_us(os.environ, Libraries())
        variables = "".join(f"{name}={value}\0" for name, value in environ.items())
        own = tuple(map(os.fsencode, (files_seen(), os.getcwd(), variables)))  # noqa: PTH109
        for place, those in sizes.items():
            question = self.rows.asked(place)
            with suppress(GpucacheError):
                if question is not None:
                    question = (*own, *question[len(own) :])
                    asked = self.compiler.read(Fields(question))
                    prepared, found = self.look_up(asked)
                    outcome = Intercepted(asked.name, "", RunResult.HIT)
                    one = Build(question, asked, outcome, prepared=prepared, found=found)
                    one.sizes.update(map(local_size, those))
                    self.conclude(one)

    def conclude(self, one: Build[Asked]) -> None:
        """Note the local sizes that a late compiler's program was launched with and is not compiled for."""
        from gpucache.engine.lookup import note_lacking

        for prepared, found in zip(one.prepared, one.found, strict=True) if one.sizes else ():
            hit = found if isinstance(found, Hit) and not one.rejected else None
            if hit is None and prepared.key not in self.noted:
                continue  # it is not to be built at all
            request = prepared.request._replace(local_sizes=tuple(sorted(one.sizes)))
            toolchain = prepared.compilation.inputs.toolchain
            compilation = BACKEND.plan(request, toolchain, one.asked.environ)
            sized = prepared._replace(request=request, compilation=compilation)
            if note_lacking(self.stores, sized, hit, _reaching(one, prepared), _noted(one)).is_kept:
                self.noted.add(prepared.key)


def _reads(prepared: Prepared) -> bool:
    """Whether a program includes anything, apart from the driver's configuration."""
    closure = prepared.closure
    return closure.asked is None or any(include.name != EARLY_FILE for include in closure.includes)


@dataclass(frozen=True, slots=True)
class _Result:
    """A driver's result for one device."""

    code: int
    compile_ns: int
    """Without the wait for other compiles of its process."""
    binary: bytes
    log: bytes


def _reaching(one: Build[Asked], prepared: Prepared) -> tuple[tuple[str, str], ...]:
    return BACKEND.environment(prepared.compilation.inputs.toolchain, one.asked.environ)


def _noted(one: Build[Asked]) -> tuple[str, ...]:
    """The question of a build as ``MissedRequest`` keeps it; of a link and a module there is none."""
    if one.asked.parts or one.asked.language is Language.SPIR_V:
        return ()
    fields = [field if is_compared(Kind.BUILD, at) else b"" for at, field in enumerate(one.question)]
    source = source_field(Kind.BUILD)
    fields[source] = fields[source][len(one.asked.source) :]
    return tuple(field.decode("utf-8", "surrogateescape") for field in fields)


def local_size(text: str) -> tuple[int, ...]:
    """A local size as requests have it, such as ``8,8,1``; raises WireError."""
    extents = text.split(",")
    if len(extents) > _DIMENSIONS or not all(extent.isascii() and extent.isdigit() for extent in extents):
        raise WireError(f"{text!r} is not a local size")
    return tuple(map(int, extents))
