"""Questions that programs will ask, and the rows with which a root answers them at their first start.

They were recorded or noted with misses, or are those of PyOpenCL and of a C program for a source that was
named. Owns which fields of a request are recorded: those that an index compares. All that a process has of
its own, such as its environment and the places of libraries, is left out, and is this machine's when it is
asked again.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress

from gpucache.backends.cuda import BACKEND as CUDA
from gpucache.backends.opencl.options import pyopencl_include_dirs
from gpucache.engine.machine import select_target
from gpucache.engine.prepare import prepare
from gpucache.engine.stores import Stores
from gpucache.engine.warm.plan import WarmItem, retargeted
from gpucache.errors import GpucacheError, SourceError
from gpucache.host.file_stamps import files_seen
from gpucache.keys import digest
from gpucache.model import BuildRequest, Checks, Device, Language, Target
from gpucache.recording.builds import LIST_CAP, TEXT_CAP, Question
from gpucache.recording.reading import RecordingFolder
from gpucache.serve.answering import Rows
from gpucache.serve.devices import LABELS, Devices
from gpucache.serve.environment import Libraries
from gpucache.serve.index import DEVICE_FIELDS, DEVICES, SOURCE, is_compared, source_field
from gpucache.serve.nvrtc import OWN_NAME, keep_call, read_call
from gpucache.serve.opencl import DEFEATER, source_asked
from gpucache.serve.questions import Questions
from gpucache.serve.wire import Fields, Kind, WireError
from gpucache.store.interface import MissedRequest

_MARK = b"\n\n__constant int pyopencl_defeat_cache_%s = 0;" % (b"0" * 32)
"""PyOpenCL's mark, as ``DEFEATER`` finds it, with zeros for the made-up part."""
_ANYWHERE = "/nonexistent/anywhere"
"""The directory of a program that has none of its headers there."""
_VERSION, _LIBRARY, _HEADERS = 3, 4, 7
"""The places of fields in a question to NVRTC."""
_RETARGETED = ("cuda", "hip")
"""The backends whose targets are in the options of a question."""
Retargeting = tuple[str, str] | None
"""The names of the recorded target, and of the one in its place; None if it stays."""


def recorded(kind: Kind, question: Sequence[bytes]) -> tuple[Question, bytes] | None:
    """A question as it is recorded, and its source.

    None if it is larger than a recording keeps, or has headers in memory, as no index answers that.
    """
    if kind is Kind.COMPILE and question[_HEADERS] != b"0":
        return None
    place = source_field(kind)
    source = question[place]
    if mark := DEFEATER.search(source):  # each start of the program makes up another one
        source = source[: mark.start(1)] + b"0" * len(mark[1]) + source[mark.end(1) :]
    fields = tuple(
        _text(field) if is_compared(kind, at) and at != place else "" for at, field in enumerate(question)
    )
    if len(fields) > LIST_CAP or any(len(field) > TEXT_CAP or "\0" in field for field in fields):
        return None
    return Question(int(kind), _text(question[1]), fields, digest(source)), source


def keep_recorded(
    stores: Stores, folders: Sequence[RecordingFolder], devices: Sequence[Device], targets: Sequence[str]
) -> None:
    """Write rows for all questions of recordings whose entries are in the user's root."""
    questions = Questions(stores, Libraries(), Devices(probe=lambda: devices))
    found = ((folder, build, seen) for folder in folders for build, seen in folder.recording.rows())
    for folder, build, seen in found:
        for question in seen.questions:
            with suppress(SourceError, WireError, ValueError):  # a recording may say anything
                source = folder.content(question.source)
                for target in _targets(build.target, devices, targets):
                    kind, fields = asked_again(question, source, devices, os.environ, target)
                    made_up = kind is Kind.COMPILE and build.made_up
                    call = read_call(Fields(fields), build.file_name) if made_up else None
                    questions.add(kind, fields, call)
    questions.keep_rows()


def keep_named(stores: Stores, items: Iterable[WarmItem], devices: Sequence[Device]) -> None:
    """Write rows for programs that build the named sources with exactly these options.

    Those of PyOpenCL and of OpenCL's own functions, and calls of our library beside the source and elsewhere:
    with the directories that were named, and with the source's own only if these are not enough. Not other
    programs of NVRTC, whose file names are in their keys.
    """
    questions, kept = Questions(stores, Libraries(), Devices(probe=lambda: devices)), Rows(stores)
    for item in items:
        request, toolchain = item.request, item.toolchain
        if request is None or toolchain is None or request.checks is not Checks.NONE:
            continue
        with suppress(GpucacheError, WireError):
            if request.target.backend == "cuda":
                for folders in dict.fromkeys((request.include_dirs[1:], request.include_dirs)):
                    calls = [_call(request, folders, cwd, devices) for cwd in (request.cwd, _ANYWHERE)]
                    made = [
                        (asked, prepare(CUDA, one, toolchain, os.environ, stores)) for asked, one in calls
                    ]
                    if not any(keep_call(kept, stores, *one) for one in made):
                        break
            for device in (device for device in devices if device.target == request.target):
                if device.backend == "opencl":
                    for kind, question in _builds(request, device):
                        questions.add(kind, question)
    questions.keep_rows()


def _builds(request: BuildRequest, device: Device) -> Iterator[tuple[Kind, tuple[bytes, ...]]]:
    """The builds of a program by a C program, and by PyOpenCL with and without its mark; raises WireError."""
    source, given = source_asked(request.program, request.options)
    options = " ".join(given)
    folders = () if request.program.language is Language.SPIR_V else pyopencl_include_dirs()
    ours = [" ".join(filter(None, (options, "-I", folder))) for folder in folders]
    for spelled, text in (
        (options, source),
        *((one, source + mark) for one in ours for mark in (b"", _MARK)),
    ):
        fields = ("", "", "", spelled, "", "1", *_facts(device))
        yield asked_again(Question(Kind.BUILD, request.cwd, fields, ""), text, [device], os.environ)


def _call(
    request: BuildRequest, folders: tuple[str, ...], cwd: str, devices: Sequence[Device]
) -> tuple[tuple[bytes, ...], BuildRequest]:
    """The question and the request of a call of ``gpucache.cuda`` for a program; raises WireError."""
    kind = "" if request.artifact_kind == CUDA.artifact_kind(request.target) else request.artifact_kind
    names = request.name_expressions
    spelled = (request.target.name, kind, "list", *request.options, "-I", *folders)
    fields = ("", "", "", "", "", OWN_NAME, "", "0", str(len(spelled)), *spelled, str(len(names)), *names)
    asked = Question(Kind.COMPILE, cwd, fields, "")
    _, question = asked_again(asked, request.program.source, devices, os.environ)
    return question, request._replace(include_dirs=folders, headers=(), cwd=cwd, searches_cwd=True)


def keep_missed(stores: Stores, missed: Iterable[MissedRequest], devices: Sequence[Device]) -> None:
    """Write rows for requests that programs missed and that have entries by now."""
    questions = Questions(stores, Libraries(), Devices(probe=lambda: devices))
    for one in missed:
        question = Question(Kind.BUILD, one.request.cwd, one.question, "")
        mark = "".join(one.question[SOURCE : SOURCE + 1]).encode("utf-8", "surrogateescape")
        environ = {**os.environ, **dict(one.environment)}
        with suppress(WireError, ValueError):
            questions.add(*asked_again(question, one.request.program.source + mark, devices, environ))
    questions.keep_rows()


def _facts(device: Device) -> tuple[str, ...]:
    now = dict(device.toolchain.fields) if device.toolchain else {}
    return next(iter(device.files), ""), *(now.get(label, "") for label in LABELS)


def _targets(recorded: str, devices: Sequence[Device], texts: Sequence[str]) -> Iterator[Retargeting]:
    before = Target.parse(recorded)
    for text in texts if before.backend in _RETARGETED else ():
        with suppress(GpucacheError):
            after = select_target(text, devices).target
            if after is not None and after.backend == before.backend:
                yield before.name, after.name
    if not texts or before.backend not in _RETARGETED:
        yield None


def asked_again(
    question: Question,
    source: bytes,
    devices: Sequence[Device],
    environ: Mapping[str, str],
    target: Retargeting = None,
) -> tuple[Kind, tuple[bytes, ...]]:
    """The request of a program on this machine; raises WireError if its devices are not here."""
    kind = Kind(question.kind) if question.kind in (Kind.BUILD, Kind.COMPILE) else None
    fields = [os.fsencode(field) for field in question.fields]
    if kind is None or len(fields) <= source_field(kind) + 1:
        raise WireError("a question has too few fields")
    variables = (f"{name}={value}\0" for name, value in environ.items())
    fields[:3] = map(os.fsencode, (files_seen(), question.directory, "".join(variables)))
    fields[source_field(kind)] = source
    if not (_put_nvrtc(fields, devices, target) if kind is Kind.COMPILE else _put_devices(fields, devices)):
        raise WireError("its devices are not on this machine")
    return kind, tuple(fields)


def _put_devices(fields: list[bytes], devices: Sequence[Device]) -> bool:
    """Put the devices of this machine in the place of the recorded ones, if all are here."""
    for at in range(DEVICES, len(fields), DEVICE_FIELDS):
        facts = dict(zip(LABELS, map(os.fsdecode, fields[at + 1 : at + DEVICE_FIELDS]), strict=False))
        found = _device(facts, devices)
        if found is None or not found.files:
            return False
        fields[at : at + DEVICE_FIELDS] = map(os.fsencode, _facts(found))
    return True


def _device(facts: Mapping[str, str], devices: Sequence[Device]) -> Device | None:
    """The device with these facts, or else the same one with another driver."""
    for is_exact in (True, False):
        for device in devices:
            toolchain = device.toolchain
            labels = LABELS if is_exact or toolchain is None else toolchain.identity
            wanted = {label: value for label, value in facts.items() if label in labels}
            if toolchain is not None and wanted and wanted.items() <= dict(toolchain.fields).items():
                return device
    return None


def _put_nvrtc(fields: list[bytes], devices: Sequence[Device], target: Retargeting) -> bool:
    """Put the NVRTC or hipRTC of this machine in the place of the recorded one, if it is here."""
    mark = b"hip " if fields[_VERSION].startswith(b"hip ") else b""
    backend, label = ("hip", "hipRTC version") if mark else ("cuda", "NVRTC version")
    for device in devices:
        if device.backend == backend and device.toolchain and device.files:
            fields[_VERSION] = mark + dict(device.toolchain.fields)[label].encode()
            fields[_LIBRARY] = os.fsencode(device.files[0])
            for at in range(_HEADERS + 2, len(fields)) if target else ():
                fields[at] = os.fsencode(retargeted(os.fsdecode(fields[at]), *(target or ("", ""))))
            return True
    return False


def _text(field: bytes) -> str:
    return field.decode("utf-8", "surrogateescape")
