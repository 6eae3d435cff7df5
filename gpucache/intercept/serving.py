"""OpenCL builds of a command, served from the cache: found, published, or noted for later.

Owns what is known of each build from the question to its end, by tokens that the command hands back. How a
program is looked for, explained and published is the engine's; what a build means is ``opencl``'s.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.answers.run import Intercepted, RunResult
from gpucache.backends.opencl import BACKEND
from gpucache.backends.opencl.logs import program_log
from gpucache.engine.hits import build_log, find
from gpucache.engine.prepare import Prepared, stamped
from gpucache.engine.store_layers import Layers, NoEntry
from gpucache.errors import GpucacheError
from gpucache.intercept.devices import Devices, NotKnownYetError
from gpucache.intercept.environment import Libraries
from gpucache.intercept.opencl import Asked, prepare_build, read_build
from gpucache.intercept.server import HEARD, PASSED, Handlers, Reply
from gpucache.intercept.session import YOUNG_NS, Session
from gpucache.intercept.telling import Say, hit_line, is_required, miss_line, refused, silent
from gpucache.intercept.wire import LARGEST, TOO_LARGE, Fields, Kind, WireError, fits, number
from gpucache.model import Artifact, ArtifactKind, CacheKey
from gpucache.sources import is_settled

if TYPE_CHECKING:
    from gpucache.intercept.conditions import Strict
    from gpucache.intercept.index import Answered

_COMPILES_NOTHING = ("clCreateProgramWithBinary", "clCreateProgramWithBuiltInKernels")
_SIZES_CAP = 256
"""The most local sizes that are remembered of a program."""
_DIMENSIONS = 3


@dataclass
class _Build:
    """One build of one program, for all its devices."""

    question: tuple[bytes, ...]
    asked: Asked
    prepared: tuple[Prepared, ...]
    found: tuple[Hit | NoEntry, ...]
    """What was found for each device; hits are without their payloads."""
    outcome: Intercepted
    asked_ns: int = 0
    """When it was asked for, where its devices were not known yet: it is looked up once more when it ends."""
    wanted: bool = False
    """Whether the command was asked for binaries."""
    rejected: str = ""
    """What the driver said of our binaries; empty if it took them."""
    sizes: set[tuple[int, ...]] = field(default_factory=set)
    """The local sizes that its kernels were launched with."""
    ended: bool = False
    held: ExitStack = field(default_factory=ExitStack)
    """The locks of its keys."""

    @property
    def late(self) -> bool:
        """Whether a compiler of it goes on compiling at launches."""
        return any(one.compilation.late for one in self.prepared)

    @property
    def served(self) -> bool:
        """Whether it was answered from the cache, and the driver took that."""
        return all(isinstance(one, Hit) for one in self.found) and not self.rejected

    def missing(self) -> Iterator[tuple[int, Prepared, Hit | NoEntry]]:
        """The number and the request of each device whose entry is not there or was rejected."""
        for place, (prepared, found) in enumerate(zip(self.prepared, self.found, strict=True)):
            if not isinstance(found, Hit) or self.rejected:
                yield place, prepared, found


class OpenCLServing(Session[_Build]):
    """Answers a command's OpenCL builds from layers of the cache."""

    def __init__(self, layers: Layers, devices: Devices, libraries: Libraries, say: Say = silent) -> None:
        """``say`` is told each hit and each miss when it is known."""
        super().__init__(layers, say)
        self._devices = devices
        self._libraries = libraries
        self.noted: set[CacheKey] = set()
        """The keys of what was noted for ``warm --misses``."""
        self.binaries = 0
        """How many programs were made from binaries, which nobody compiles."""

    @property
    def handlers(self) -> Handlers:
        """What answers each kind of request."""
        return {
            Kind.BUILD: self._build,
            Kind.BUILT: self._built,
            Kind.REJECTED: self._reject,
            Kind.LAUNCHED: self._launched,
            Kind.OTHER: self._other,
        }

    def finish(self) -> tuple[Intercepted, ...]:
        """What became of every build, after the command's end; notes what is known only then."""
        for one in self._builds.values():
            if one.prepared and not one.ended and not one.served:
                self._abandon(one)
            if one.sizes:
                self._note_sizes(one)
            self.done(one.outcome)
        self._builds.clear()
        return self.ended()

    def _build(self, fields: Fields) -> Reply:
        begun_ns, now_ns = time.perf_counter_ns(), time.time_ns()
        question = fields.rest()
        asked = read_build(Fields(question), self._libraries)
        outcome = Intercepted(asked.name, "", RunResult.PASSED, begun_ns=begun_ns)
        try:
            prepared = prepare_build(asked, self._devices, self.layers)
        except GpucacheError as error:
            outcome = replace(outcome, reason=str(error))
            if is_required(asked.environ):
                return self.refuse(outcome)
            if not isinstance(error, NotKnownYetError):
                self.say(miss_line(outcome))
                return Reply(Kind.PASS, (self.begin(_Build(question, asked, (), (), outcome)),))
            wanted = self.layers.target is not None
            later = _Build(question, asked, (), (), outcome, now_ns, wanted)
            return Reply(Kind.MISS, (self.begin(later), number(wanted)))
        outcome = replace(outcome, target=_targets(prepared), result=RunResult.LEFT)
        known = _Build(question, asked, prepared, self._find(prepared), outcome)
        required = is_required(asked.environ)
        if not known.served and not required and self._wants(known):
            known.wanted = True
            known.held = self.hold(one.key for _, one, _ in known.missing())
            known.found = self._find(prepared)  # what had a lock may have published it
        hits = [answer for answer in known.found if isinstance(answer, Hit)]
        known.found = tuple(map(_without_payload, known.found))
        if len(hits) < len(prepared):
            if required:
                return self.refuse(self._missed(known))
            return Reply(Kind.MISS, (self.begin(known), number(known.wanted)))
        known.wanted = False
        known.held.close()
        parts = [part for hit in hits for part in (hit.payload, self._log(hit))]
        known.outcome = replace(
            outcome,
            result=RunResult.HIT,
            key=str(hits[0].key),
            build_ns=time.perf_counter_ns() - begun_ns,
            saved_ns=max(hit.head.compile_ns for hit in hits),
            all_kernels=known.late,
        )
        token = self.begin(known)
        if not fits((token, *parts)):
            known.outcome = replace(outcome, result=RunResult.PASSED, key=str(hits[0].key), reason=TOO_LARGE)
            return Reply(Kind.PASS, (token,))
        self.say(hit_line(known.outcome, hits[0]))
        return Reply(Kind.HIT, (token, *parts), then=lambda: self._keep_row(known, hits))

    def _built(self, fields: Fields) -> Reply:
        token = fields.take()
        one = self.known(token)
        code, compile_ns = fields.number(), fields.number()
        given = fields.rest()
        one.outcome = replace(one.outcome, build_ns=time.perf_counter_ns() - one.outcome.begun_ns)
        one.ended = True
        if not (one.prepared or one.asked_ns) or (one.prepared and one.served):
            self._retire(token)
            return HEARD
        if len(given) != 2 * len(one.asked.devices):
            raise WireError("a build has a binary and a log for each device")

        def settle() -> None:
            with one.held:
                if not one.prepared:
                    self._look_up_again(one)
                for place, prepared, found in one.missing():
                    result = _Result(code, compile_ns, *given[2 * place : 2 * place + 2])
                    one.outcome = self._settled(one, result, prepared, found)
                    self.say(miss_line(one.outcome, compile_ns))
                if one.outcome.result is RunResult.KEPT:
                    self._keep_row(one, self._find(one.prepared))
            self._retire(token)

        return Reply(Kind.OK, then=settle)

    def _reject(self, fields: Fields) -> Reply:
        token = fields.take()
        one = self.known(token)
        one.rejected = f"the driver refused the binary with {fields.number()}"
        one.outcome = replace(one.outcome, result=RunResult.LEFT, saved_ns=0, all_kernels=False)
        if is_required(one.asked.environ):
            return self.refuse(self._missed(self.end(token)))
        one.wanted = self._wants(one)
        if one.wanted:
            from gpucache.engine.missed import discard

            one.held = self.hold(prepared.key for _, prepared, _ in one.missing())
            for _, _, found in one.missing():
                if isinstance(found, Hit):
                    discard(self.layers, found, one.rejected)  # so that nobody hits what is replaced
        return Reply(Kind.MISS, (token, number(one.wanted)))

    def _launched(self, fields: Fields) -> Reply:
        one = self._builds.get(fields.take())
        if one is None:  # most are retired, as nobody waits for their sizes
            return PASSED
        fields.take()  # the kernel
        size = fields.text()
        if size and one.late and len(one.sizes) < _SIZES_CAP:
            one.sizes.add(local_size(size))
        return HEARD

    def _other(self, fields: Fields) -> Reply:
        fields.number()  # the process
        entry_point = fields.text()
        outcome = Intercepted("", "", RunResult.PASSED, reason=f"{entry_point} is not served")
        if self.layers.require:
            outcome, _ = refused(outcome)
        if entry_point not in _COMPILES_NOTHING:
            self.done(outcome)
        with self._lock:
            self.binaries += entry_point == "clCreateProgramWithBinary"
        return HEARD

    def _look_up_again(self, one: _Build) -> None:
        """Look a build up that has ended, and whose devices were not known when it began."""
        try:
            one.prepared = prepare_build(one.asked, self._devices, self.layers)
        except GpucacheError as error:
            one.outcome = replace(one.outcome, reason=str(error))
            return
        one.found = tuple(map(_without_payload, self._find(one.prepared)))
        one.wanted = self._wants(one)
        why = "it is cached, but its devices were identified too late to serve it"
        one.outcome = replace(one.outcome, target=_targets(one.prepared), result=RunResult.LEFT, reason=why)

    def _settled(
        self, one: _Build, given: "_Result", prepared: Prepared, found: Hit | NoEntry
    ) -> Intercepted:
        """Publish or note what was built for one device; what became of it."""
        from gpucache.engine.lookup import publish
        from gpucache.engine.missed import discard, leave

        miss, store = self._miss(one, prepared, found), self.layers.target
        outcome = replace(one.outcome, verdict=miss.verdict, reason=miss.detail, key=str(prepared.key))
        if given.code != 0:
            self._note_miss(prepared, miss)
            return replace(outcome, result=RunResult.FAILED)
        if not one.wanted or not given.binary or store is None:
            if isinstance(found, Hit):
                discard(self.layers, found, one.rejected)
            plain = leave(self.layers, prepared, miss, given.compile_ns, _reaching(one, prepared))
            if plain.noted.is_kept:
                self.noted.add(prepared.key)
                return replace(outcome, result=RunResult.NOTED)
            why = plain.note or f"no binary of at most {LARGEST} came from the driver, so it was not kept"
            return replace(outcome, result=RunResult.LEFT, reason=why)
        said = program_log(given.log.decode(errors="replace"), prepared.request.program.name)
        refusal = None
        if one.asked_ns and not is_settled(prepared.closure, one.asked_ns - YOUNG_NS):
            refusal = "some of its headers may have changed since it was compiled"
        artifact = Artifact(ArtifactKind.OPENCL_BINARY, given.binary, said, given.compile_ns, refusal=refusal)
        self._note_miss(prepared, miss)
        kept = publish(self.layers, store, stamped(prepared, self.layers), artifact, miss)
        if kept.key is None:
            return replace(outcome, result=RunResult.LEFT, reason=kept.note)
        return replace(outcome, result=RunResult.KEPT)

    def _find(self, prepared: Sequence[Prepared]) -> tuple[Hit | NoEntry, ...]:
        return tuple(find(self.layers, one) for one in prepared)

    def _missed(self, one: _Build) -> Intercepted:
        """Write down the misses of a build that is not made; the first, as what became of it."""
        outcome = one.outcome
        for place, (_, prepared, found) in enumerate(one.missing()):
            miss = self._miss(one, prepared, found)
            self._note_miss(prepared, miss)
            if not place:
                outcome = replace(outcome, verdict=miss.verdict, reason=miss.detail, key=str(prepared.key))
        return outcome

    def _refuse(self, outcome: Intercepted) -> Reply:
        """Have a build fail, because its program demands a hit."""
        outcome, reply = refused(outcome)
        self.say(miss_line(outcome))
        with self._lock:
            self._done.append(outcome)
        return reply

    def _abandon(self, one: _Build) -> None:
        """Write down the misses of a build whose end nobody told."""
        for _, prepared, found in one.missing():
            self._note_miss(prepared, self._miss(one, prepared, found))
        one.outcome = replace(one.outcome, reason="its process ended before the build did")
        one.held.close()

    def _keep_row(self, one: _Build, found: Sequence[Hit | NoEntry]) -> None:
        """Have the index answer the next time; not of a late compiler, whose launches have to be told."""
        hits = [hit for hit in found if isinstance(hit, Hit)]
        if one.late or len(hits) < len(one.prepared):
            return
        from gpucache.intercept.answering import of_hits

        given = [b"", *(part for hit in hits for part in (hit.payload, self._log(hit)))]

        def answered(strict: "Strict") -> "Answered":
            files = [self._devices.files(facts) for facts in one.asked.devices]
            return of_hits(one.question, one.asked, one.prepared, hits, given, files, strict)

        self.rows.keep(
            answered,
            hits,
            range(1, len(given), 2),
            target=_targets(one.prepared),
            saved_ns=max(hit.head.compile_ns for hit in hits),
        )

    def _note_sizes(self, one: _Build) -> None:
        """Note the local sizes that a late compiler's program was launched with and is not compiled for."""
        from gpucache.engine.missed import note_lacking

        for prepared, found in zip(one.prepared, one.found, strict=True):
            hit = found if isinstance(found, Hit) and not one.rejected else None
            if hit is None and prepared.key not in self.noted:
                continue  # it is not to be built at all
            request = prepared.request._replace(local_sizes=tuple(sorted(one.sizes)))
            toolchain = prepared.compilation.inputs.toolchain
            compilation = BACKEND.plan(request, toolchain, one.asked.environ)
            sized = prepared._replace(request=request, compilation=compilation)
            if note_lacking(self.layers, sized, hit, _reaching(one, prepared)).is_kept:
                self.noted.add(prepared.key)

    def _wants(self, one: _Build) -> bool:
        """Whether the command shall ask its driver for binaries: where they are quick to get, and kept."""
        refused = any(prepared.refusal is not None for prepared in one.prepared)
        return self.layers.target is not None and not one.late and not refused

    def _miss(self, one: _Build, prepared: Prepared, found: Hit | NoEntry) -> Miss:
        if isinstance(found, Hit):
            return Miss(Verdict.REJECTED, one.rejected)
        from gpucache.engine.explain import explain

        return explain(self.layers, prepared, found)

    def _log(self, hit: Hit) -> bytes:
        """What the compiler said when a hit was built."""
        return build_log(self.layers, hit).encode() if hit.head.has_log else b""

    def _retire(self, token: bytes) -> None:
        """Keep no more of a build than what became of it, where nothing more can be told of it."""
        if not self.known(token).late:
            self.done(self.end(token).outcome)


@dataclass(frozen=True, slots=True)
class _Result:
    """What a driver made for one device."""

    code: int
    compile_ns: int
    """Without what it waited for other compiles of its process."""
    binary: bytes
    log: bytes


def _targets(prepared: tuple[Prepared, ...]) -> str:
    return ", ".join(str(one.request.target) for one in prepared)


def _without_payload(found: Hit | NoEntry) -> Hit | NoEntry:
    return found._replace(payload=b"") if isinstance(found, Hit) else found


def _reaching(one: _Build, prepared: Prepared) -> tuple[tuple[str, str], ...]:
    """The variables that reach the compiler of a program."""
    return BACKEND.environment(prepared.compilation.inputs.toolchain, one.asked.environ)


def local_size(text: str) -> tuple[int, ...]:
    """A local size as requests have it, such as ``8,8,1``; raises WireError."""
    extents = text.split(",")
    if len(extents) > _DIMENSIONS or not all(extent.isascii() and extent.isdigit() for extent in extents):
        raise WireError(f"{text!r} is no local size")
    return tuple(map(int, extents))
