"""The one JSON document of a command, and every outcome as JSON values.

Names are snake_case with units; numbers of unknown size are null; an undecodable path is escaped.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from textwrap import indent
from typing import Any

from gpucache.model import Check, Device
from gpucache.outcomes import (
    Advice,
    Answer,
    CacheEntry,
    CacheState,
    Checked,
    Difference,
    EntryReport,
    EvictOutcome,
    EvictPlan,
    EvictSummary,
    Exported,
    Finding,
    Hit,
    Miss,
    Reach,
    VerifySummary,
    WarmOutcome,
    WarmSummary,
)
from gpucache.render.measured import bench_case as bench_case
from gpucache.render.schema import SCHEMA
from gpucache.units import format_instant, to_ms

_ROWS_IN_A_PIECE = 200


def document(
    command: str, outcomes: Iterable[Mapping[str, Any]], summary: Mapping[str, Any]
) -> Iterator[str]:
    """The document of a command that ran, piece by piece: of many outcomes no more is kept than text.

    It begins once all outcomes are there; the summary is read after them.
    """
    rows = [indent(_text(row), "    ") for row in outcomes]
    whole = _text({"schema": SCHEMA, "command": command, "outcomes": [], "summary": dict(summary)})
    before, after = whole.split("[]", 1)
    yield before
    yield "[\n" if rows else "["
    for start in range(0, len(rows), _ROWS_IN_A_PIECE):
        yield ",\n" if start else ""
        yield ",\n".join(rows[start : start + _ROWS_IN_A_PIECE])
    yield "\n  ]" if rows else "]"
    yield after


def error_document(command: str, message: str, exit_code: int) -> str:
    """The document of a command that could not run."""
    error = {"message": message, "exit_code": exit_code}
    return _text({"schema": SCHEMA, "command": command, "outcomes": [], "summary": {}, "error": error})


def device(row: Device) -> dict[str, Any]:
    """A target."""
    return {
        "target": None if row.target is None else str(row.target),
        "backend": row.backend,
        "name": row.name,
        "driver_version": row.driver_version,
        "available": row.available,
        "present": row.present,
        "detail": row.detail,
        "toolchain": dict(row.toolchain.fields) if row.toolchain else None,
    }


def warm(outcome: WarmOutcome) -> dict[str, Any]:
    """An item of warm."""
    return {
        "result": outcome.result.value,
        "program": outcome.program,
        "target": outcome.target or None,
        "variant": outcome.variant,
        "key": outcome.key,
        "compile_ms": None if outcome.compile_ns is None else to_ms(outcome.compile_ns),
        "size_bytes": outcome.size_bytes,
        "verdict": outcome.verdict.value if outcome.verdict else None,
        "reason": outcome.reason,
        "lacks_kernels": outcome.lacks_kernels,
        "log": outcome.log,
    }


def warm_summary(summary: WarmSummary) -> dict[str, Any]:
    """Counts of each result."""
    counts = {result.value: count for result, count in summary.counts.items()}
    return {**counts, "compile_ms": to_ms(summary.compile_ns), "size_bytes": summary.size_bytes}


def entry(one: CacheEntry) -> dict[str, Any]:
    """An entry of a cache."""
    return {
        "cache": one.cache,
        "key": one.key,
        "program": one.program,
        "target": one.target,
        "variant": one.variant,
        "artifact_kind": one.artifact_kind,
        "size_bytes": one.size_bytes,
        "created": format_instant(one.created_ns),
        "last_used": format_instant(one.last_used_ns),
        "path": one.path,
        "damage": str(one.damage) if one.damage else None,
        "fields": dict(one.fields),
    }


def report(one: EntryReport) -> dict[str, Any]:
    """An entry with everything it stores about itself."""
    return {
        **entry(one.entry),
        "key_fields": [{"label": field.label, "value": field.value} for field in one.key_fields],
        "payload": dict(one.payload),
        "provenance": [{"label": label, "value": value} for label, value in one.provenance],
        "compile_ms": _ms(one.compile_ns),
        "build_log": one.build_log,
        "tool_version": one.tool_version,
        "lowered_names": dict(one.lowered_names),
        "local_sizes": ["x".join(map(str, size)) for size in one.local_sizes],
        "checks": one.checks or None,
        "failure_table": [check(code, row) for code, row in enumerate(one.failures)],
    }


def check(code: int, one: Check) -> dict[str, Any]:
    """A check that was compiled into an entry."""
    return {
        "code": code,
        "file": one.file or None,
        "line": one.line,
        "function": one.function or None,
        "message": one.message,
    }


def state(one: CacheState) -> dict[str, Any]:
    """The state of a cache."""
    return {
        "cache": one.location.cache,
        "root": one.location.root,
        "decided_by": one.location.decided_by,
        "enabled": one.location.enabled,
        "limit_bytes": one.location.limit_bytes,
        "problems": list(one.location.problems),
        "entries": one.entries,
        "size_bytes": one.size_bytes,
        "files": one.files,
        "programs": one.programs,
        "damaged": one.damaged,
        "role": one.location.role,
        "findings": list(one.findings),
        "beside_bytes": one.beside_bytes,
    }


def exported(one: Exported) -> dict[str, Any]:
    """A cache file that was written."""
    return {
        "cache": one.system,
        "file": one.file,
        "entries": one.entries,
        "size_bytes": one.size_bytes,
        "key": one.key or None,
        "sources": [{"file": file, "entries": entries} for file, entries in one.sources],
        "notes": list(one.notes),
    }


def reach(one: Reach) -> dict[str, Any]:
    """Whether a cache of another system would answer, and if not what is in the way."""
    return {
        "cache": one.cache,
        "wanted": one.wanted,
        "verdict": one.verdict.value,
        "detail": one.detail,
        "nearest": one.nearest or None,
        "differences": [difference(item) for item in one.differences],
    }


def finding(one: Finding) -> dict[str, Any]:
    """A finding of verify."""
    return {
        "cache": one.cache,
        "entry": one.entry,
        "kind": one.kind.value,
        "wrong": one.kind.wrong,
        "program": one.program,
        "target": one.target,
        "detail": one.detail,
        "repaired": one.repaired,
    }


def verify_summary(summary: VerifySummary, outcomes: Iterable[Checked]) -> dict[str, Any]:
    """Counts, and what was tried and could not be told."""
    told = list(outcomes)
    return {
        "checked": summary.checked,
        "sound": summary.sound,
        "findings": summary.findings,
        "wrong": summary.wrong,
        "repaired": summary.repaired,
        "notes": [{"entry": one.entry, "note": note} for one in told for note in one.notes],
        "unchecked": [{"entry": one.entry, "note": one.unchecked} for one in told if one.unchecked],
    }


def removal(one: EvictOutcome, *, tried: bool = True) -> dict[str, Any]:
    """A planned removal, and whether it was made where it was tried."""
    return {
        **entry(one.removal.entry),
        "rule": one.removal.rule,
        "removed": tried and one.removed,
        "kept_because": one.kept.reason if one.kept else None,
    }


def evict_summary(summary: EvictSummary, left: Sequence[str]) -> dict[str, Any]:
    """What went and what stays, and what was left besides entries."""
    return {
        "removed": summary.removed,
        "freed_bytes": summary.freed_bytes,
        "kept": summary.kept,
        "kept_bytes": summary.kept_bytes,
        "left": list(left),
    }


def evict_plan(plan: EvictPlan, left: Sequence[str]) -> dict[str, Any]:
    """What would go and what would stay, and what would be left besides entries."""
    going = [one.entry for one in plan.removals if one.refused is None]
    freed = sum(one.size_bytes for one in going)
    chosen = sum(one.entry.size_bytes for one in plan.removals)
    return {
        "would_remove": len(going),
        "would_free_bytes": freed,
        "removed": 0,
        "freed_bytes": 0,
        "kept": plan.kept + len(plan.removals),
        "kept_bytes": plan.kept_bytes + chosen,
        "left": list(left),
    }


def difference(item: Difference) -> dict[str, Any]:
    """A field that differs, with both values."""
    return {"field": item.label, "before": item.left, "now": item.right}


def advice(one: Advice) -> dict[str, Any]:
    """What is worth knowing of the entries of one program."""
    return {
        "kind": one.kind.value,
        "program": one.program,
        "target": one.target,
        "detail": one.detail,
        "fields": list(one.fields),
        "entries": len(one.keys),
    }


def answer(one: Answer) -> dict[str, Any]:
    """Whether a program would hit, and if not why."""
    found = one.found
    miss = found if isinstance(found, Miss) else None
    return {
        "program": one.program,
        "target": one.target or None,
        "variant": one.variant,
        "consulted": list(one.consulted),
        "not_asked": [sentence for _, sentence in one.not_asked],
        "verdict": _verdict(found),
        "detail": "" if miss is None else miss.detail,
        "differences": [difference(item) for item in miss.differences] if miss else [],
        "key": str(found.key) if isinstance(found, Hit) else None,
        "nearest": str(miss.nearest) if miss and miss.nearest else None,
        "written": [{"key": key, "created": format_instant(when)} for when, key in one.written],
        "directory": one.directory,
        "elsewhere": _verdict(one.elsewhere) if one.elsewhere is not None else None,
        "layers": [
            {"cache": layer.cache, "state": layer.state.value, "detail": layer.detail} for layer in one.layers
        ],
    }


def _verdict(found: Hit | Miss) -> str:
    return found.verdict.value if isinstance(found, Miss) else "hit"


def _ms(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else to_ms(duration_ns)


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, indent=2, ensure_ascii=True)
