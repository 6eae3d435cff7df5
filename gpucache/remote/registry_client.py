"""Requests to one repository of an OCI registry, logged in where it wants that.

Credentials come from ``docker login``, as oras finds them; no user is asked, and none are looked
for before the registry wants some. Owns the remedies. Must not know what is stored.
"""

import os
import re
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec

from gpucache.errors import RemoteError
from gpucache.remote.connections import Connections, Reply, Request
from gpucache.remote.objects import Limits
from gpucache.units import printable

MOST_JSON_BYTES = 4 << 20
"""The largest manifest, list or token; registries refuse larger manifests themselves."""
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,]*\brel="?next"?')
_REMEDIES = {
    401: "run 'docker login {host}' with a user who may do this",
    403: "ask its owner for permission, or run 'docker login {host}' as another user",
    404: "check the repository in its URL, and that it exists if the registry does not make it",
    413: "let the proxy before it accept larger requests",
    429: "wait, or log in with 'docker login {host}' for more requests",
    507: "make room on its disk",
}


class RegistryClient:
    """One repository; for several threads."""

    def __init__(self, host: str, repository: str, limits: Limits, *, plain: bool) -> None:
        self._scheme = "http" if plain else "https"
        self._host = host
        self.request_s = limits.request_s
        self._url = f"oci://{host}/{repository}"
        self._base = f"{self._scheme}://{host}/v2/{repository}/"
        self._connections = Connections(self._url, limits, "oci+http", leaves_tls=plain)
        self._lock = Lock()
        self._authorization: str | None = None
        self._now_ns = 0

    def ask(
        self,
        method: str,
        path: str,
        accepted: Collection[int] = (200,),
        most_bytes: int = MOST_JSON_BYTES,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
    ) -> Reply:
        """The reply to a request for a path in the repository or an absolute URL.

        Raises RemoteError for a status that is not accepted and for a reply beyond the limit.
        """
        reply = self._logged_in(Request(urljoin(self._base, path), most_bytes, method, body, headers))
        with suppress(KeyError, TypeError, ValueError):
            self._now_ns = int(parsedate_to_datetime(reply.headers["Date"]).timestamp()) * 10**9
        if reply.status not in accepted:
            raise self.refused(reply)
        if not reply.is_whole:
            raise self.garbage(f"a reply of more than {most_bytes} bytes")
        return reply

    @property
    def now_ns(self) -> int:
        """The time by the registry's own clock, as its last reply said."""
        return self._now_ns or time.time_ns()

    def next_page(self, reply: Reply) -> str | None:
        """The URL of the next page of a list, which must be of the same registry."""
        found = _NEXT.search(reply.headers.get("Link", ""))
        if found is None:
            return None
        url = self.address(str(found[1]), reply.url)
        if urlsplit(url).netloc != self._host:
            raise self.garbage("its list goes on at another host")
        return url

    def address(self, text: str, base: str = "") -> str:
        """The URL that a reply names, from that of the reply; raises RemoteError for none of HTTP."""
        with suppress(ValueError):
            url = urljoin(base, text)
            if urlsplit(url).scheme in {"http", "https"}:
                return url
        raise self.garbage(f"the address {printable(text[:80])!r}")

    def garbage(self, told: str) -> RemoteError:
        """The error for a reply that no registry gives."""
        return RemoteError(f"{self._url} cannot be used ({told}); check that it is an OCI registry")

    def close(self) -> None:
        self._connections.close()

    def _logged_in(self, request: Request) -> Reply:
        """The reply to a request, sent again with credentials if the registry wants some."""
        ours = request.server == (self._scheme, self._host)
        before = self._authorization
        reply = self._sent(request, before if ours else None)
        challenge = reply.headers.get("WWW-Authenticate")
        if reply.status not in {401, 403} or not ours or not challenge:
            return reply
        with self._lock:
            if self._authorization == before:
                self._authorization = self._authorized(challenge)
        return reply if self._authorization == before else self._sent(request, self._authorization)

    def _sent(self, request: Request, authorization: str | None) -> Reply:
        login = {"Authorization": authorization} if authorization else {}
        return self._connections.reply(request._replace(headers={**request.headers, **login}))

    def _authorized(self, challenge: str) -> str | None:
        """The header that a challenge asks for; None if there are no credentials for it."""
        import oras.auth.utils

        basic = _credentials(self._host)
        if not challenge.lower().startswith("bearer"):
            return basic
        asked = oras.auth.utils.parse_auth_header(challenge)
        realm = str(asked.realm or "")
        if realm.partition(":")[0].lower() not in {"https", self._scheme}:
            raise self.garbage("it wants a password to be sent without TLS")
        realm = self.address(realm)
        query = {key: text for key in ("service", "scope") if (text := getattr(asked, key))}
        url = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(query)}"
        reply = self._sent(Request(url, MOST_JSON_BYTES), basic)
        if reply.status != 200:
            return None
        try:
            told = msgspec.json.decode(reply.data, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise self.garbage("a token that cannot be parsed") from None
        token = told.get("token") or told.get("access_token")
        return f"Bearer {token}" if isinstance(token, str) else None

    def refused(self, reply: Reply) -> RemoteError:
        code, message = error_of(reply)
        remedy = _REMEDIES.get(reply.status, "check its log")
        told = printable(f"{reply.status} {code}: {message}" if code else f"{reply.status}")
        return RemoteError(f"{self._url} refuses ({told}); {remedy.format(host=self._host)}")


def error_of(reply: Reply) -> tuple[str, str]:
    """The code and the message of a refusal; empty if it has none."""
    try:
        (first, *_) = msgspec.json.decode(reply.data, type=dict[str, Any])["errors"]
        return str(first["code"]), str(first["message"])
    except (msgspec.MsgspecError, RecursionError, LookupError, TypeError, ValueError):
        return "", ""


def _credentials(host: str) -> str | None:
    """The header of basic authentication that docker's configuration has for a registry."""
    import oras.auth
    import oras.container
    from oras.logger import logger

    logger.quiet = True
    logger.logger.disabled = True  # failures are reported by our own messages
    found = oras.auth.get_auth_backend("basic")
    place = Path(os.environ.get("DOCKER_CONFIG") or "~/.docker", "config.json").expanduser()
    try:
        found.load_configs(oras.container.Container("any", registry=host), [str(place)])
        return str(found.get_auth_header()["Authorization"])
    except AttributeError:  # how oras says that it has none
        return None
    except (OSError, ValueError, LookupError) as error:
        raise RemoteError(
            f"{place} cannot be read ({printable(str(error))}); run 'docker login {host}'"
        ) from None
