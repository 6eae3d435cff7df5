"""TorchInductor's caches of compiled graphs, among temporary files unless a variable names another place.

Source: PyTorch 2.15, ``torch/_inductor/codecache.py``, ``torch/_inductor/runtime/cache_dir_utils.py`` and
``torch/_functorch/_aot_autograd/autograd_cache.py``; checked against its files for a CPU; the files for GPUs
are known from the sources only. ``fxgraph/XX/KEY/`` and ``aotautograd/KEY/`` contain a pickle for each set of
guards, named by digits of the SHA-256 of its content in base 32; keys are such digits after an ``f`` or
``a``. Pickles run code when they are loaded; gpucache never unpickles them. ``XX/cDIGITS.*`` is generated
code with its libraries, which a graph names: nothing compares the digits with a library, in whose tables only
the name of its source shows another's, and a Python module is run unchecked. Triton's kernels are below
``triton/``. ``locks/cDIGITS.lock`` is held while a library is compiled. Nothing is ever removed.
"""

import hashlib
import re
from base64 import b32decode, b32encode
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from gpucache.answers.entries import CacheEntry, FindingKind, Problem
from gpucache.caches import pickles
from gpucache.caches.binary_format import broken
from gpucache.caches.files import Files
from gpucache.caches.format import Format
from gpucache.caches.layout import Layout, Left
from gpucache.caches.portable import Fact, Moving, PortableFile
from gpucache.errors import FormatError
from gpucache.payload import PayloadKind, elf

_DIGITS, _NAME = 51, "[a-z2-7]{51}"
_KINDS = {"fxgraph": "compiled graph", "aotautograd": "compiled graph with gradients"}
_CODE = rf"[a-z2-7]{{2}}/c({_NAME})"
_WRAPPER = b"# AOT ID:"
"""How the module of a whole graph begins; its name is a digest of its content."""
_SOURCE = re.compile(rb"(c[a-z2-7]{51}(?:\.\w+)?)\.cpp\0")
"""The name of its source in a library's tables of names."""
_MODULE = re.compile(rb"\s*(?:[#@\"']|(?:import|from|def|class|if|try)\b)")
"""The beginning of any module that TorchInductor generates."""
_FAILS = "TorchInductor takes it as it is, so the program ends with an error at every start"
_WARNS = "compiles again where it does not load, and else computes by it, which may be another graph"
_LOADS = "runs it when it loads the graph"
_RUNS = "TorchInductor runs it nevertheless"
_OF_CPU = re.compile(rb"cpp_pybinding\(|torch/csrc/inductor/cpp_prefix\.h|ATen/cpu/vec|aoti_torch_cpu")
"""Marks of code for a CPU, which contains lengths of vectors that no key has."""
_DEVICE = re.compile(rb"system_info\[device\]: \{'name': '([ -&(-~]{1,80})'")
_CUDA = re.compile(rb"system_info\[version\]: \{[ -~]{0,400}'(cuda|hip)': '([\w.+-]{1,40})'")
"""Parts of a key in the form in which PyTorch logs and stores them."""


NAMES = pickles.Names.of(
    "PyTorch",
    r"builtins:(?:list|set|frozenset|dict|slice|complex)|collections:(?:Counter|OrderedDict|defaultdict)",
    r"torch:(?:Size|Tensor|device|strided|bool|[a-z]+\d+\w*|\w+Storage|preserve_format)",
    r"torch\._utils:_rebuild_(?:tensor_v2|parameter|device_tensor_from_numpy)|torch\.storage:_load_from_bytes",
    r"torch\.storage:(?:Untyped|Typed)Storage|torch\.serialization:_get_layout",
    r"torch\._dynamo\.source:_?[A-Z]\w*|torch\._guards:_?[A-Z]\w*",
    r"torch\._functorch\._aot_autograd\.\w+:_?[A-Z]\w*",
    r"torch\._inductor\.(?:output_code|cudagraph_utils|metrics|triton_bundler|utils):_?[A-Z]\w*",
    r"torch\._inductor\.runtime\.(?:hints|static_\w+_launcher|triton_heuristics|autotune_cache):_?[A-Z]\w*",
    r"torch\._inductor\.codecache:CompiledFxGraph|torch\._inductor\.decomposition:select_decomp_table",
    r"torch\._subclasses\.(?:functional_tensor|fake_tensor|meta_utils):_?[A-Z]\w*",
    r"torch\.fx\.graph_module:(?:reduce_graph_module|GraphModule)|torch\.utils\._pytree:(?:TreeSpec|LeafSpec)",
    r"torch\.utils\._ordered_set:OrderedSet|torch\.nn\.parameter:(?:Parameter|Buffer)",
    r"triton\.backends\.compiler:(?:GPUTarget|AttrsDescriptor)|triton\.runtime\.autotuner:Config",
)
"""The names in graphs of PyTorch 2.3 to 2.15: those for a CPU as observed, the others by the sources."""


def require_no_cpu(files: Sequence[PortableFile]) -> Sequence[PortableFile]:
    """Return the files; raises FormatError if one has code for a CPU."""
    if any(one.name.endswith(".so") or _OF_CPU.search(one.data) for one in files):
        raise FormatError(
            "it has code for the vector instructions of one kind of CPU, of which TorchInductor's keys say "
            "nothing: another kind would compute wrong values by it; let it be compiled there"
        )
    return files


def _key(groups: Sequence[str]) -> str:
    return b32decode(f"{groups[0].upper()}A====").hex()


class Inductor(Format, of="inductor"):
    """The graphs that ``torch.compile`` stores, and the code that it generated for them."""

    layout = Layout(
        [
            rf"fxgraph/[a-z2-7]{{2}}/f({_NAME})/{_NAME}",
            rf"aotautograd/a({_NAME})/{_NAME}",
            rf"aotautograd/[a-z2-7]{{2}}/a({_NAME})/{_NAME}",
            rf"{_CODE}(?:\.\w+)?\.so",
            rf"{_CODE}\.[\w.]+",
        ],
        left=[
            Left(rf"{folder}/\.(?P<pid>\d+)\.\d+\.tmp")
            for folder in (
                rf"fxgraph/[a-z2-7]{{2}}/f{_NAME}",
                rf"aotautograd/a{_NAME}",
                rf"aotautograd/[a-z2-7]{{2}}/a{_NAME}",
                r"[a-z2-7]{2}",
            )
        ],
        own=[
            rf"[a-z2-7]{{2}}/c{_NAME}/",
            *(f"{name}/" for name in ("cache", "locks", "triton", "fb", "precompile_context")),
            "precompiled_headers/",
        ],
        signs=["fxgraph/[a-z2-7]{2}", "aotautograd/a?[a-z2-7]{2,51}", _CODE + r"\..+"],
        key=_key,
    )
    served = "TorchInductor would look at it; whether it serves it depends on its guards"
    folders_removed = 1
    links = ("torch",)
    moving = Moving(
        tells="paths and source text",
        sources=True,
        note="Graphs with code for a CPU, and libraries, stay, as the keys lack its vector instructions.",
        untold=(Fact.VERSION,),
    )

    def look(self, item: Files) -> CacheEntry:
        first = item.names[0]
        kind = _KINDS.get(item.parts[0], "library" if first.endswith(".so") else "generated code")
        empty = next((name for name, status in item.seen.items() if not status.st_size), None)
        entry = self.entry(item)._replace(artifact_kind=kind, last_used_ns=item.written_ns)
        if item.parts[0] in _KINDS:
            fields = (("versions", str(len(item.names))),)
            damage = self._damage(empty, b"") if empty else None
            return entry._replace(fields=fields, damage=damage)
        problem = None
        if empty == first and first.endswith((".so", ".py")):
            problem = Problem(FindingKind.TRUNCATED, f"{first[:12]} is empty; {_FAILS}")
        return entry._replace(damage=problem)

    def check(self, item: Files) -> Iterator[Problem]:
        for name in item.names:
            data = item.read(name)
            if item.parts[0] in _KINDS:
                yield from self._judged(name, data)
            elif name.endswith(".so"):
                sources = {one.decode() for one in _SOURCE.findall(data)}
                if not elf.is_loadable(data):
                    yield from broken(name[:12], data, PayloadKind.ELF, _FAILS)
                yield from self.linked(item, name, data, _FAILS)
                if sources and name.removesuffix(".so") not in sources:
                    detail = f"{name[:12]} was compiled from another source; {_FAILS}"
                    yield Problem(FindingKind.MISLABELLED, detail)
            elif name.endswith(".py") and not data:
                yield Problem(FindingKind.TRUNCATED, f"{name[:12]} is empty; {_FAILS}")
            elif name.endswith(".py") and not _MODULE.match(data):
                yield Problem(FindingKind.CORRUPT, f"{name[:12]} does not begin as a Python module; {_FAILS}")
            elif data.startswith(_WRAPPER) and name != f"c{_digits(data.strip())}.py":
                detail = f"{name[:12]} does not match its content, so it was changed; {_RUNS}"
                yield Problem(FindingKind.CORRUPT, detail)

    def _judged(self, name: str, data: bytes) -> Iterator[Problem]:
        wrong = pickles.problem(data, NAMES)
        untrusted = wrong is not None and wrong.kind is FindingKind.UNTRUSTED  # it is loaded under any name
        if _digits(data) != name and not untrusted:
            yield self._damage(name, data)
        elif wrong:
            end = _LOADS if wrong.kind is FindingKind.UNTRUSTED else _WARNS
            yield Problem(wrong.kind, f"{name[:12]} {wrong.detail}; TorchInductor {end}")

    def has_checksum(self, item: Files) -> bool:
        """True for a graph, whose files have names of their content; False for a library."""
        return item.parts[0] in _KINDS

    def facts(self, item: Files, look: CacheEntry) -> Iterator[tuple[str, str]]:
        if item.parts[0] in _KINDS:
            data = item.read(item.names[0])
            if device := _DEVICE.search(data):
                yield "GPU", device[1].decode()
            if runtime := _CUDA.search(data):
                yield {b"cuda": "CUDA", b"hip": "ROCm"}[runtime[1]], runtime[2].decode()

    def files_to_move(self, item: Files) -> Sequence[PortableFile]:
        return require_no_cpu(super().files_to_move(item))

    def lock(self, item: Files) -> AbstractContextManager[None]:
        return self.holding("locks", f"{item.names[0].partition('.')[0]}.lock")

    def _damage(self, name: str, data: bytes) -> Problem:
        why = "does not match its content" if data else "is empty"
        kind = FindingKind.CORRUPT if data else FindingKind.TRUNCATED
        detail = f"{name[:12]} {why}; TorchInductor {_WARNS}"
        return Problem(kind, detail)


def _digits(data: bytes) -> str:
    return b32encode(hashlib.sha256(data).digest()).decode().lower()[:_DIGITS]
