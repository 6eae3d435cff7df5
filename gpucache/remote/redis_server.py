"""A store in a Redis server: each object is the string value of one key, ``PREFIX:name``.

The URL is ``redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?prefix=PREFIX]``, or ``rediss://`` for TLS,
which takes ``ssl_ca_certs``, ``ssl_certfile`` and ``ssl_keyfile`` as well. Owns the keys, the batches of
commands, and the remedies. A server may evict keys: such an object is missing. Must not know the content of
objects.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

from gpucache.errors import GpucacheError, RemoteError, UsageError
from gpucache.host import os_errors
from gpucache.remote.objects import Limits, Listed, batches, missing, public, require_object_name
from gpucache.units import printable

if TYPE_CHECKING:
    import redis

MOST_BYTES = 512 << 20
"""The largest value that Redis keeps."""
_BATCH_BYTES = 16 << 20
_BATCH = 100
_LISTED_AT_ONCE = 1000
_SWAPS = 200
_PREFIX = re.compile(r"[A-Za-z0-9._-]+(?::[A-Za-z0-9._-]+)*")
_FORM = "redis://[[USER]:PASSWORD@]HOST[:PORT][/DATABASE][?prefix=PREFIX]"
_FILES = frozenset({"ssl_ca_certs", "ssl_certfile", "ssl_keyfile"})
_REMEDIES = {
    "AuthenticationError": "check the user and the password in its URL",
    "NoPermissionError": "let its user run SET, GET, MGET, STRLEN, SCAN, WATCH and UNLINK on the keys",
    "OutOfMemoryError": "remove objects with 'gpucache evict URL', or raise its maxmemory",
    "ReadOnlyError": "name the primary server, as this one is a replica",
    "BusyLoadingError": "wait until it has loaded its data",
    "TimeoutError": "check the network, or allow more time with --timeout",
    "ConnectionError": "check that it runs, and the host and the port in its URL",
    "MovedError": "name a server that is not part of a cluster",
}
_OTHERWISE = "check that it is a Redis server, and its log"

T = TypeVar("T")


class RedisObjects:
    """See ``gpucache.remote.objects.Objects``."""

    lists = True
    served = False
    writes = True
    is_own_folder = False

    def __init__(self, url: str, client: "redis.Redis", prefix: str, password: str) -> None:
        self.url = url
        self._client = client
        self._prefix = f"{prefix}:"
        self._password = password

    def listed(self, prefix: str) -> Iterator[Listed]:
        """Keys by SCAN, which may show one twice, with their lengths. Redis does not say when."""
        cursor, seen = 0, set[str]()
        while True:
            scan = ("SCAN", cursor, "MATCH", f"{self._prefix}{prefix}*", "COUNT", _LISTED_AT_ONCE)
            ((cursor, keys),) = self._ask((*scan, "TYPE", "string"))
            found = {self._name(key) for key in keys} - seen - {""}
            seen |= found
            names = sorted(found)
            for name, size in zip(names, self._ask(*map(self._strlen, names)), strict=True):
                yield Listed(name, size, 0)
            if cursor == 0:
                return

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        """The lengths of 100 values, then the values of at most 16 MiB at a time."""
        for group in batches(names, _BATCH):
            sized = list(zip(group, self._ask(*map(self._strlen, group)), strict=True))
            yield from ((name, None) for name, size in sized if size > limit_bytes)
            within = (pair for pair in sized if pair[1] <= limit_bytes)
            for part in batches(within, _BATCH, lambda pair: pair[1], _BATCH_BYTES):
                (values,) = self._ask(("MGET", *(self._key(name) for name, _ in part)))
                yield from zip((name for name, _ in part), values, strict=True)

    def create(self, objects: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bool]]:
        """SET with NX, at most 100 values or 16 MiB at a time."""
        for part in batches(objects, _BATCH, lambda pair: len(pair[1]), _BATCH_BYTES):
            for name, data in part:
                if len(data) > MOST_BYTES:
                    raise RemoteError(
                        f"{name} has {len(data)} bytes, and {self.url} keeps at most {MOST_BYTES} in an "
                        "object; leave its entry out, or name a store of another kind"
                    )
            answers = self._ask(*(("SET", self._key(name), data, "NX") for name, data in part))
            for (name, _), answer in zip(part, answers, strict=True):
                yield name, bool(answer)

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """A transaction that begins anew if the key changed; a connection that breaks looks the same."""
        import redis

        key = self._key(name)

        def swap() -> None:
            with self._pipeline(transaction=True) as pipe:
                for _ in range(_SWAPS):
                    with suppress(redis.WatchError):
                        pipe.watch(key)
                        data = change(pipe.get(key))
                        pipe.multi()
                        pipe.set(key, data)
                        pipe.execute()
                        return
            raise RemoteError(f"{self.url} cannot be used ({name} changes all the time); try again")

        self._told(swap)

    def remove(self, names: Iterable[str]) -> None:
        """UNLINK."""
        for group in batches(names, _LISTED_AT_ONCE):
            self._ask(("UNLINK", *map(self._key, group)))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _key(self, name: str) -> str:
        return self._prefix + require_object_name(name)

    def _strlen(self, name: str) -> tuple[str, str]:
        return "STRLEN", self._key(name)

    def _name(self, key: bytes) -> str:
        """The name of a key; empty if it is not one of ours."""
        try:
            return require_object_name(key.decode("ascii").removeprefix(self._prefix))
        except (ValueError, RemoteError):
            return ""

    def _ask(self, *commands: tuple[Any, ...]) -> list[Any]:
        """The replies to some commands that are sent together, each of the form that its command has."""

        def sent() -> list[Any]:
            with self._pipeline(transaction=False) as pipe:
                for command in commands:
                    pipe.execute_command(*command)
                answers: list[Any] = pipe.execute(raise_on_error=False)
            for command, answer in zip(commands, answers, strict=True):
                if isinstance(answer, Exception):
                    raise answer
                _require_form(command, answer)
            return answers

        return self._told(sent)

    def _pipeline(self, transaction: bool) -> Any:
        """A pipeline, whose methods have few types, or also the types of asyncio."""
        return self._client.pipeline(transaction=transaction)

    def _told(self, call: Callable[[], T]) -> T:
        """The result of a call; a refusal of the library or the server becomes one sentence."""
        try:
            return call()
        except GpucacheError:
            raise
        except Exception as error:  # the library raises anything if a server sends garbage
            kinds = [kind.__name__ for kind in type(error).__mro__]
            remedy = next((_REMEDIES[kind] for kind in kinds if kind in _REMEDIES), _OTHERWISE)
            # redis-py puts a command's arguments before the reason, and a server may repeat them.
            reason = str(error).rpartition(" of pipeline caused error: ")[2].rstrip(".")
            if isinstance(error.__context__, OSError):  # which the library shows by its number
                reason = os_errors.reason(error.__context__)
            if self._password:
                reason = reason.replace(self._password, "***")
            raise RemoteError(f"{self.url} cannot be used ({printable(reason)}); {remedy}") from None


def open_url(url: str, limits: Limits) -> RedisObjects:
    """The store of a URL; connects at the first request."""
    try:
        import redis
        from redis.backoff import ExponentialBackoff
        from redis.retry import Retry
    except ImportError:
        raise missing("redis", url) from None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port or 6379
        more = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
        database = int(parts.path.strip("/") or 0)
    except ValueError:
        host, more = None, {}
    prefix = more.pop("prefix", "gpucache")
    if not (host and _PREFIX.fullmatch(prefix)) or more.keys() - _FILES or parts.fragment:
        raise UsageError(f"{public(url)} is not a URL of a Redis server; write {_FORM}")
    password = unquote(parts.password or "")
    client = redis.Redis(
        host=host,
        port=port,
        db=database,
        username=unquote(parts.username or "") or None,
        password=password or None,
        ssl=parts.scheme == "rediss",
        socket_timeout=limits.request_s,
        socket_connect_timeout=limits.connect_s,
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), limits.retries),
        protocol=2,
        **more,  # type: ignore[arg-type] # names of files
    )
    return RedisObjects(public(url), client, prefix, password)


def _require_form(command: tuple[Any, ...], answer: Any) -> None:
    """Raises ValueError for a reply that a Redis server does not give."""
    match command[0], answer:
        case "STRLEN", int():
            return
        case "MGET", list():
            if len(answer) == len(command) - 1 and all(isinstance(one, bytes | None) for one in answer):
                return
        case "SCAN", (int(), list()):
            if all(isinstance(one, bytes) for one in answer[1]):
                return
        case "SET" | "UNLINK", _:
            return
    raise ValueError(f"it returns garbage for {command[0]}")
