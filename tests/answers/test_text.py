"""Texts for people, in full: ``approved.txt`` has every text at 80 columns of a terminal and through a pipe.

python -m tests.answers.test_text      writes the file again; read the changes before committing them
"""

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gpucache.answers import bench, devices, evict, inspect, record, run_lines, transfer, verify, warm, why
from gpucache.answers.bench import BenchVerdict, BreakEven, Ratio, SettleRun, SettleSummary, Spread
from gpucache.answers.bench_export import export
from gpucache.answers.console import PIPE_WIDTH, Block, write
from gpucache.answers.devices import TargetDifference
from gpucache.answers.entries import CacheEntry, EntryReport, FindingKind, Growth, Location, Problem
from gpucache.answers.evict import EvictOutcome, EvictSummary, Foreseen, Kept, Removal
from gpucache.answers.export import (
    Exported,
    Layered,
    LayerResult,
    Source,
    exported,
    layer_line,
    left,
    summarise_layer,
)
from gpucache.answers.inspect import Advice, AdviceKind, CacheState, Stale, Written
from gpucache.answers.lookup import Hit, Miss, Verdict
from gpucache.answers.record import Launch, PassedOver, RecordedProgram, RecordSummary, Unrecorded
from gpucache.answers.run import Ended, Intercepted, RunResult, summarise_run
from gpucache.answers.transfer import (
    Immovable,
    Mismatch,
    Moved,
    Pulled,
    PullResult,
    PullSummary,
    Pushed,
    PushResult,
    PushSummary,
    Unsound,
)
from gpucache.answers.verify import Checked, Finding, summarise_verify
from gpucache.answers.warm import WarmOutcome, WarmResult, summarise_warm
from gpucache.answers.why import Answer, Build, Reach, Reply, ReplyState, Served
from gpucache.keys import Difference
from gpucache.model import CacheKey, Check, Device, EntryHead, KeyField, Target, Toolchain
from tests.answers.cases import CASES as BENCHED
from tests.answers.cases import COMMAND, MS, PROGRAM, WROTE, compared

APPROVED = Path(__file__).with_name("approved.txt")
ENDED, LOADED = Ended(0), Ended(0, loaded=True)
S = 10**9
NOW = 7200 * S
KEYS = [f"{digit * 12}{'0' * 52}" for digit in "abc"]
LONG = "kernels/linear-algebra/blocked-matrix-multiplication.cl"
GPU = "opencl:nvidia-cuda/nvidia-geforce-rtx-4090-laptop-gpu"
BAD = Problem(FindingKind.TRUNCATED, "12 bytes are missing", "remove it")
ENTRY = CacheEntry("gpucache", KEYS[0], "/c/a", 123_456_789, 0, S, LONG, GPU, "opencl-binary")
OTHER = ENTRY._replace(key=KEYS[1], program="b.cu", target="cuda:sm_90", artifact_kind="cubin", variant="N=4")
PLACE = Location("gpucache", "/srv/cache", "GPUCACHE_DIR", True, 1024, ("it cannot be written",))
EMPTY = Problem(FindingKind.LEFTOVER, "temporary files: 11 (0 B)")
FOUND = (EMPTY, *(Problem(None, f"wrong {number}") for number in range(8)))
POCL = Location("pocl", "/srv/pocl", "default", False, role="user")
STATE = CacheState(PLACE, 3, 512, 3, 2, 1, beside_bytes=99)
FOREIGN = CacheState(POCL, 2, 4096, 2, 1, 0, found=FOUND)
DEAD = CacheState(
    Location("sycl", "/s", "HOME", True, 5 << 20), 2, 9 << 20, 2, 1, 0, stale=Stale(2, 9 << 20, ("old",))
)
REPORT = EntryReport(
    ENTRY,
    (KeyField("option", "-DN=4"), *(KeyField(f"include h{one}.h", f"{one:064x}") for one in range(3))),
    (("kind", "cubin"),),
    S,
    "a warning",
    "1.0",
    (("f<int>", "_Z1f"),),
    (("source file", "/a.cl"),),
    ((16, 4),),
)
CHECKS = (Check(20, "index %d", "gather"), Check(3, "", "", "other.cl"))
MISS = Miss(Verdict.KEY_CHANGED, "the option -DN=1 is new", (Difference("option", None, "-DN=1"),))
HIT = Hit(CacheKey(KEYS[0]), EntryHead("k.cl", "t", "cubin", 0, S, ""), b"", "/root")
LISTED = "A -> B; driver 1 -> 2; the option -DA=1 is gone; types.h changed"
NEAR = "(nearest: 3b450d5a60bf, built just now)"


def _warmed(*outcomes: WarmOutcome, whole: bool = False, apart: str = "variant") -> Iterator[Block]:
    return warm.warm(outcomes, summarise_warm(outcomes), apart=apart, whole=whole)


def _verified(*outcomes: Checked, whole: bool = False, **more: tuple[str, ...]) -> Iterator[Block]:
    return verify.verify(outcomes, summarise_verify(outcomes)._replace(**more), whole=whole)  # type: ignore[arg-type]


def _evicted(*outcomes: EvictOutcome, whole: bool = False, planned: bool = False) -> Iterator[Block]:
    summary: EvictSummary = (
        Foreseen(kept=2, kept_bytes=2048) if planned else EvictSummary(kept=2, kept_bytes=2048)
    )
    told = evict.Evictions(whole=whole)
    for outcome in summary.of(outcomes):
        told.add(outcome)
    return told.plan(summary) if isinstance(summary, Foreseen) else told.done(summary)


def _pushed(
    *found: Pushed | Immovable | Unsound, shown: bool = False, whole: bool = False
) -> Iterator[Block]:
    summary = PushSummary()
    rows = list(summary.of(found))
    return transfer.push(rows if shown or whole else (), summary, whole=whole)


def _pulled(
    *found: Pulled | Immovable | Unsound, shown: bool = False, whole: bool = False
) -> Iterator[Block]:
    summary = PullSummary()
    rows = list(summary.of(found))
    return transfer.pull(rows if shown or whole else (), summary, whole=whole)


def _missed(verdict: str, detail: str, **more: object) -> dict[str, object]:
    return {"when_ns": 0, "program": "k.cl", "target": "t", "verdict": verdict, "detail": detail, **more}


def _ran(*outcomes: Intercepted, ended: Ended = ENDED, inner: bool = False, **more: int) -> Iterator[str]:
    yield run_lines.summary_line(summarise_run("app", ended, outcomes, **more), inner=inner)
    yield from (f"- {reason}" for reason in run_lines.reasons(outcomes, whole=False))
    yield from (f"-v {reason}" for reason in run_lines.reasons(outcomes, whole=True))


def _layered(*rows: Layered, answers: int, ended: Ended = LOADED) -> Iterator[str]:
    yield layer_line(summarise_layer("app", ended, "DIR", rows, answers, 4096))
    for whole in (False, True):
        yield from left(rows, whole=whole)


def _recorded(builds: int, unrecorded: int, **how: bool) -> str:
    return record.recorded_line(RecordSummary("app", LOADED, "DIR", builds, unrecorded), **how)


MOVED = Moved("triton", KEYS[0], "matmul_kernel", "cuda:sm_90", 123_456)
SENT = Pushed(MOVED, PushResult.SENT, sent_bytes=100_000, tells="paths and source text")
WOULD_SEND = Pushed(MOVED._replace(cache="gpucache"), PushResult.WOULD_SEND)
PULLED = Pulled(MOVED, PullResult.PULLED, signer="0" * 16, received_bytes=123_456)
WOULD_PULL = PULLED._replace(result=PullResult.WOULD_PULL, unknown=("install path",), signer="")
ARCHITECTURE = Mismatch("architecture", "sm_80", "sm_90")
VERSION = Mismatch("version", "3.4.0", "3.9.1")
DIFFERS = PULLED._replace(result=PullResult.DIFFERS, differences=(ARCHITECTURE, VERSION))
ITEM = WarmOutcome(LONG, GPU, WarmResult.BUILT, "N=4", KEYS[0], 65 * S, 123_456_789)
FAILED = WarmOutcome(
    "a[bold].cl", "t", WarmResult.FAILED, reason="[red]no", log="\n".join(map(str, range(100)))
)
RAN = Intercepted("scale", "t", RunResult.HIT, "0" * 64, 4 * MS, 2 * S)
AHEAD = replace(RAN, saved_ns=36 * S, all_kernels=True)
KEPT = Intercepted("blur", "t", RunResult.KEPT, "1" * 64, 96 * MS, reason="never built", begun_ns=4 * MS)
NOTED = replace(KEPT, result=RunResult.NOTED, begun_ns=0)
LEFT = [Intercepted("fft", "t", RunResult.LEFT, reason=f"reason {number}") for number in range(5)]
PASSED = Intercepted("", "", RunResult.PASSED, reason="clCompileProgram is not served")
RECORDED = RecordedProgram(
    "d" * 64,
    "k.cl",
    "opencl-c",
    "t",
    (),
    ("-DN=1",),
    ("f<int>",),
    "s" * 64,
    2,
    True,
    (Launch("f", (16, 4)), Launch("f", ()), Launch("g", (8,))),
    "cubin",
    S,
    False,
    0,
    "app",
)
ANSWER = Answer("k.cl", GPU, "N=4", ("/root",), MISS, (Build(0, KEYS[0]), Build(NOW, KEYS[1])))
BELOW = (
    Reply("gpucache", ReplyState.MISSES, "-"),
    Reply("pocl", ReplyState.ANSWERS, "it is there"),
    Reply("neo", ReplyState.UNKNOWN, "it is opaque"),
)
ABSENT = [Checked(key, notes=("not loaded: no device is t",)) for key in "abcde"]
DEVICES = [
    Device(
        Target("opencl", "nvidia-cuda/rtx-4090-laptop"),
        "opencl",
        "NVIDIA GeForce RTX 4090",
        "570",
        True,
        "a GPU",
    ),
    Device(
        Target("opencl", "pocl/old"),
        "opencl",
        "old",
        "3.0",
        False,
        "it compiles nothing; fix it",
        Toolchain("pocl", (("driver", "3"),), ()),
    ),
    Device(Target("cuda", "sm_90"), "cuda", "sm_90", "", True, "NVRTC builds for it", present=False),
    Device(Target("cuda", "compute_90"), "cuda", "c", "", True, "NVRTC builds for it", present=False),
    Device(None, "cuda", "CUDA driver", "", False, "the driver is broken", present=False),
]
HELD = [
    EvictOutcome(Removal(ENTRY._replace(key=f"{one:064x}"), "stale"), Kept("it is held"))
    for one in range(1, 6)
]
GONE = EvictOutcome(Removal(ENTRY, "unused for 30 d, superseded"))
OLD = Finding(
    "gpucache", KEYS[0], FindingKind.CORRUPT, "it says cubin and is PTX, which is something else", LONG, GPU
)

PLAIN = replace(
    PROGRAM, starts=tuple(replace(one, phases=()) for one in PROGRAM.starts[:2]), samples=(), notes=()
)
BRIEF = replace(PLAIN, starts=(), break_even=None)
CLEAR = Ratio(21.9, 18.25, 23.0)
ALIKE = [replace(BRIEF, program=name, caveats=("it was not loaded",)) for name in ("a.cl", "b.cl")]
FAR = Spread(9, 8, 99, 10, outliers=2)
RUNS = [SettleRun(1, 4200 * MS, WROTE), SettleRun(2, 2 * S, (Growth("pocl", 1, 10),)), SettleRun(3, S)]
BROKEN = "it ended with status 3: \x1b[31mno device\x1b[0m"
ADDED = (Growth("pocl", 13, 1_258_301), WROTE[1])
SHELL = (("POCL_CACHE_DIR", "/srv/my caches/pocl"), ("SYCL_CACHE_PERSISTENT", "1"))
ODD = replace(BENCHED[-1], program="a|b`c\n# d.cu", target="<b>*x*")
FILE = "file: "
"""Text written into a file has no width."""

CASES: dict[str, Callable[[], Iterable[Block]]] = {
    "warm: results": lambda: _warmed(
        *(replace(ITEM, result=result, reason="the reason why") for result in WarmResult)
    ),
    "warm: one": lambda: _warmed(ITEM),
    "warm: a log": lambda: _warmed(FAILED),
    "warm: a log, whole": lambda: _warmed(replace(FAILED, log="1\n" * 30), whole=True),
    "warm: alike": lambda: _warmed(
        *(
            WarmOutcome(f"{one}.cl", "t", WarmResult.MISSING, reason=f"why {one}", verdict=Verdict.EVICTED)
            for one in "abcde"
        ),
        apart="key",
    ),
    "warm: no kernels": lambda: _warmed(replace(ITEM, lacks_kernels=True)),
    "warm: nothing": _warmed,
    "verify: kinds": lambda: _verified(
        Checked(KEYS[0], tuple(OLD._replace(kind=kind, repaired=True) for kind in FindingKind))
    ),
    "verify: caches": lambda: _verified(
        Checked(KEYS[0], (OLD, OLD._replace(cache="pocl", entry="0/1", repaired=True)), ("not comparable",)),
        Checked("a"),
        unread=("x", "y"),
        whole=True,
    ),
    "verify: sound": lambda: _verified(Checked("a")),
    "verify: unchecked": lambda: _verified(*(Checked(key, unchecked="no memory") for key in "abcde")),
    "verify: loaded": lambda: verify.verify(
        ABSENT, summarise_verify([*ABSENT, Checked("f", passed=("loaded",))], load=True, rebuild=True)
    ),
    "verify: no checksum": lambda: _verified(
        Checked("a"),
        *(
            Checked(
                key, checksum=False, unseen="verify cannot notice y: X stores nothing to check it against"
            )
            for key in "bc"
        ),
    ),
    "verify: many": lambda: list(_verified(*(Checked(str(one), (OLD,), ("n",)) for one in range(205))))[1:3],
    "evict: a plan": lambda: _evicted(GONE._replace(tried=False), planned=True),
    "evict: an empty plan": lambda: _evicted(planned=True),
    "evict: a plan, whole": lambda: _evicted(*HELD, GONE, planned=True, whole=True),
    "evict: done": lambda: _evicted(GONE, *HELD, EvictOutcome(Removal(OTHER, "stale"), Kept())),
    "evict: done, whole": lambda: _evicted(GONE, *HELD, whole=True),
    "evict: one stays": lambda: evict.Evictions().done(EvictSummary(kept=1, kept_bytes=512)),
    "evict: many": lambda: list(_evicted(*([GONE] * 203), planned=True))[1:],
    "evict: caches": lambda: evict.evict_caches(
        [
            (PLACE, Foreseen(kept=2, kept_bytes=10)),
            (POCL, Foreseen(kept=3, kept_bytes=9, would_remove=1, would_free_bytes=8)),
        ]
    ),
    "push: done": lambda: _pushed(SENT, SENT, Pushed(MOVED, PushResult.PRESENT)),
    "push: again": lambda: _pushed(Pushed(MOVED, PushResult.PRESENT)),
    "push: nothing": lambda: [*_pushed(), *_pushed(Immovable("numba", "the reason why"))],
    "push: a plan": lambda: _pushed(WOULD_SEND, WOULD_SEND._replace(entry=MOVED), shown=True),
    "push: troubles, whole": lambda: _pushed(
        SENT,
        SENT._replace(entry=MOVED._replace(cache="pocl", program=LONG)),
        *(
            Pushed(
                MOVED._replace(cache="pocl", program=f"{one}.cl"),
                PushResult.REFUSED,
                "it contains source text; --sources sends it",
            )
            for one in "abcd"
        ),
        Pushed(MOVED._replace(program=""), PushResult.FAILED, "truncated: 12 bytes are missing"),
        Immovable("numba", "its answers depend on modules that its entries do not name"),
        Unsound("catalogues/ab12", "it is not signed by a trusted key; remove it from there"),
        whole=True,
    ),
    "pull: done": lambda: _pulled(PULLED, PULLED, PULLED._replace(result=PullResult.PRESENT)),
    "pull: nothing": _pulled,
    "pull: a plan": lambda: _pulled(WOULD_PULL, WOULD_PULL, PULLED._replace(result=PullResult.PRESENT)),
    "pull: other machines": lambda: _pulled(
        PULLED,
        DIFFERS,
        DIFFERS._replace(differences=(ARCHITECTURE,)),
        Pulled(
            MOVED._replace(cache="pocl"),
            PullResult.DIFFERS,
            differences=(
                Mismatch("CPU", "znver4 avx512f avx512bw avx512vl", "haswell"),
                Mismatch("CPU features", "avx avx2 sse4_2 sse4a", "avx avx2 sse4_2"),
            ),
        ),
    ),
    "pull: troubles": lambda: _pulled(
        WOULD_PULL._replace(result=PullResult.PULLED),
        *(
            PULLED._replace(result=result, reason="the reason why; the remedy")
            for result in (PullResult.UNSIGNED, PullResult.DAMAGED, PullResult.REFUSED, PullResult.FAILED)
        ),
        Immovable("inductor", "its libraries name the directory of its headers"),
        Unsound("index", "it cannot be parsed; remove it from there"),
        shown=True,
    ),
    "devices": lambda: devices.devices(DEVICES),
    "devices, whole": lambda: devices.devices(DEVICES, whole=True),
    "devices, long": lambda: devices.devices(
        [
            DEVICES[1]._replace(
                target=Target("opencl", "pocl-3.0-rc2/pthread-skylake-avx512-amd-epyc-7"), name=LONG
            )
        ]
    ),
    "devices compared": lambda: devices.comparison(
        [TargetDifference(one, Difference("driver", "1", None)) for one in "abc"], "a.json", "b.json"
    ),
    "devices alike": lambda: devices.comparison([], "a", "b"),
    "inspect: state": lambda: inspect.state(STATE),
    "inspect: others": lambda: inspect.foreign_state(FOREIGN, [("A", "b")], {"T": "1"}, "no way"),
    "inspect: overview": lambda: inspect.overview([STATE, FOREIGN, DEAD]),
    "inspect: places in /tmp": lambda: inspect.overview(
        [
            CacheState(
                Location(name, "/tmp", "HOME", True, problems=(f"it is lost; set {variable}",)), 1, 1, 1, 1, 0
            )
            for name, variable in (("gpucache", "A"), ("pocl", "B"), ("pytools", "C"), ("triton", "C"))
        ]
    ),
    "inspect: entries": lambda: inspect.entries(
        [("", OTHER), ("", ENTRY), ("", OTHER._replace(program="", damage=BAD))], NOW
    ),
    "inspect: entries, whole": lambda: inspect.entries([("one", ENTRY), ("two", OTHER)], NOW, whole=True),
    "inspect: no entries": lambda: inspect.entries([], NOW),
    "inspect: one entry": lambda: inspect.report(REPORT, whole=False),
    "inspect: many headers": lambda: inspect.report(
        REPORT._replace(key_fields=tuple(KeyField(f"include h{one}.h", f"{one:064x}") for one in range(40))),
        whole=False,
    ),
    "inspect: checks": lambda: inspect.report(REPORT._replace(checks="async", failures=CHECKS), whole=False),
    "inspect: no checks": lambda: inspect.report(REPORT._replace(checks="none", key_fields=()), whole=True),
    "inspect: many checks": lambda: inspect.report(
        REPORT._replace(key_fields=(), failures=tuple(Check(line, "x") for line in range(1, 101))),
        whole=False,
    ),
    "inspect: advice": lambda: inspect.advice(
        [
            *(Advice(AdviceKind.RESTLESS, f"{one}.cl", "t", "its options differ") for one in range(10)),
            Advice(AdviceKind.UNREAD, "p", "t", "", keys=("a", "b")),
        ]
    ),
    "inspect: written": lambda: [
        inspect.written(Written(ENTRY, "/c", NOW, (("12", "app"),))),
        *(inspect.written(Written(OTHER, "/c", NOW, before_bytes=size)) for size in (1, 1 << 40)),
    ],
    "inspect: misses": lambda: inspect.misses(
        [*(_missed(one, "because") for one in Verdict), _missed("evicted", "because", when_ns="soon")],
        NOW,
        noted=2,
        most=12,
    ),
    "inspect: a miss again": lambda: inspect.misses(
        [_missed("evicted", "a", key="k"), _missed("evicted", "b", key="k")], 0
    ),
    "inspect: misses in brief": lambda: inspect.misses(
        [
            _missed("key-changed", f"{LISTED}; and 10 more {NEAR}"),
            _missed("key-changed", f"types.h changed; driver 1 -> 2 {NEAR}"),
            _missed("never-built", f"k.cl was never built for t, but for opencl:intel/epyc: {LISTED} {NEAR}"),
            _missed("poisoned", f"its compiler failed twice; warm --retry tries it again, {'often ' * 9}"),
            _missed("never-built", "nothing was ever built as k.cl in /srv/cache"),
            _missed("evicted", "removed at 2026-11-23T05:44:24Z: over 20.0 KiB"),
        ],
        NOW,
        brief="/srv/cache",
    ),
    "inspect: no miss": lambda: inspect.misses([], NOW),
    "inspect: processes": lambda: inspect.processes(
        [{"when_ns": 0, "command": f"app {'--option ' * 20}", "hits": 1}], NOW
    ),
    "why: a miss": lambda: why.answers([ANSWER._replace(caches=BELOW, under_run=ANSWER.written)], NOW),
    "why: a hit": lambda: why.answers(
        [ANSWER._replace(found=HIT, caches=BELOW, not_asked=(("/x", "fix /x"),))], NOW
    ),
    "why: a directory": lambda: why.answers(
        [ANSWER._replace(directory="/run", elsewhere=MISS, written=())], NOW
    ),
    "why: not asked": lambda: why.answers(
        [ANSWER._replace(consulted=(), elsewhere=HIT, not_asked=(("/x", "no"),))], NOW
    ),
    "why: two keys": lambda: [
        *why.comparison(KEYS[0], KEYS[1], ["an option is gone"]),
        *why.comparison(KEYS[0], KEYS[1], []),
    ],
    "why: reaches": lambda: why.reaches(
        [
            Reach("sycl", "device", Served.HIT, "it is there", nearest=KEYS[0]),
            Reach(
                "sycl",
                "device",
                Verdict.KEY_CHANGED,
                "it differs",
                (Difference("device", "", None),),
                KEYS[1],
            ),
        ]
    ),
    "recording": lambda: record.recording(
        [RECORDED, replace(RECORDED, failed=True, kept=False), replace(RECORDED, compile_ns=0, headers=0)],
        record.summarise_recording([RECORDED, replace(RECORDED, failed=True, kept=False)], ()),
        whole=False,
    ),
    "recording, whole": lambda: record.recording(
        [RECORDED], record.summarise_recording([RECORDED], ()), whole=True
    ),
    "recording: nothing": lambda: record.recording([], record.summarise_recording([], ()), whole=False),
    "recorded": lambda: [
        _recorded(0, 0),
        _recorded(0, 2),
        _recorded(3, 2),
        _recorded(3, 0, sources=False, inner=True),
        *record.unrecorded([Unrecorded(f"reason {one}", one) for one in range(5)], whole=False),
        PassedOver("f", 0, "why").place,
        PassedOver("f", 2, "why").place,
    ],
    "layer": lambda: _layered(
        Layered("a", "t", LayerResult.EXPORTED),
        *(Layered("", "", LayerResult.LEFT, f"reason {one}") for one in "abcdd"),
        answers=3,
    ),
    "layer: nothing": lambda: [
        *_layered(answers=0),
        *_layered(answers=1, ended=ENDED),
        *_layered(Layered("a", "t", LayerResult.LEFT, "x"), answers=0),
    ],
    "run: hits": lambda: [
        *_ran(RAN, KEPT),
        *_ran(replace(RAN, build_ns=188 * MS, saved_ns=128 * MS)),
        *_ran(AHEAD),
        *_ran(AHEAD, wanted=1),
        *_ran(replace(AHEAD, saved_ns=0), wanted=1, learned=1),
    ],
    "run: noted": lambda: [
        *_ran(NOTED, wanted=1),
        *_ran(replace(NOTED, verdict=Verdict.POISONED), wanted=1),
        *_ran(NOTED, wanted=1, learned=1),
        run_lines.learning_line(2),
    ],
    "run: not kept": lambda: _ran(*LEFT, LEFT[0], PASSED, replace(KEPT, result=RunResult.FAILED), KEPT),
    "run: lines in names": lambda: _ran(replace(LEFT[0], program="a\nb", reason="c\nd", target="e\nf")),
    "run: refused": lambda: _ran(
        replace(KEPT, result=RunResult.REFUSED), ended=Ended(0, refused=("app (7)",)), inner=True
    ),
    "run: nothing": lambda: [
        *_ran(),
        *_ran(ended=LOADED),
        *_ran(ended=LOADED, binaries=2),
        *_ran(ended=LOADED, within=2, missed=1),
        *_ran(RAN, within=1, missed=1),
        *_ran(ended=Ended(0, alone="no socket")),
        *_ran(ended=Ended(0, refused=("app (process 7, user 0)",))),
    ],
    "bench": lambda: bench.bench(BENCHED),
    "bench, whole": lambda: bench.bench(BENCHED, whole=True),
    "bench: few pairs": lambda: bench.bench(
        [replace(PLAIN, verdict=BenchVerdict.UNDECIDED, starts=compared(CLEAR, Spread(9, 8, 99, 4)))]
    ),
    "bench: a busy machine": lambda: bench.bench(
        [
            replace(
                COMMAND, program=name, target=target, verdict=BenchVerdict.DEGRADED, reason=f"{share} % busy"
            )
            for name, target, share in (("a.cl", GPU, 9), ("b.cl", GPU, 90), ("c.cu", "cuda:sm_90", 49))
        ]
        + [PLAIN]
    ),
    "bench: caveats": lambda: [*bench.bench(ALIKE), *bench.bench([*ALIKE, COMMAND])],
    "bench: verdicts": lambda: bench.bench(
        [
            replace(BRIEF, verdict=verdict, reason=reason, starts=compared(Ratio(1.5, 0.98, 2.25)))
            for verdict in BenchVerdict
            for reason in ("", "the reason why")
        ],
        whole=True,
    ),
    "bench: outliers": lambda: [
        *bench.bench([replace(PLAIN, starts=compared(CLEAR, FAR))], whole=True),
        *bench.bench([replace(PLAIN, starts=compared(CLEAR, warm=replace(FAR, outliers=1)))], whole=True),
    ],
    "bench: nothing saved": lambda: bench.bench(
        [
            replace(BRIEF, break_even=BreakEven(S, S, 1), starts=compared(Ratio(1.1, 0.9, 1.3))),
            replace(BRIEF, break_even=BreakEven(0, S, 0), starts=compared(CLEAR)),
        ],
        whole=True,
    ),
    "settled": lambda: bench.settle(
        RUNS, SettleSummary(3, True, "", ADDED, notes=("jax was not moved",), environment=SHELL)
    ),
    "settled: warm before": lambda: bench.settle(RUNS[2:], SettleSummary(1, True, "", ())),
    "settled: missed": lambda: bench.settle(
        RUNS[2:], SettleSummary(1, True, "", (), missed=("nothing was warmed",))
    ),
    "settled: never": lambda: bench.settle([], SettleSummary(10, False, "", WROTE[:1], restless=WROTE)),
    "settled: failed": lambda: bench.settle(
        [RUNS[0], SettleRun(2, S, error=BROKEN)], SettleSummary(2, False, BROKEN, WROTE[:1])
    ),
    "file: bench": lambda: [export(".md", [*BENCHED, ODD], {"command": "gpucache bench x.cl"}).decode()],
    "file: bench again": lambda: [
        export(".md", [PLAIN], {"command": ["gpucache", "bench", "-D", "TEXT=a b"]}).decode(),
        export(".md", [PLAIN], {}).decode(),
    ],
    "exported": lambda: exported(
        Exported("futhark", "f.cache", 1, 4096, (Source("f.cu", 1),), "abc", ("It is read once.",))
    ),
}


def _drawn(name: str, width: int) -> str:
    file = io.StringIO()
    write(
        Console(file=file, width=width, color_system=None, highlight=False, markup=False, emoji=False),
        CASES[name](),
    )
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


def _text(name: str) -> str:
    narrow, wide = _drawn(name, PIPE_WIDTH if name.startswith(FILE) else 80), _drawn(name, PIPE_WIDTH)
    return narrow if narrow == wide else f"{narrow}--- through a pipe\n{wide}"


def _approved() -> dict[str, str]:
    parts = APPROVED.read_text(encoding="utf-8").split("=== ")[1:]
    return {name: text for name, _, text in (part.partition("\n") for part in parts)}


def test_every_text_is_approved() -> None:
    """The file has a text for each case and no other."""
    assert list(_approved()) == list(CASES)


@pytest.mark.parametrize("name", CASES)
def test_people_read_what_was_approved(name: str) -> None:
    """The text is that of the file, and on a terminal no line is too long for it."""
    assert _text(name) == _approved()[name]
    assert name.startswith(FILE) or all(len(line) <= 80 for line in _drawn(name, 80).splitlines())


if __name__ == "__main__":
    APPROVED.write_text("".join(f"=== {name}\n{_text(name)}" for name in CASES), encoding="utf-8")
