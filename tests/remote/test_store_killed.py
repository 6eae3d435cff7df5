"""Kill -9 before each system call of a program that fetches from a store or sends to one."""

import sys
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from gpucache.answers.lookup import Hit
from gpucache.engine.hits import find
from gpucache.engine.lookup import get_or_build
from gpucache.engine.stores import Stores
from gpucache.engine.verify import run_verify
from gpucache.model import Entry
from gpucache.remote.store import RemoteStore
from gpucache.settings import Remote
from gpucache.store.directory import DirectoryStore
from tests.engine.conftest import Compiler, make_ready
from tests.faults.conftest import own
from tests.faults.tracing import killed_before_call
from tests.remote.fleet import Fleet
from tests.trials import tell, trials

pytestmark = [
    pytest.mark.slow,
    pytest.mark.stress,
    pytest.mark.skipif(sys.platform != "linux", reason="counts system calls as Linux does"),
]
_READY = make_ready("kernel void show() {}")


@pytest.fixture(name="fleet")
def _fleet(tmp_path: Path) -> Fleet:
    fleet = Fleet(tmp_path)
    fleet.others()
    fleet.key()
    return fleet


def _machine(fleet: Fleet, root: str, told: list[str]) -> tuple[Stores, RemoteStore]:
    remote = RemoteStore(
        Remote(str(fleet.store), writes=True), fleet.key().text, fleet.place / "ci", told.append
    )
    return Stores(user=DirectoryStore(fleet.place / root, writable=True), remote=lambda: remote), remote


def _made(fleet: Fleet) -> Entry:
    stores, _ = _machine(fleet, "maker", [])
    get_or_build(stores._replace(remote=None), _READY, Compiler())
    assert stores.user is not None
    scanned = stores.user.look_at(_READY.key)
    assert scanned is not None
    entry = stores.user.check(scanned)
    assert isinstance(entry, Entry)
    return entry


def _finds(fleet: Fleet, root: str) -> Hit | None:
    """A machine's hit, from an empty memory; the store is honest."""
    told: list[str] = []
    stores, _ = _machine(fleet, root, told)
    found = find(stores, _READY)
    assert told == []
    return found if isinstance(found, Hit) else None


def _killed(operation: Callable[[], object], after: Callable[[], object]) -> int:
    """The number of kills of an operation, each at a later system call; ``after`` checks the traces."""
    for done, number in enumerate(count(1, trials(7, 1))):
        died = killed_before_call(operation, number)
        after()
        if not died:
            return done
    raise AssertionError


def test_a_program_killed_while_it_keeps_a_fetched_entry_loses_that_at_most(fleet: Fleet) -> None:
    """The root is sound at any time, and the next program fetches the entry again or hits it."""
    entry = _made(fleet)
    _, remote = _machine(fleet, "maker", [])
    remote.send(entry)
    remote.flush()
    roots = iter(f"root-{number}" for number in count())
    now = [next(roots)]

    def sound() -> None:
        root, now[0] = now[0], next(roots)
        cache = own(DirectoryStore(fleet.place / root, writable=True))
        assert not [finding for one, _ in run_verify(cache, list(cache.scan())) for finding in one.findings]
        for place in ("remote", "local"):
            found = _finds(fleet, root)
            assert found is not None and found.payload == entry.payload, place

    times = _killed(lambda: _finds(fleet, now[0]), sound)
    tell("kill -9 before each system call of a fetch", times, 0)


def test_a_program_killed_while_it_sends_leaves_all_of_an_entry_or_nothing(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No reader sees half of it, and the next program sends it."""
    entry = _made(fleet)
    one_thread = lambda call, items, *_, **__: map(call, items)  # noqa: E731 - which makes all calls
    monkeypatch.setattr("gpucache.remote.folder.in_parallel", one_thread)
    _, remote = _machine(fleet, "maker", [])

    def sent() -> None:
        found = _finds(fleet, "reader")
        assert found is None or found.payload == entry.payload
        _machine(fleet, "maker", [])[1]._create([entry])
        assert _finds(fleet, "reader") is not None
        for path in (*fleet.objects(), *fleet.entries("reader")):
            path.unlink()

    times = _killed(partial(remote._create, [entry]), sent)
    tell("kill -9 before each system call of a send", times, 0)
