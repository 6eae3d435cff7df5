"""Builds of a command while it runs, whichever compiler makes them: asked for, looked up, kept.

Owns the facts of each build from the question to its end, by tokens that the command hands back. A build that
missed holds the locks of its keys until its entries are published, so that a request for the same meanwhile,
in this or another ``run``, waits a while and hits. The answer comes first; the code that explains and
publishes is imported afterwards. Must not know the content of a compiler's request: a ``Compiler`` does.
"""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import TYPE_CHECKING, Generic

from gpucache.answers.lookup import Hit, Miss
from gpucache.answers.run import Intercepted, RunResult
from gpucache.engine.hits import build_log
from gpucache.engine.prepare import Prepared
from gpucache.engine.stores import NoEntry, Stores
from gpucache.errors import GpucacheError
from gpucache.model import Artifact
from gpucache.serve.answering import A, Compiler, Part, Question, Rows, hits_of, targets_of
from gpucache.serve.conditions import of_view
from gpucache.serve.environment import drain_s, step_s
from gpucache.serve.index import view_of
from gpucache.serve.server import HEARD, PASSED, Handlers, Reply
from gpucache.serve.telling import Say, hit_line, is_required, miss_line, refused
from gpucache.serve.wire import TOO_LARGE, Fields, Kind, WireError, fits, number

if TYPE_CHECKING:
    from gpucache.serve.kept_sources import KeptSources

_TOGETHER = 16
"""How many rows are written together: without one that a killed server did not write, a hit takes longer."""
_NOT_IN_TIME = "the command had ended, and keeping it took too long"


@dataclass
class Build(Generic[A]):
    """One build of one program."""

    question: Question
    asked: A
    outcome: Intercepted
    is_unknown: bool = False
    """Whether its devices were not known then, so that it is looked up when it ends."""
    prepared: tuple[Prepared, ...] = ()
    """Empty where it cannot be kept, or its devices are not known yet."""
    found: tuple[Part, ...] = ()
    """The result for each part; hits are without their payloads."""
    wanted: bool = False
    """Whether the command was asked to send its compiled artifacts."""
    changed: str | None = None
    """Which of its headers had changed when it ended; None if none had."""
    held: ExitStack = field(default_factory=ExitStack)
    view: bytes = b""
    """What its program must see, as it is sent with a reply."""
    doubt: str = ""
    """Why its program does not see ``view``; empty if it does."""
    rejected: str = ""
    """The driver's complaint about our binaries; empty if it took them."""
    sizes: set[tuple[int, ...]] = field(default_factory=set)
    """The local sizes that its kernels were launched with."""
    ended: bool = False
    settling: bool = False

    @property
    def late(self) -> bool:
        """Whether a compiler of it goes on compiling at launches."""
        return any(one.compilation.late for one in self.prepared)

    @property
    def served(self) -> bool:
        """Whether it was answered from the cache, and the driver took that."""
        return all(isinstance(one, Hit) for one in self.found) and not self.rejected

    def missing(self) -> Iterator[tuple[int, Prepared, Part]]:
        """The number and the request of each part whose entry is not there or was rejected."""
        for place, (prepared, found) in enumerate(zip(self.prepared, self.found, strict=True)):
            if isinstance(found, NoEntry) or self.rejected:
                yield place, prepared, found


class Session(ABC, Generic[A]):
    """The builds of one compiler, served from the stores and kept in them."""

    def __init__(self, compiler: Compiler[A], stores: Stores, say: Say) -> None:
        """``say`` is called with each hit and each miss when it is known."""
        self.compiler = compiler
        self.stores = stores
        self.say = say
        self.sources: KeptSources | None = None
        """The files of the command's programs; None if it keeps none."""
        self.builds: dict[bytes, Build[A]] = {}
        self._lock = threading.Lock()
        self._tokens = count(1)
        self._done: list[Intercepted] = []
        self._hits: dict[bytes, int] = {}
        """The place of each outcome of a hit whose end is not reported."""
        self._since_ns = time.time_ns()

    @property
    def handlers(self) -> Handlers:
        compiler = self.compiler
        return {compiler.ask: self._ask, compiler.told: self._told, compiler.doubted: self._doubted}

    def finish(self) -> tuple[Intercepted, ...]:
        """The outcome of every build, after the command's end; notes the facts known only then."""
        from gpucache.engine.stores import note_process

        with self._lock:
            left, self.builds = tuple(self.builds.values()), {}
        for one in left:
            if one.settling:
                one.outcome = replace(one.outcome, result=RunResult.LEFT, reason=_NOT_IN_TIME)
            elif one.prepared and not one.ended and not one.served:
                self.missed(one)
                one.outcome = replace(one.outcome, reason="its process ended before the build did")
            self.conclude(one)
            one.held.close()
            self.done(one.outcome)
        if self.stores.remote is not None:
            self.stores.remote().flush(drain_s())
        hits = sum(one.result is RunResult.HIT for one in self._done)
        misses = sum(one.result not in (RunResult.HIT, RunResult.PASSED) for one in self._done)
        self.rows.flush()
        if misses and self.stores.target is not None:
            self.stores.target.sync_all()
        if hits + misses:
            note_process(self.stores, hits, misses, sum(one.saved_ns for one in self._done))
        return tuple(self._done)

    def conclude(self, _one: Build[A]) -> None:
        """Note the facts of a build that are known only at the command's end."""

    @abstractmethod
    def _told(self, fields: Fields) -> Reply:
        """The result of a build."""

    def _ask(self, fields: Fields, read: Callable[[Fields], A] | None = None) -> Reply:
        begun_ns = time.perf_counter_ns()
        question = fields.rest()
        asked = (read or self.compiler.read)(Fields(question))
        if asked.is_ours:
            return PASSED
        required = is_required(asked.environ)
        outcome = Intercepted(asked.name, "", RunResult.PASSED, begun_ns=begun_ns)
        one = Build(question, asked, outcome)
        try:
            prepared, found = self.look_up(asked)
            one.view = self.view(asked, prepared)
            one.prepared, one.found = prepared, found
            self.show(prepared)
        except GpucacheError as error:
            one.outcome = replace(outcome, reason=str(error))
            return self._refuse(one.outcome) if required else self.passed(one, error)
        end_s = time.monotonic() + step_s()
        if self.stores.remote is not None and not one.served:
            one.found = self.compiler.find_elsewhere(self.stores, asked, one.prepared, one.found)
        named, target = one.prepared[0].request.program.name, targets_of(one.prepared)
        outcome = one.outcome = replace(outcome, program=named, target=target, result=RunResult.LEFT)
        one.wanted = not one.served and self.wants(one)
        if one.wanted and not required:
            one.held = self.hold(one, end_s)
            # The process that had a lock may have published it.
            one.found = self.compiler.find(self.stores, asked, one.prepared)
        hits = hits_of(one.found)
        self.show(one.prepared, hits)
        one.found = tuple(map(_without_payload, one.found))
        if not one.served:
            if required:
                self.missed(one)
                return self._refuse(one.outcome)
            return Reply(Kind.MISS, (self._begin(one), wanted(one)), one.view)
        one.held.close()
        one.wanted = False
        given = self.compiler.fields(self.stores, asked, one.prepared, hits)
        one.outcome = replace(
            outcome,
            result=RunResult.HIT,
            key=str(hits[0].key),
            build_ns=time.perf_counter_ns() - begun_ns,
            saved_ns=max(hit.head.compile_ns for hit in hits),
            all_kernels=one.late,
        )
        if not fits(given):
            one.outcome = replace(outcome, result=RunResult.PASSED, key=str(hits[0].key), reason=TOO_LARGE)
            return Reply(Kind.PASS, (self._begin(one),))
        self.say(hit_line(one.outcome, hits[0]))
        return Reply(
            Kind.HIT, (self._begin(one), *given[1:]), one.view, then=lambda: self._keep_row_now(one, hits)
        )

    def look_up(self, asked: A) -> tuple[tuple[Prepared, ...], tuple[Part, ...]]:
        """The request, and the result of its lookup; raises GpucacheError for a build that is not cached."""
        prepared = self.compiler_of(asked).prepare(asked, self.stores)
        return prepared, self.compiler.find(self.stores, asked, prepared)

    def compiler_of(self, _asked: A) -> Compiler[A]:
        """The compiler that such a question is for."""
        return self.compiler

    def view(self, asked: A, prepared: Sequence[Prepared]) -> bytes:
        """What the program of a build must see. Raises OptionError for a compiler that has just changed."""
        return self.view_of(prepared, *self.compiler.files(asked))

    def view_of(self, prepared: Sequence[Prepared], *compilers: Sequence[str]) -> bytes:
        """The files that a program must see: its headers, and those of some compilers."""
        files = dict.fromkeys(file for each in compilers for file in each)
        return view_of(of_view((each.closure for each in prepared), files, self._since_ns))

    def _doubted(self, fields: Fields) -> Reply:
        """A program that sees other files than this process: what it was given, it has not used."""
        token, why = fields.take(), fields.text()
        if not why.startswith("its environment"):
            what = "variables" if "variable " in why else "files"
            why = f"its process sees other {what} than gpucache ({why})"
        reason = f"{why}, so nothing is kept for it"
        with self._lock:
            place = self._hits.pop(token, None)
            if place is not None:
                self._done[place] = _passed(self._done[place], reason)
        if place is None:
            one = self.known(token)
            one.doubt = reason
            if one.served:
                one.outcome = _passed(one.outcome, reason)
                self.end(token)
        return HEARD

    def passed(self, one: Build[A], _error: GpucacheError) -> Reply:
        self.say(miss_line(one.outcome))
        return Reply(Kind.PASS, (self._begin(one),))

    def wants(self, one: Build[A]) -> bool:
        """Whether the command shall send its compiled artifacts: if they are quick to get, and stored."""
        refused = any(prepared.refusal is not None for prepared in one.prepared)
        return self.stores.target is not None and not one.late and not refused

    def hold(self, one: Build[A], end_s: float) -> ExitStack:
        """Lock the keys that a build lacks, if possible in time; the result releases them when closed."""
        held, store = ExitStack(), self.stores.target
        keys = [prepared.key for _, prepared, _ in one.missing()]
        if store is not None:
            for key in [one.prepared[0].key] if self.compiler.is_whole else keys:
                held.enter_context(store.single_flight(key, max(0.0, end_s - time.monotonic())))
        return held

    def explain(self, one: Build[A], prepared: Prepared, found: Part) -> Miss:
        from gpucache.answers.lookup import Verdict
        from gpucache.engine.explain import explain

        rejected = Miss(Verdict.REJECTED, one.rejected)
        return rejected if isinstance(found, Hit) else explain(self.stores, prepared, found)

    def missed(self, one: Build[A], code: int = 0) -> Miss:
        """Write down a build's missing parts; returns the first miss, the reason in its outcome.

        ``code`` is the compiler's, once it has ended.
        """
        lacking = list(one.missing())[: 1 if self.compiler.is_whole else None]
        misses = [self.explain(one, prepared, found) for _, prepared, found in lacking]
        for place, ((_, prepared, _), miss) in enumerate(zip(lacking, misses, strict=True)):
            kept = one.prepared[0] if self.compiler.is_whole else prepared
            misses[place] = self.note_miss(kept, miss, code)
        key = str(one.prepared[0].key if self.compiler.is_whole else lacking[0][1].key)
        one.outcome = replace(one.outcome, verdict=misses[0].verdict, reason=misses[0].detail, key=key)
        return misses[0]

    def note_miss(self, prepared: Prepared, miss: Miss, code: int = 0) -> Miss:
        """Write a miss down; returns it as it is after the compiler has ended with a code."""
        from gpucache.engine.stores import note_failure, note_miss

        if code:
            return note_failure(self.stores, prepared, miss)
        note_miss(self.stores, prepared, miss)
        return miss

    def publish(
        self, one: Build[A], prepared: Prepared, artifact: Artifact, miss: Miss, *, records: bool = True
    ) -> Hit | str:
        """Keep an artifact; returns the reason if it is not kept."""
        from gpucache.engine.lookup import publish, why_not_kept

        if one.doubt:
            return one.doubt
        if self.stores.target is None or prepared.refusal is not None:
            return why_not_kept(self.stores, miss)[0]
        kept = publish(
            self.stores, self.stores.target, prepared, artifact, miss, one.changed, records=records
        )
        entry = kept.entry
        return kept.note if entry is None else Hit(entry.key, entry.head, entry.payload, "")

    def keep_row(self, one: Build[A], hits: Sequence[Hit]) -> None:
        """Write the row with which the index answers next time."""
        if self.stores.keeps:
            self.rows.keep(self.compiler_of(one.asked), one.question, one.asked, one.prepared, hits)

    def _keep_row_now(self, one: Build[A], hits: Sequence[Hit]) -> None:
        """The same for a build that is asked for again, as others that wait may be."""
        self.keep_row(one, hits)
        self.rows.flush()

    def keep_found(self, one: Build[A]) -> None:
        """Write the row of a build that was just stored; reading the entry back is not a use."""
        stores = self.stores._replace(read_only=True)
        hits = hits_of(self.compiler.find(stores, one.asked, one.prepared))
        self.show(one.prepared, hits)
        self.keep_row(one, hits)

    def show(self, prepared: Sequence[Prepared], hits: Sequence[Hit] = ()) -> None:
        """Write the programs of a build where the command keeps such files, with the results of hits."""
        if self.sources is None:
            return
        parts = prepared[:1] if self.compiler.is_whole else prepared
        self.sources.asked(parts)
        if len(hits) == len(prepared):
            for one, hit in zip(prepared, hits, strict=True):
                log = build_log(self.stores, one, hit, "") if hit.head.has_log else ""
                of = parts[0] if self.compiler.is_whole else one
                self.sources.done(of, log, hit.head.artifact_kind, hit.payload)

    def show_failure(self, prepared: Sequence[Prepared], log: bytes) -> None:
        """Write the programs of a build that did not compile, with its log."""
        if self.sources is not None:
            self.sources.asked(prepared)
            for one in prepared:
                self.sources.done(one, log.decode(errors="surrogateescape").rstrip("\0"))

    @cached_property
    def rows(self) -> Rows:
        return Rows(self.stores, self._since_ns, together=_TOGETHER)

    def _begin(self, one: Build[A]) -> bytes:
        """The token of a build with more to come, or of a hit; empty for any other, which is then done."""
        token = number(next(self._tokens))
        if not self.compiler.tells_all and one.outcome.result is RunResult.HIT:
            with self._lock:
                self._hits[token] = len(self._done)
                self._done.append(one.outcome)
            return token
        if not self.compiler.tells_all and one.outcome.result is RunResult.PASSED:
            self.done(one.outcome)
            return b""
        self.builds[token] = one
        return token

    def known(self, token: bytes) -> Build[A]:
        """The build of a token; raises WireError for an unknown one."""
        build = self.builds.get(token)
        if build is None:
            raise WireError("no build has this token")
        return build

    def end(self, token: bytes) -> None:
        """Drop everything of a build but its outcome, unless the command's end has done so."""
        with self._lock:
            build = self.builds.pop(token, None)
        if build is not None:
            self.done(build.outcome)

    def settled(self, token: bytes, settle: Callable[[Build[A]], Intercepted]) -> Reply:
        """Go on with the work after the end of a build once its program has its reply.

        ``settle`` returns its outcome, which is reported even if it raises. Headers are read again before the
        reply; a program whose build may have headers waits for it: see ``wanted``.
        """
        with self._lock:
            one = self.known(token)
            if one.ended:
                raise WireError("this build has ended before")
            one.ended = one.settling = True
        if one.wanted:
            one.changed = self._changed(one)
        one.outcome = replace(one.outcome, build_ns=time.perf_counter_ns() - one.outcome.begun_ns)

        def then() -> None:
            try:
                store = self.stores.target
                with one.held, nullcontext() if store is None else store.settling():
                    one.outcome = settle(one)
                self.conclude(one)  # once more where the command's end was earlier
            except Exception as error:
                one.outcome = replace(
                    one.outcome, result=RunResult.LEFT, reason=f"it could not be kept: {error}"
                )
                raise
            finally:
                one.settling = False
                if not one.late:
                    self.end(token)

        return replace(HEARD, then=then)

    def _changed(self, one: Build[A]) -> str | None:
        from gpucache.engine.lookup import changed_headers

        lacking = list(one.missing())[: 1 if self.compiler.is_whole else None]
        changes = (changed_headers(self.stores, prepared) for _, prepared, _ in lacking)
        return next(filter(None, changes), None)

    def done(self, outcome: Intercepted) -> None:
        with self._lock:
            self._done.append(outcome)

    def _refuse(self, outcome: Intercepted) -> Reply:
        """Have a build fail, because its program demands a hit."""
        outcome, reply = refused(outcome)
        self.say(miss_line(outcome))
        self.done(outcome)
        return reply


def wanted(one: Build[A]) -> bytes:
    """Whether the command shall send its compiled artifacts, and wait as its headers are read again."""
    return number(one.wanted + (one.wanted and any(each.closure.files for each in one.prepared)))


def _passed(outcome: Intercepted, reason: str) -> Intercepted:
    return replace(outcome, result=RunResult.PASSED, reason=reason, saved_ns=0, all_kernels=False)


def _without_payload(found: Part) -> Part:
    return found._replace(payload=b"") if isinstance(found, Hit) else found
