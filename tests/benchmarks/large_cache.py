"""Makes a large cache fast: real entries with histories, written straight into the layout.

    python -m tests.benchmarks.large_cache ROOT --programs 20000 --entries 5

Entries of a program differ in one macro, and are built in one order. Nothing is compiled or synced.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpucache.backends.interface import load_backend
from gpucache.engine.prepare import Prepared, prepare
from gpucache.keys import digest
from gpucache.model import (
    ArtifactKind,
    BuildRequest,
    Entry,
    EntryDetail,
    EntryHead,
    Program,
    Target,
    Toolchain,
)
from gpucache.store import layout
from gpucache.store.format import encode

CREATED_NS = 1_700_000_000 * 10**9
TARGET = Target.parse("cuda:compute_90")
# Without an identity, so that no entry is stale next to the installed toolchain.
TOOLCHAIN = Toolchain("nvrtc", (("NVRTC version", "13.0"), ("architecture", "compute_90")), ())


def wanted(program: int, value: int) -> Prepared:
    """The request for the entry of a program with a value of its macro."""
    name = f"folder-{program % 100}/kernel-{program}.cu"
    source = f'extern "C" __global__ void kernel_{program}(int *out) {{ *out = VALUE; }}\n'.encode()
    backend = load_backend(TARGET.backend)
    request = BuildRequest(
        program=Program(name, backend.language, source),
        target=TARGET,
        options=(f"-DVALUE={value}",),
        artifact_kind=ArtifactKind.PTX,
    )
    return prepare(backend, request, TOOLCHAIN, {})


def make_cache(
    root: Path, programs: int, entries_each: int, *, first: int = 0, payload_bytes: int = 4096
) -> None:
    """Fill a new root with sound entries and the history of each program, by its number."""
    root.mkdir(0o700, parents=True)
    for prefix in range(256):
        root.joinpath(*layout.ENTRIES, f"{prefix:02x}").mkdir(0o700, parents=True)
    programs_folder = root.joinpath(*layout.PROGRAMS)
    programs_folder.mkdir(0o700)
    for folder in (root, *(path for path in root.rglob("*") if path.is_dir())):
        folder.chmod(0o700)
    for program in range(first, first + programs):
        events = list(_entries(root, program, entries_each, payload_bytes))
        history = layout.history_name(str(events[0]["program"]))
        _write(
            programs_folder / history,
            "".join(f"{json.dumps(event, separators=(',', ':'))}\n" for event in events).encode(),
        )


def _entries(root: Path, program: int, count: int, payload_bytes: int) -> Iterator[dict[str, object]]:
    """Write the entries of a program; the events of their builds."""
    for value in range(count):
        prepared = wanted(program, value)
        entry = _entry(prepared, value, payload_bytes)
        folder = root.joinpath(*layout.entry_folder(entry.key))
        _write(folder / layout.entry_name(entry.key), encode(entry))
        event = {"when_ns": entry.head.created_ns, "what": "built", "key": entry.key.hex}
        yield {"program": entry.head.program, **event, "target": entry.head.target, "why": ""}


def _entry(prepared: Prepared, value: int, payload_bytes: int) -> Entry:
    request, inputs = prepared.request, prepared.compilation.inputs
    payload = f".version 9.0\n.target sm_90\n// {request.program.name} {value}\n".encode()
    payload += b"\tadd.s32 \t%r1, %r2, %r3;\n" * ((payload_bytes - len(payload)) // 25)
    head = EntryHead(
        program=request.program.name,
        target=str(request.target),
        artifact_kind=request.artifact_kind.value,
        created_ns=CREATED_NS + value,
        compile_ns=1_000_000,
        payload_sha256=digest(payload),
        language=request.program.language.value,
        options=inputs.options,
        toolchain=inputs.toolchain.fields,
        toolchain_identity=inputs.toolchain.identity,
    )
    return Entry(prepared.key, head, EntryDetail(prepared.fields), payload)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    path.chmod(0o600)


def main(arguments: Sequence[str] | None = None) -> None:
    """Make the cache that the command line asks for."""
    parser = argparse.ArgumentParser(description="Make a large cache of small entries.")
    parser.add_argument("root", type=Path)
    parser.add_argument("--programs", type=int, default=20_000)
    parser.add_argument("--entries", type=int, default=5, help="entries of each program")
    given = parser.parse_args(arguments)
    make_cache(given.root, given.programs, given.entries)


if __name__ == "__main__":
    main()
