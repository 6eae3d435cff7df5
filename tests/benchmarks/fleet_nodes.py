"""Many nodes of a fleet in one process: all fill from one store at once, or all send to it one after another.

The store's code is the real one; the nodes' programs are left out. A web server on the loopback interface
serves a directory that was pushed once, and waits before each reply as a distant one does. Clients and server
share this process, so times are upper bounds; requests and bytes are exact.
"""

import asyncio
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gpucache.caches.interface import Cache
from gpucache.model import CacheKey
from gpucache.remote.objects import open_objects
from gpucache.remote.push import push
from gpucache.remote.signing import SigningKey, TrustedKeys, load_signing_key, make_pair
from gpucache.remote.store import RemoteStore
from gpucache.settings import Remote
from tests.benchmarks.large_cache import make_cache
from tests.benchmarks.measure import Comparison, Effort
from tests.contracts.examples import open_example

_ENTRIES, _BYTES = 20, 10_000
_AT_ONCE = 16
"""Nodes that are asking at a time: one process has no threads and descriptors for more."""


class _Server:
    """A web server of a directory, with a delay before each reply, and its counts."""

    def __init__(self, served: Path, delay_s: float) -> None:
        self._served = served
        self._delay_s = delay_s
        self.requests = self.bytes = self.under_way = self.most = 0

    @contextmanager
    def url(self) -> Iterator[str]:
        loop, ready = asyncio.new_event_loop(), threading.Event()
        ports: list[int] = []

        async def serve() -> None:
            server = await asyncio.start_server(self._answer, "127.0.0.1", 0, backlog=1024)
            ports.append(server.sockets[0].getsockname()[1])
            ready.set()
            await server.serve_forever()

        def run() -> None:
            asyncio.set_event_loop(loop)
            task = loop.create_task(serve())
            loop.run_forever()
            left = {task, *asyncio.all_tasks(loop)}
            for one in left:
                one.cancel()
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        ready.wait()
        try:
            yield f"http://127.0.0.1:{ports[0]}"
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.under_way += 1
                self.most = max(self.most, self.under_way)
                await asyncio.sleep(self._delay_s)
                path = self._served / head.split(b" ", 2)[1].decode().lstrip("/")
                body, status = (path.read_bytes(), 200) if path.is_file() else (b"", 404)
                writer.write(f"HTTP/1.1 {status} -\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
                self.under_way -= 1
                self.requests += 1
                self.bytes += len(body)
                await writer.drain()
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            writer.close()


class _Counted:
    """The objects of a store, and how many were asked for."""

    def __init__(self, objects: Any) -> None:
        self._objects = objects
        self.requests = self.bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    def listed(self, prefix: str, expected: int = 0) -> Iterator[Any]:
        """A list is a request for each thousand."""
        found = list(self._objects.listed(prefix, expected))
        self.requests += 1 + len(found) // 1000
        return iter(found)

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        for name, data in self._objects.read(names, limit_bytes):
            self.requests += 1
            self.bytes += len(data or b"")
            yield name, data

    def create(self, objects: Iterable[tuple[str, bytes]], *more: Any) -> Iterator[tuple[str, bool]]:
        def counted() -> Iterator[tuple[str, bytes]]:
            for name, data in objects:
                self.requests += 1
                self.bytes += len(data)
                yield name, data

        return iter(self._objects.create(counted(), *more))


def run(effort: Effort) -> Iterator[Comparison]:
    """A row for each delay of a push by one, and one for each size of a fleet that sends."""
    nodes = 3 if effort.small else 1_000
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_pair(place / "key")
        key = load_signing_key(place / "key")
        make_cache(place / "root", _ENTRIES, 1, payload_bytes=_BYTES)
        cache = open_example("gpucache", place / "root")
        _push(cache, str(place / "store"), key)
        keys = [CacheKey(entry.key) for entry in cache.scan()]
        for delay_ms in (5,) if effort.small else (5, 50, 500):
            yield Comparison(_filled(place / "store", delay_ms, nodes, keys, key), ())
        yield from (Comparison(told, ()) for told in _sent(place, nodes, key))


def _filled(served: Path, delay_ms: int, nodes: int, keys: Sequence[CacheKey], key: SigningKey) -> str:
    server = _Server(served, delay_ms / 1000)
    wanted, warned = [(one,) for one in keys], list[str]()
    with server.url() as url:

        def node(_: int) -> int:
            store = RemoteStore(Remote(url, 600.0), key.public.text, None, warned.append)
            found = sum(one is not None for one in store.find(wanted))
            if store._opened is not None:  # a node that ends closes its connections
                store._opened.objects.close()
            return found

        began = time.monotonic()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            hits = sum(pool.map(node, range(nodes)))
        took = time.monotonic() - began
    assert hits == nodes * len(keys), warned[:1]
    return (
        f"Pushed by one, {nodes} nodes with {len(keys)} programs, {delay_ms} ms a reply: the last is warm "
        f"after {took:.1f} s; {server.requests} requests, {server.bytes / 1e6:.1f} MB, {server.most} at once"
    )


def _sent(place: Path, nodes: int, key: SigningKey) -> Iterator[str]:
    url, began = str(place / "all"), time.monotonic()
    requests = size = 0
    for number in range(1, nodes + 1):
        root = place / f"node-{number}"
        make_cache(root, 1, 1, first=_ENTRIES + number, payload_bytes=_BYTES)
        before = time.monotonic()
        last = _push(open_example("gpucache", root), url, key)
        requests, size = requests + last.requests, size + last.bytes
        if number in (10, 100, nodes):
            yield (
                f"Sent by all, node {number}: its push takes {(time.monotonic() - before) * 1000:.0f} ms, "
                f"{last.requests} requests and {last.bytes / 1e6:.2f} MB; all so far {requests} requests, "
                f"{size / 1e6:.0f} MB, {time.monotonic() - began:.0f} s one after another"
            )


def _push(cache: Cache, url: str, key: SigningKey) -> _Counted:
    with closing(open_objects(url)) as objects:
        counted = _Counted(objects)
        selected: list[tuple[Cache, Any]] = [(cache, list(cache.scan()))]
        how: Any = {"key": key, "trusted": TrustedKeys({}), "sources": True, "dry_run": False}
        store: Any = counted
        for _ in push(selected, store, progress=lambda *_: None, **how):
            pass
        return counted
