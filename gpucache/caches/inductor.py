"""TorchInductor's caches of compiled graphs, among temporary files unless a variable names another place.

Source: PyTorch 2.15, ``torch/_inductor/codecache.py``, ``torch/_inductor/runtime/cache_dir_utils.py`` and
``torch/_functorch/_aot_autograd/autograd_cache.py``; no cache that PyTorch wrote was at hand. Below
``fxgraph/`` and ``aotautograd/`` lies ``XX/KEY/``, where a key is ``f`` or ``a`` and 51 digits of a SHA-256
in base 32, and in it a pickle for each set of guards, called by the same digits of the SHA-256 of what it
holds. Pickles run code where they are loaded; they are never unpickled here. Generated code, its libraries,
what tuning found and Triton's kernels lie beside, and are left alone. Nothing is ever removed.
"""

import hashlib
from base64 import b32decode, b32encode
from collections.abc import Iterator, Sequence

from gpucache.caches.files import Files
from gpucache.caches.files_format import FilesFormat
from gpucache.caches.foreign import ForeignSystem
from gpucache.caches.format import HOUR_NS, Look
from gpucache.caches.layout import Layout, Left
from gpucache.caches.places import Place, Temporary, Var
from gpucache.outcomes import FindingKind, Problem

_DIGITS, _NAME = 51, "[a-z2-7]{51}"
_KINDS = {"fxgraph": "compiled graph", "aotautograd": "compiled graph with gradients"}
_LARGEST_BYTES = 1 << 30


def _key(groups: Sequence[str]) -> str:
    return b32decode(f"{groups[0].upper()}A====").hex()


class Inductor(FilesFormat):
    """What ``torch.compile`` keeps of whole graphs."""

    name = "inductor"
    title = "TorchInductor cache"
    owner = "TorchInductor"
    place = Place(
        (Var("TORCHINDUCTOR_CACHE_DIR"), Temporary("torchinductor_")),
        move="set TORCHINDUCTOR_CACHE_DIR",
        nowhere="TorchInductor finds no name of the user; set TORCHINDUCTOR_CACHE_DIR",
        off={
            "TORCHINDUCTOR_FX_GRAPH_CACHE": ("0",),
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": ("1",),
            "TORCH_COMPILE_FORCE_DISABLE_CACHES": ("1",),
        },
        runs=True,
        opt_in=True,
    )
    layout = Layout(
        [rf"fxgraph/[a-z2-7]{{2}}/f({_NAME})/{_NAME}", rf"aotautograd/[a-z2-7]{{2}}/a({_NAME})/{_NAME}"],
        left=[Left(rf"(?:fxgraph|aotautograd)/[a-z2-7]{{2}}/[fa]{_NAME}/\.\d+\.\d+\.tmp", HOUR_NS)],
        own=[r"[a-z2-7]{2}/", "cache/", "locks/", "triton/", "fb/", "precompile_context/"],
        signs=["fxgraph/[a-z2-7]{2}", "aotautograd/[a-z2-7]{2}"],
        key=_key,
    )
    wanted = {"key": "hex digits of an entry, as 'gpucache inspect' lists them"}
    opaque = (
        "its entries keep what their keys were made from as pickles alone, which are not unpickled here; "
        "TORCH_LOGS=+inductor tells the parts of each key"
    )
    tracing = {"TORCH_LOGS": "+inductor"}
    absent = "no entry has this key: it was never compiled here, or was removed, of which no record is kept"
    served = "TorchInductor would look at it; whether it serves it depends on its guards"
    shows = "a compiled graph"
    folders_removed = 1

    def look(self, item: Files) -> Look:
        """Which of the two kinds, and for how many sets of guards."""
        empty = next((name for name, status in item.seen.items() if not status.st_size), None)
        problem = self._damage(empty, b"") if empty else None
        versions = (("versions", str(len(item.names))),)
        return Look(kind=_KINDS[item.parts[0]], fields=versions, problem=problem)

    def check(self, item: Files) -> Iterator[Problem]:
        """Whether each file is called by what it holds."""
        for name in item.names:
            data = item.read(name, _LARGEST_BYTES)
            if b32encode(hashlib.sha256(data).digest()).decode().lower()[:_DIGITS] != name:
                yield self._damage(name, data)

    def payload(self, item: Files) -> bytes:
        """The first of its pickles."""
        return item.read(item.names[0], _LARGEST_BYTES)

    def _damage(self, name: str, data: bytes) -> Problem:
        why = "is not called by what it holds" if data else "is empty"
        kind = FindingKind.CORRUPT if data else FindingKind.TRUNCATED
        detail = f"{name[:12]} {why}; TorchInductor warns when it does not load, and compiles again"
        return Problem(kind, detail)


SYSTEM = ForeignSystem(Inductor)
