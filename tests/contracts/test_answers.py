"""Reports about the forms and damages of every system's caches: ``approved.txt`` next to its ``build.py``.

A system has a table of CASES, which put bytes at an empty place, and one of PLACES, which are environments
with their files. Each case also asserts that a repair and an eviction did what they report.

python -m tests.contracts.test_answers   writes the files again; read the changes before committing them
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import ExitStack, chdir
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import pytest

from gpucache.answers.entries import CacheEntry, EntryReport, Location
from gpucache.answers.verify import Checked
from gpucache.caches import places
from gpucache.caches.interface import Cache
from gpucache.caches.registry import SYSTEMS, of_others
from gpucache.errors import GpucacheError
from tests.caches.opened import HOUR_NS
from tests.contracts.examples import EXAMPLES, OLD_NS, age

_NEIGHBOUR = 7
"""The number of the entry that shows the owner of the place."""
_AGED = " (after an hour)"
_CACHES = Path(__file__).parents[1] / "caches"


def _module(name: str) -> Any:
    """The ``build`` of a system; None if it has none."""
    folder = {"cuda": "cuda_driver"}.get(name, name.replace("-", "_").replace(".", "_"))
    found = _CACHES / folder / "build.py"
    return import_module(f"tests.caches.{folder}.build") if found.is_file() else None


def _tables(table: str) -> Iterator[tuple[str, str]]:
    for name in SYSTEMS:
        yield from ((name, case) for case in getattr(_module(name), table, {}))


CASES, PLACES = list(_tables("CASES")), list(_tables("PLACES"))


def _said(checked: Checked) -> Iterator[str]:
    yield from (f"{one.kind}: {one.detail}" for one in checked.findings)
    yield from (f"note: {note}" for note in checked.notes)


def _described(cache: Cache, entry: CacheEntry, early: Set[str]) -> Iterator[str]:
    """All that is reported about an entry, except its times and sizes."""
    shown = ("program", "target", "artifact_kind", "variant", "producer", "gone", "stays")
    told = [f"{name}={value}" for name in shown if (value := getattr(entry, name))]
    yield " ".join([f"entry {entry.key[:16]}", *told])
    yield from (f"  {label}: {value}" for label, value in (*entry.toolchain, *entry.fields))
    if entry.damage:
        yield f"  damaged by a scan: {entry.damage.kind}"
    yield from (f"  {line}{_AGED * (line not in early)}" for line in _said(cache.check(entry)))
    try:
        payload = cache.extract(entry)
        digest = hashlib.sha256(payload).hexdigest()[:12]
        yield f"  payload of {len(payload)} bytes, {digest}" if payload[:6] != b"SQLite" else "  a database"
    except GpucacheError:
        yield "  no payload"
    if "key" in of_others(cache.name).wanted:
        asked = {"key": (entry.key.encode(), entry.key[::-1].encode())}
        yield "  asked: {}, for another key: {}".format(*(one.verdict for one in cache.explain(asked)))


def _reported(report: EntryReport) -> Iterator[str]:
    yield from (f"  key: {one.label}: {one.value}" for one in report.key_fields)
    yield from (f"  payload: {label}: {value}" for label, value in report.payload)


def _unlike(cache: Cache, entry: CacheEntry, other: CacheEntry) -> str:
    """The labels of a report that two entries do not share."""
    first, second = (
        {one.label: one.value for one in cache.report(each).key_fields} for each in (entry, other)
    )
    return ", ".join(label for label in first if first[label] != second.get(label))


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_symlink() or not path.is_dir()}


def _told(name: str, case: str, folder: Path) -> Iterator[str]:
    """The report about a case, its repair, and its eviction."""
    example, place = EXAMPLES[name], folder / EXAMPLES[name].place
    if not case.startswith("alone: "):
        example.add(place, _NEIGHBOUR)
    location = Location(name, str(place), "--cache", enabled=True)
    open_at: Callable[[int], Cache] = lambda now_ns: of_others(name).open(location, lambda: now_ns)  # noqa: E731
    others = [(one.key, one.path) for one in open_at(OLD_NS).scan()]
    sound = _files(folder)
    _module(name).CASES[case](place)
    age(folder)
    young, cache = (open_at(OLD_NS + hours * HOUR_NS // 2) for hours in (1, 4))
    entries = sorted(one for one in cache.scan() if (one.key, one.path) not in others)
    other = [one for one in cache.scan() if (one.key, one.path) in others]
    left, found = list(cache.leftovers()), [(one, cache.check(one)) for one in entries]
    if not of_others(name).recognises(place):
        yield "not recognised"
    for entry in entries:
        yield from _described(
            cache, entry, {line for one in young.find(entry.key) for line in _said(young.check(one))}
        )
        if other and not entry.damage:
            yield f"  unlike another: {_unlike(cache, entry, other[0])}"
        if case == next(iter(_module(name).CASES)):
            yield from _reported(cache.report(entry))
    early = {line for one in young.leftovers() for line in _said(one)}
    for one in left:
        yield from (f"beside: {line}{_AGED * (line not in early)}" for line in _said(one))
    before = _files(folder)
    fixed = [cache.repair(checked, entry) for entry, checked in found] + [
        cache.repair(one, None) for one in left
    ]
    for checked in fixed:
        for finding in checked.findings:
            yield f"{'repaired' if finding.repaired else 'not repaired'}: {finding.kind}"
            again = open_at(OLD_NS + 2 * HOUR_NS)
            kinds = [(each.entry, each.kind) for one in _all(again) for each in one.findings]
            assert finding.repaired is ((finding.entry, finding.kind) not in kinds), finding
    yield from (f"  gone: {path}" for path in sorted(before - _files(folder)))
    cache = open_at(OLD_NS + 2 * HOUR_NS)
    assert sound <= _files(folder)
    assert set(others) <= {(one.key, one.path) for one in cache.scan() if not one.damage}
    stays = [kept.reason for one in list(cache.scan()) if (kept := cache.remove(one, "--all"))]
    cache.finish_removals()
    yield from (f"stays: {reason}" for reason in stays)
    yield from (f"  left by an eviction: {path.relative_to(folder)}" for path in sorted(folder.rglob("*")))


def _all(cache: Cache) -> Iterator[Checked]:
    for entry in cache.scan():
        yield cache.check(entry)
    yield from cache.leftovers()


def _where(name: str, case: str, folder: Path) -> Iterator[str]:
    """The locations in an environment, ``{tmp}`` in which is a directory with some files."""
    environ, *there = _module(name).PLACES[case]
    for path in there:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).mkdir() if path.endswith("/") else EXAMPLES[name].add(folder / path, 0)
    with ExitStack() as stack:
        for asked in ("_ground", "_room"):  # these report on this machine's disks, and on its user
            stack.enter_context(patch.object(places, asked, lambda *_, **__: ()))
        stack.enter_context(patch.object(os, "access", lambda *_, **__: True))
        stack.enter_context(chdir(folder))
        stack.enter_context(patch.object(places, "_on_record", lambda _: f"{folder}/record"))
        for one in of_others(name).locations(
            {key: value.format(tmp=folder) for key, value in environ.items()}
        ):
            told = [one.role, "" if one.limit_bytes is None else f"up to {one.limit_bytes} bytes"]
            told += ["" if one.enabled else "not in use"]
            yield ", ".join(filter(None, (f"{one.root} by {one.decided_by}", *told)))
            yield from (f"  {problem}" for problem in one.problems)


def _moved() -> str:
    """The directory below which tests find the places that no variable moves."""
    found = places.Temporary("", user=False, folder="/var").find({})
    assert found
    return str(found[0]).removesuffix("/var")


def _text(name: str, case: str, table: str) -> str:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir(mode=0o700)
        lines = (_told if table == "CASES" else _where)(name, case, root)
        text = "".join(f"{line}\n" for line in lines).replace(str(root), "ROOT").replace(_moved(), "")
        return re.sub(r"\(\*\*\*.*\);", "(what SQLite says);", text)


def _file(name: str) -> Path:
    return Path(_module(name).__file__).with_name("approved.txt")


def _approved(name: str) -> Mapping[str, str]:
    parts = _file(name).read_text(encoding="utf-8").split("=== ")[1:]
    return {case: text for case, _, text in (part.partition("\n") for part in parts)}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_a_form_or_damage_is_told_as_approved(name: str, case: str) -> None:
    """Entries, findings and answer are as approved; a repair fixes and an eviction leaves what it reports."""
    assert _text(name, case, "CASES") == _approved(name)[case]


@pytest.mark.parametrize(("name", "case"), PLACES)
def test_an_environment_leads_where_it_was_approved(name: str, case: str) -> None:
    """The places in their order, the origin of each, whether it is in use, and its problems."""
    assert _text(name, case, "PLACES") == _approved(name)[f"place: {case}"]


@pytest.mark.parametrize("name", sorted({name for name, _ in (*CASES, *PLACES)}))
def test_no_approved_text_is_left_over(name: str) -> None:
    """The file has a text for each case and no other."""
    cases = [case for one, case in CASES if one == name]
    assert list(_approved(name)) == [*cases, *(f"place: {case}" for one, case in PLACES if one == name)]


def _write() -> None:
    os.umask(0o022)
    for name in sorted({name for name, _ in (*CASES, *PLACES)}):
        text = [f"=== {case}\n{_text(name, case, 'CASES')}" for one, case in CASES if one == name]
        text += [f"=== place: {case}\n{_text(name, case, 'PLACES')}" for one, case in PLACES if one == name]
        _file(name).write_text("".join(text), encoding="utf-8")


if __name__ == "__main__":
    _write()
