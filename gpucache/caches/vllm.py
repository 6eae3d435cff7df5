"""vLLM's compile cache: the compiled graphs of models, with the inputs of their keys.

Source: vLLM 0.33, ``vllm/compilation/backends.py``, ``vllm/compilation/compiler_interface.py`` and
``vllm/compilation/decorators.py``; no cache written by vLLM was available; artifacts were checked against
those that PyTorch 2.15 saves for it. ``torch_compile_cache/HASH/rank_I_J/PART/`` has an ``artifact_...`` for
each graph and range of sizes, ``vllm_compile_cache.py``, which lists them, the graph as text, and
``cache_key_factors.json``, with the variables and the three hashes that HASH is computed from.
``torch_aot_compile/HASH/rank_I_J/model`` is a whole model. Next to them are caches of TorchInductor and
Triton, moved there. An artifact begins with the CRC-32 of the rest, which PyTorch checks; most of the rest is
pickles, which gpucache does not unpickle. Nothing is ever removed.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.answers.evict import Kept
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.inductor import Inductor
from gpucache.caches.layout import Layout, Left, hashed
from gpucache.caches.triton import Triton
from gpucache.errors import FormatError

_RANK = r"(rank_\d+_\d+)"
_PART = r"((?!(?:inductor|triton)_cache\b)(?=\w*[a-z])[A-Za-z]\w*)"
_GRAPHS = rf"torch_compile_cache/([0-9a-f]{{10}})/{_RANK}"
_MODELS = ("torch_compile_cache/torch_aot_compile/([0-9a-f]{64})", "torch_aot_compile/([0-9a-f]{64})")
_INNER = {"inductor_cache": Inductor, "triton_cache": Triton}
_OUTER = (_GRAPHS, *_MODELS)
_PLACES = [(f"{outer}/{folder}", made) for outer in _OUTER for folder, made in _INNER.items()]
_LIST, _FACTORS = "vllm_compile_cache.py", "cache_key_factors.json"
_HASHES = ("code_hash", "config_hash", "compiler_hash")
_TEXT_BYTES, _PIECE_BYTES = 4 << 20, 16 << 20
_CRC_BYTES, _LENGTH_STARTS = 4, bytes(7)
"""The size of an artifact's CRC-32, and the start of the length after it; older PyTorchs have no CRC-32."""
_FAILS = "vLLM loads it nevertheless, so the server ends with an error at every start"


class Vllm(Format, of="vllm"):
    """The graphs of models that vLLM stores, and the output of lower layers for them."""

    layout = Layout(
        [
            rf"{_GRAPHS}/{_PART}/artifact_\w+",
            rf"{_GRAPHS}/{_PART}/(?:vllm_compile_cache\.py|cache_key_factors\.json)",
            rf"{_GRAPHS}/{_PART}/(?:computation_graph|transformed_code)\.py",
            *(rf"{one}/{_RANK}/model" for one in _MODELS),
            *(f"{place}/{one}" for place, made in _PLACES for one in made.layout.entries),
        ],
        left=[
            *(Left(rf"{one}/{_RANK}/model\.(?P<pid>\d+)\.tmp") for one in _MODELS),
            *(
                one._replace(pattern=f"{place}/{one.pattern}")
                for place, made in _PLACES
                for one in made.layout.left
            ),
        ],
        own=[
            rf"{_GRAPHS}/{_PART}/artifact_\w+/",
            *(f"{place}/{one}" for place, made in _PLACES for one in made.layout.own),
            *(f"{one}/" for one in ("deep_gemm", "modelinfos", "assets", "xla_cache", "startup_plan")),
            r"gpu_p2p_access_cache_for_.+\.json",
        ],
        signs=_OUTER,
        key=lambda groups: groups[0][:10] + hashed(groups)[:30],
    )
    opaque = (
        "an entry keeps its variables and three hashes, but not the inputs of these; compare two "
        "directories by 'gpucache inspect --why KEY KEY'"
    )
    folders_removed = 1

    def look(self, item: Files) -> CacheEntry:
        if inner := self._inner(item):
            made, inside = inner
            found = made.look(inside) or made.entry(inside)
            return found._replace(cache=self.name, key=item.key, toolchain=(), gone="", handle=item)
        graphs = [name for name in item.names if name.startswith("artifact_")]
        factors = _factors(item)
        hashes = ((name, str(factors[name])) for name in _HASHES if name in factors)
        return self.entry(item)._replace(
            program="/".join(item.parts[-2:]) if graphs or _LIST in item.seen else item.parts[-1],
            artifact_kind="compiled model" if item.names[0] == "model" else "compiled graphs",
            fields=(("graphs", str(len(graphs))), *hashes),
            damage=_missing(item),
        )

    def check(self, item: Files) -> Iterator[Problem]:
        if inner := self._inner(item):
            made, inside = inner
            yield from made.check(inside)
            return
        if problem := _missing(item):
            yield problem
        for name in item.names:
            if not name.startswith("artifact_") and name != "model":
                continue
            head = item.part(name, 0, _CRC_BYTES + len(_LENGTH_STARTS))
            if not head:
                yield Problem(FindingKind.TRUNCATED, f"{name} is empty; {_FAILS}")
            elif head[_CRC_BYTES:] == _LENGTH_STARTS and _crc(item, name) != int.from_bytes(
                head[:_CRC_BYTES]
            ):
                yield Problem(FindingKind.CORRUPT, f"{name} does not match its CRC-32; {_FAILS}")

    def has_checksum(self, item: Files) -> bool:
        if inner := self._inner(item):
            return inner[0].has_checksum(inner[1])
        named = [name for name in item.names if name.startswith("artifact_") or name == "model"]
        starts = (item.part(name, _CRC_BYTES, len(_LENGTH_STARTS)) for name in named)
        return bool(named) and all(start == _LENGTH_STARTS for start in starts)

    def payload(self, item: Files) -> bytes:
        if inner := self._inner(item):
            made, inside = inner
            return made.payload(inside)
        if item.names[0].startswith("artifact_") or item.names[0] == "model":
            return item.read(item.names[0])
        raise FormatError(f"{item.folder} has no compiled graph")

    def lock(self, item: Files) -> AbstractContextManager[None]:
        """Take the lock that TorchInductor uses while it compiles one of its libraries; vLLM has none."""
        inner = self._inner(item)
        return inner[0].lock(inner[1]) if inner else nullcontext()

    def remove(self, item: Files) -> Kept | None:
        if inner := self._inner(item):
            made, inside = inner
            return made.remove(inside)
        return super().remove(item)

    def removal_order(self, names: Sequence[str]) -> Sequence[str]:
        """The list first: without it vLLM compiles again, and looks at no artifact."""
        return sorted(names, key=lambda name: (name != _LIST, name.startswith("artifact_"), name))

    def inputs(self, item: Files, entry: CacheEntry) -> Iterable[tuple[str, str]]:
        factors = _factors(item)
        env = factors.get("env")
        told = {f"env {name}": str(value) for name, value in env.items()} if isinstance(env, dict) else {}
        return told.items() if factors else super().inputs(item, entry)

    def content(self, item: Files, entry: CacheEntry) -> Iterator[tuple[str, str]]:
        yield "kind", entry.artifact_kind

    def _inner(self, item: Files) -> tuple[Format, Files] | None:
        """The format of the lower layer's cache that contains an entry, and the entry in that format."""
        for folder, made in _INNER.items():
            if folder in item.parts:
                at = item.parts.index(folder) + 1
                root = item.root.joinpath(*item.parts[:at])
                location = self.location._replace(root=str(root))
                parts = item.parts[at:]
                key = made.layout.key_at((*parts, item.names[0]))
                return made(location, self.now_ns), item._replace(root=root, parts=parts, key=key)
        return None


def _crc(item: Files, name: str) -> int:
    crc, at = 0, _CRC_BYTES
    while piece := item.part(name, at, _PIECE_BYTES):
        crc, at = zlib.crc32(piece, crc), at + len(piece)
    return crc


def _factors(item: Files) -> dict[str, Any]:
    """The content of ``cache_key_factors.json``; empty if it is missing or invalid."""
    if _FACTORS not in item.seen:
        return {}
    try:
        found = json.loads(item.part(_FACTORS, 0, _TEXT_BYTES))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _missing(item: Files) -> Problem | None:
    """The problem of a missing graph in the list, or of a missing list, without which vLLM finds none."""
    if item.names[0] == "model":
        return None
    if _LIST not in item.seen:
        return Problem(FindingKind.ORPHAN, f"it has no {_LIST}, so vLLM compiles every graph again")
    listed = re.findall(r"'(artifact_\w+)'", item.part(_LIST, 0, _TEXT_BYTES).decode("utf-8", "replace"))
    gone = next((name for name in listed if name not in item.seen), "")
    return Problem(FindingKind.TRUNCATED, f"{gone} is gone, which {_LIST} names; {_FAILS}") if gone else None
