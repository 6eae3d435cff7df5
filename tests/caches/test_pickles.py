"""Pickles that import what their owner does not write, in all the ways in which opcodes can hide that."""

import os
import pickle
from collections import Counter, OrderedDict
from pathlib import Path

import pytest

from gpucache.answers.entries import FindingKind
from gpucache.caches import pickles
from gpucache.caches.registry import of_others
from tests.caches.inductor import build as inductor
from tests.caches.manifests import build as manifests
from tests.caches.numba import build as numba
from tests.caches.opened import kinds, opened
from tests.caches.pickled import build as pickled
from tests.caches.pytools import build as pytools
from tests.caches.tinygrad import build as tinygrad

NAMES = pickles.Names.of("the owner", r"collections:(?:Counter|OrderedDict)", r"builtins:list")


class _Evil:
    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, ("false",)


def _t(text: bytes) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text


def _nested(depth: int) -> bytes:
    """A pickle in bytes of another one, again and again, each of the oldest protocol with bytes."""
    inner = b"cposix\nsystem\n."
    for _ in range(depth):
        inner = b"B" + len(inner).to_bytes(4, "little") + inner + b"."
    return inner


_RUN = _t(b"false") + b"\x85R."
POISONED = {
    **{f"protocol {one}": pickle.dumps(_Evil(), one) for one in range(6)},
    "a name by memo": b"\x80\x04" + _t(b"posix") + b"\x940" + _t(b"system") + b"\x940h\x00h\x01\x93" + _RUN,
    "a name below others": b"\x80\x04" + _t(b"posix") + _t(b"system") + b"N0\x93" + _RUN,
    "a known name that is gone again": b"\x80\x04"
    + _t(b"posix") + _t(b"system") + _t(b"builtins") + _t(b"list") + b"00\x93" + _RUN,
    "INST": b"(S'false'\niposix\nsystem\n.",
    "OBJ": b"(cposix\nsystem\nS'false'\no.",
    "an extension": b"\x80\x02\x82\x01)R.",
    "a dotted name of a known module": b"\x80\x04" + _t(b"builtins") + _t(b"list.x.system") + b"\x93" + _RUN,
    "getattr": b"\x80\x04cbuiltins\ngetattr\n(cbuiltins\nlist\nX\x01\x00\x00\x00atR.",
    "before a cut": pickle.dumps(_Evil(), 2)[:-1],
    "a pickle inside": pickle.dumps([b"data", pickle.dumps(_Evil(), 4)]),
    "an old pickle inside": pickle.dumps([pickle.dumps(_Evil(), 0)]),
    "two pickles inside": pickle.dumps(pickle.dumps(3) + pickle.dumps(_Evil(), 4)),
    "a pickle inside that cannot be read": pickle.dumps(b"\x80\x04I0x10\n0" + pickle.dumps(_Evil(), 4)[2:]),
    "an old pickle inside whose first import is of a module with a hyphen": pickle.dumps(
        b"clib-dynload\n__name__\n0cposix\nsystem\n(S'false'\ntR."
    ),
    "an old pickle inside that is cut": pickle.dumps(b"clib-dynload\n__name__\n0cposix\nsystem\n"),
    "an archive as PyTorch writes it": pickle.dumps(b"PK\x03\x04" + bytes(26)),
    "pickles inside of pickles": _nested(12),
    "an old pickle inside that cannot be read": pickle.dumps(b"I0x10\n0cposix\nsystem\n."),
}  # fmt: skip
SOUND = {
    "data": pickle.dumps({"a": (1, 2.5, None, b"\x7fELF", "posix system")}),
    "names": pickle.dumps([Counter("abc"), OrderedDict(a=1)]),
    "names by memo": pickle.dumps([Counter("abc"), Counter("d"), OrderedDict(a=1), Counter("e")], 4),
    "names of protocol 2": pickle.dumps([Counter("abc"), Counter("d")], 2),
    "text inside": pickle.dumps(
        [b"constexpr int f(\nx\n)", b"// PTX", b"BC\xc0\xde", b"import os\n", b"test", b"name", b"build(x)\n"]
    ),
    "a known pickle inside": pickle.dumps(pickle.dumps(Counter("a"))),
    "a tensor inside": pickle.dumps(b"".join(map(pickle.dumps, range(5))) + b"\x80\x02" + bytes(6)),
    "bytes of a number": pickle.dumps(b"\x00\x00\x80\x3f" * 4),
}


@pytest.mark.parametrize("way", POISONED)
def test_what_the_owner_does_not_write_is_untrusted(way: str) -> None:
    """Whether it is damaged as well, as the import runs first."""
    found = pickles.problem(POISONED[way], NAMES)
    assert found is not None and found.kind is FindingKind.UNTRUSTED


def test_code_that_an_owner_writes_for_a_program_is_noted_as_such() -> None:
    """It is no fault of an untouched cache, and no entry that may move."""
    names = pickles.Names.of("the owner", "builtins:list", of_code=r"cloud:_\w+")
    found = pickles.problem(b"\x80\x02ccloud\n_make_class\n)R.", names)
    assert found is not None and found.kind is FindingKind.UNSUPPORTED


def test_a_newer_protocol_is_no_pickle() -> None:
    """Its opcodes are not known."""
    found = pickles.problem(b"\x80\x06N.", NAMES)
    assert found is not None and found.kind is FindingKind.CORRUPT


@pytest.mark.parametrize("way", SOUND)
def test_data_and_known_names_are_sound(way: str) -> None:
    """So are bytes that only begin like a pickle's."""
    assert pickles.problem(SOUND[way], NAMES) is None


_BUNDLE = manifests.mega_cache(pickle.dumps(_Evil()))


def _row(root: Path) -> None:
    path = pytools.put(root)
    pytools.poison(path, pickle.dumps(("key", _Evil())))


def _row_of_tinygrad(root: Path) -> None:
    tinygrad.poison(tinygrad.put(root), pickle.dumps(_Evil()))


def _version(root: Path) -> None:
    numba.put(root).with_suffix(".1.nbc").write_bytes(pickle.dumps(("scale", "object", _Evil())))


@pytest.mark.parametrize(
    ("system", "lay"),
    [
        ("inductor", lambda root: inductor.put(root, data=pickle.dumps(_Evil()))),
        ("inductor", lambda root: inductor.put(root, data=pickle.dumps(_Evil()), kind="aotautograd")),
        ("inductor", lambda root: inductor.put(root).write_bytes(pickle.dumps(_Evil()))),
        ("pytools", _row),
        ("tinygrad", _row_of_tinygrad),
        ("numba", _version),
        ("keops", lambda root: pickled.put_keops(root, pickle.dumps(_Evil()))),
        ("flydsl", lambda root: pickled.put_flydsl(root, data=pickle.dumps(_Evil()))),
        ("flydsl", lambda root: pickled.put_flydsl(root, data=pickled.artifact("os:system"))),
        (
            "unsloth",
            lambda root: manifests.put_bundle(root, data=manifests.mega_cache(pickle.dumps(_Evil()))),
        ),
        ("hidet", lambda root: pickled.put_hidet(root, pickle.dumps(_Evil()))),
    ],
)
def test_a_poisoned_entry_is_found_and_a_repair_removes_it(system: str, lay: object, tmp_path: Path) -> None:
    """Its owner then makes it anew."""
    assert callable(lay)
    lay(tmp_path)
    cache = opened(of_others(system), tmp_path)
    (entry,) = cache.scan()
    checked = cache.check(entry)
    assert kinds(checked) == [FindingKind.UNTRUSTED]
    assert cache.repair(checked, entry).findings[0].repaired
    assert not [one for left in cache.scan() for one in cache.check(left).findings]
