"""Requests to one repository of an OCI registry: bounded in time and in bytes, repeated, and logged in.

Credentials come from ``docker login``, as oras finds them; no user is asked, and none are looked
for before the registry wants some. Requests are made with the library on which oras is built, as oras bounds
neither time nor bytes, and keeps a token that no longer serves. Owns the remedies. Must not know what is
stored.
"""

import io
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from email.utils import parsedate_to_datetime
from http.cookiejar import DefaultCookiePolicy
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
import requests
from urllib3.exceptions import HTTPError

from gpucache.errors import RemoteError
from gpucache.remote.objects import AT_ONCE, Limits
from gpucache.units import printable

MOST_JSON_BYTES = 4 << 20
"""The largest manifest, list or token; registries refuse larger manifests themselves."""
_PART = 1 << 20
_MOST_SAID = 1 << 16
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
_REMEDIES = {
    401: "run 'docker login {host}' with a user who may do this",
    403: "ask its owner for permission, or run 'docker login {host}' as another user",
    404: "check the repository in its URL, and that it exists if the registry does not make it",
    413: "let the proxy before it accept larger requests",
    429: "wait, or log in with 'docker login {host}' for more requests",
    507: "make room on its disk",
}


class Answer(NamedTuple):
    """The registry's reply."""

    status: int
    headers: Mapping[str, str]
    data: bytes
    url: str
    """Where it came from, after redirections."""


class _Request(NamedTuple):
    method: str
    url: str
    accepted: Collection[int]
    most_bytes: int
    body: bytes | None
    headers: Mapping[str, str]


class _Body(io.BytesIO):
    """Bytes to send, in blocks, so that each has its own time limit, and all of them have one."""

    def __init__(self, data: bytes, limits: Limits) -> None:
        super().__init__(data)
        self._began, self._limits = time.monotonic(), limits

    def read(self, size: int | None = -1, /) -> bytes:
        _require_time(self._began, self._limits, self.tell())
        return super().read(size)


class RegistryClient:
    """One repository; for several threads."""

    def __init__(self, host: str, repository: str, limits: Limits, *, plain: bool, loopback: bool) -> None:
        self._scheme = "http" if plain else "https"
        self._host = host
        self._url = f"oci://{host}/{repository}"
        self._base = f"{self._scheme}://{host}/v2/{repository}/"
        self._limits = limits
        self._lock = Lock()
        self._authorization: str | None = None
        self._now_ns = 0
        self._session = requests.Session()
        self._session.max_redirects = 5
        self._session.trust_env = not loopback  # proxies
        self._session.auth = _as_it_is  # else ~/.netrc would replace our header
        self._session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
        for scheme in ("http://", "https://"):
            self._session.mount(scheme, requests.adapters.HTTPAdapter(pool_maxsize=AT_ONCE))

    def ask(
        self,
        method: str,
        path: str,
        accepted: Collection[int] = (200,),
        most_bytes: int = MOST_JSON_BYTES,
        body: bytes | None = None,
        headers: Mapping[str, str] = {},
    ) -> Answer:
        """The reply to a request for a path in the repository or an absolute URL.

        Raises RemoteError for a status that is not accepted and for a reply beyond the limit.
        """
        asked = _Request(method, urljoin(self._base, path), accepted, most_bytes, body, headers)
        answer: Answer | None = None
        for wait_s in (0.0, *(min(0.1 * 2**attempt, 2.0) for attempt in range(self._limits.retries))):
            time.sleep(wait_s)
            try:
                answer = self._logged_in(asked)
            except (requests.RequestException, HTTPError, OSError, ValueError) as error:
                answer, failed = None, error
                continue
            if answer.status in accepted:
                return answer
            if answer.status not in _AGAIN:
                break
        if answer is None:
            raise self._unreached(failed) from None
        raise self._refused(answer)

    @property
    def now_ns(self) -> int:
        """The time by the registry's own clock, as its last reply said."""
        return self._now_ns or time.time_ns()

    def next_page(self, answer: Answer) -> str | None:
        """The URL of the next page of a list, which must be of the same registry."""
        links = requests.utils.parse_header_links(answer.headers.get("Link", ""))
        found = next((one["url"] for one in links if one.get("rel") == "next" and one.get("url")), None)
        if found is None:
            return None
        url = urljoin(answer.url, found)
        if urlsplit(url).netloc != self._host:
            raise self.garbage("its list goes on at another host")
        return url

    def garbage(self, told: str) -> RemoteError:
        """The error for a reply that no registry gives."""
        return RemoteError(f"{self._url} cannot be used ({told}); check that it is an OCI registry")

    def close(self) -> None:
        """Close the connections."""
        self._session.close()

    def _logged_in(self, asked: _Request) -> Answer:
        """The reply to a request, sent again with credentials if the registry wants some."""
        ours = urlsplit(asked.url).netloc == self._host
        for authorization in self._authorizations():
            login = {"Authorization": authorization} if ours and authorization else {}
            answer = self._sent(asked._replace(headers={**asked.headers, **login}))
            challenge = answer.headers.get("WWW-Authenticate")
            if answer.status not in {401, 403} or not ours or not challenge:
                break
            with self._lock:
                if self._authorization == authorization:
                    self._authorization = self._authorized(challenge)
        return answer

    def _authorizations(self) -> Iterator[str | None]:
        """The header as it is, and as it is after the first refusal if that changed it."""
        before = self._authorization
        yield before
        if self._authorization != before:
            yield self._authorization

    def _sent(self, asked: _Request) -> Answer:
        began = time.monotonic()
        with self._session.request(
            asked.method,
            asked.url,
            data=None if asked.body is None else _Body(asked.body, self._limits),
            headers={"Accept-Encoding": "identity", **asked.headers},
            stream=True,
            timeout=(self._limits.connect_s, self._limits.request_s),
        ) as response:
            said = response.status_code in asked.accepted
            most_bytes = asked.most_bytes if said else _MOST_SAID
            data = self._whole(response.raw, most_bytes, began, cut=not said)
            with suppress(KeyError, TypeError, ValueError):
                self._now_ns = int(parsedate_to_datetime(response.headers["Date"]).timestamp()) * 10**9
            return Answer(response.status_code, response.headers, data, response.url)

    def _whole(self, raw: Any, most_bytes: int, began: float, *, cut: bool) -> bytes:
        """The bytes of a reply, not more than allowed."""
        parts, size = [], 0
        while part := raw.read1(_PART, decode_content=False):
            _require_time(began, self._limits, size)
            parts.append(part)
            size += len(part)
            if size > most_bytes:
                if cut:
                    break
                raise self.garbage(f"a reply of more than {most_bytes} bytes")
        return b"".join(parts)

    def _authorized(self, challenge: str) -> str | None:
        """The header that a challenge asks for; None if there are no credentials for it."""
        import oras.auth.utils

        basic = _credentials(self._host)
        if not challenge.lower().startswith("bearer"):
            return basic
        asked = oras.auth.utils.parse_auth_header(challenge)
        realm = str(asked.realm or "")
        if urlsplit(realm).scheme not in {"https", self._scheme}:
            raise self.garbage("it wants a password to be sent without TLS")
        query = {key: text for key in ("service", "scope") if (text := getattr(asked, key))}
        url = f"{realm}{'&' if urlsplit(realm).query else '?'}{urlencode(query)}"
        headers = {"Authorization": basic} if basic else {}
        answer = self._sent(_Request("GET", url, (200,), MOST_JSON_BYTES, None, headers))
        if answer.status != 200:
            return None
        try:
            told = msgspec.json.decode(answer.data, type=dict[str, Any])
        except (msgspec.MsgspecError, RecursionError):
            raise self.garbage("a token that cannot be parsed") from None
        token = told.get("token") or told.get("access_token")
        return f"Bearer {token}" if isinstance(token, str) else None

    def _unreached(self, error: Exception) -> RemoteError:
        """The error for a request without a reply; libraries wrap the system's message many times."""
        chain: list[BaseException] = [error]
        while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None and len(chain) < 20:
            chain.append(inner)
        names = " ".join(type(one).__name__ for one in chain)
        told = [one.strerror for one in chain if isinstance(one, OSError) and one.strerror]
        reason = told[-1] if told else str(error)
        remedy = "check that it runs, and the host and the port in its URL"
        if "Timeout" in names:
            reason = f"it took more than {self._limits.connect_s:g} or {self._limits.request_s:g} s"
            remedy = "check the network, or allow more time with --timeout"
        elif "SSL" in names:
            reason = str(chain[-1])
            remedy = "add its certificate to REQUESTS_CA_BUNDLE, or write oci+http:// if it has none"
        return RemoteError(f"{self._url} cannot be reached ({printable(reason)}); {remedy}")

    def _refused(self, answer: Answer) -> RemoteError:
        try:
            (first, *_) = msgspec.json.decode(answer.data, type=dict[str, Any])["errors"]
            said = f" {first['code']}: {first['message']}"
        except (msgspec.MsgspecError, RecursionError, LookupError, TypeError, ValueError):
            said = ""
        remedy = _REMEDIES.get(answer.status, "check its log")
        told = printable(f"{answer.status}{said}")
        return RemoteError(f"{self._url} refuses ({told}); {remedy.format(host=self._host)}")


def _require_time(began: float, limits: Limits, moved_bytes: int) -> None:
    if time.monotonic() > began + limits.for_bytes(moved_bytes):
        raise requests.ReadTimeout


def _as_it_is(request: requests.PreparedRequest) -> requests.PreparedRequest:
    return request


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
