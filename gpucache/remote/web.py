"""A store on a web server, which can only be read: ``http://`` or ``https://[USER:PASSWORD@]HOST[:PORT][/PATH]``.

An object is the file of its name below the URL. Owns the sentences about its replies. Must not know the
content of objects.
"""

from collections.abc import Iterable, Iterator
from typing import NoReturn
from urllib.parse import SplitResult, quote, urlsplit

from gpucache.errors import RemoteError, UsageError
from gpucache.remote.connections import Connections, Request, basic
from gpucache.remote.objects import Limits, Objects, in_parallel, require_object_name

_MISSING = frozenset({404, 410})
_REFUSED = frozenset({401, 403, 407})


class WebObjects(Objects):
    """See ``gpucache.remote.objects.Objects``."""

    lists = writes = False

    def __init__(self, url: SplitResult, limits: Limits) -> None:
        path = quote(url.path.rstrip("/"), safe="/%:@!$&'()*+,;=~")
        self.url = f"{url.scheme}://{url.netloc.rpartition('@')[2]}{path}"
        self._authorization = basic("Authorization", url)
        self._connections = Connections(self.url, limits, "http")

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        return in_parallel(lambda name: (name, self._read(name, limit_bytes)), names)

    def close(self) -> None:
        self._connections.close()

    def _only_read(self, *_: object, **__: object) -> NoReturn:
        raise RemoteError(
            f"{self.url} is a web server, which can only be read; name the store by a directory or a URL of "
            "s3://, gs://, az:// or oci://"
        )

    listed = create = replace = remove = finish = _only_read

    def _read(self, name: str, limit_bytes: int) -> bytes | None:
        url = f"{self.url}/{require_object_name(name)}"
        reply = self._connections.reply(Request(url, limit_bytes, headers=self._authorization))
        if reply.status in _MISSING:
            return None
        if reply.status in _REFUSED:
            raise RemoteError(
                f"{self.url} refuses to send {name} ({reply.status}); check the permissions there, or put a "
                "user and a password into the URL"
            )
        if reply.status != 200:
            raise RemoteError(f"{self.url} returns {reply.status} for {name}; check its address and its log")
        return reply.data if reply.is_whole else None


def open_url(url: str, limits: Limits) -> WebObjects:
    """The store of a URL; makes no request."""
    try:
        parts = urlsplit(url)
        valid = bool(parts.hostname) and parts.port != 0 and not parts.query and not parts.fragment
    except ValueError:
        valid = False
    if not valid:
        raise UsageError(
            "a store on a web server is named https://[USER:PASSWORD@]HOST[:PORT][/PATH], no more"
        )
    return WebObjects(parts, limits)
