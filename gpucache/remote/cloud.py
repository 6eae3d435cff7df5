"""A store in a bucket of S3, Google Cloud Storage or Azure: ``s3://``, ``gs://`` or ``az://BUCKET[/PREFIX]``.

Requests are made by obstore, which reads each cloud's own variables, such as AWS_ENDPOINT_URL, AWS_REGION or
GOOGLE_BASE_URL. Owns the defaults: credentials are those that somebody configured, in the variables of
``_KINDS``, AWS's files or gcloud's; else requests are unsigned, as obstore would ask the machine's metadata
address. Nothing on this machine is reached through a proxy. Must not know the content of objects.
"""

import os
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from configparser import Error, RawConfigParser
from contextlib import contextmanager, suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from gpucache.errors import RemoteError, UsageError
from gpucache.remote.objects import (
    NO_FILES,
    Files,
    Limits,
    Listed,
    Objects,
    batches,
    bounded,
    in_parallel,
    missing,
    require_object_name,
    require_removable,
)
from gpucache.remote.relay import Bytes, Relay

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore

_AT_ONCE_REMOVED = 1000
_PAGE = 1000
_PAGE_BYTES, _REQUEST_BYTES = 16 << 20, 64 << 10
"""The bytes of the replies with so many objects of a list, and of the requests for them: honest servers send
them by one or two pages of 1 kB an object. Also those of any reply beside an object, such as an error's."""
_LARGEST_REPLACED = 1 << 30
_TRIES = 30
"""How often replacing an object is tried again after another writer changed it."""
_URL = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]*)/?((?:[A-Za-z0-9_=+-][A-Za-z0-9._=+-]*/?)*)")
_AWS_KEYS = {
    "access_key_id": "aws_access_key_id",
    "secret_access_key": "aws_secret_access_key",
    "token": "aws_session_token",
}


class _Kind(NamedTuple):
    store: str
    endpoints: tuple[str, ...]
    """Variables that name the server, the first that is set counts."""
    credentials: tuple[str, ...]
    """Variables that are credentials or lead to them, all of one line together; last the one that allows
    asking the metadata address."""
    remedy: str
    unsigned: Mapping[str, object] = {"skip_signature": True}
    """The settings that keep obstore from asking for credentials."""


_KINDS: Mapping[str, _Kind] = {
    "s3": _Kind(
        "S3Store",
        ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
        (
            "AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY",
            "AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_ARN",
            "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
            "AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
            "AWS_EC2_METADATA_DISABLED=false",
        ),
        "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or AWS_PROFILE, or AWS_EC2_METADATA_DISABLED=false "
        "for the role of this instance",
    ),
    "gs": _Kind(
        "GCSStore",
        ("GOOGLE_BASE_URL",),
        (
            "GOOGLE_APPLICATION_CREDENTIALS",
            "GOOGLE_SERVICE_ACCOUNT",
            "GOOGLE_SERVICE_ACCOUNT_PATH",
            "GOOGLE_SERVICE_ACCOUNT_KEY",
            "GOOGLE_BEARER_TOKEN",
            "GCE_METADATA_HOST",
        ),
        "set GOOGLE_APPLICATION_CREDENTIALS, or GCE_METADATA_HOST=metadata.google.internal for the account "
        "of this instance",
        {"skip_signature": True, "bearer_token": ""},  # it would sign writes
    ),
    "az": _Kind(
        "AzureStore",
        ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT", "AZURITE_BLOB_STORAGE_URL"),
        (
            *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY"),
            *("AZURE_STORAGE_SAS_KEY", "AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_TOKEN"),
            *("AZURE_STORAGE_USE_EMULATOR", "AZURE_USE_AZURE_CLI=true"),
            "AZURE_CLIENT_ID AZURE_CLIENT_SECRET AZURE_TENANT_ID",
            "AZURE_CLIENT_ID AZURE_FEDERATED_TOKEN_FILE AZURE_TENANT_ID",
            "AZURE_CREDENTIAL_TYPE=managed_identity",
        ),
        "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY or AZURE_STORAGE_SAS_TOKEN, or "
        "AZURE_CREDENTIAL_TYPE=managed_identity for the identity of this machine",
    ),
}
_NO_BUCKET = "NoSuchBucket|ContainerNotFound"
# What obstore's errors contain, and its meaning. They are pages of text with URLs and replies: none is shown.
_MEANINGS = (
    ("relay: OverflowedError", "{server} returns more than gpucache accepts; check its address"),
    (_NO_BUCKET, "the bucket {bucket} does not exist; create it or check its name"),
    (
        "latest/api/token|latest/meta-data|computeMetadata|oken request|AssumeRole|169\\.254\\.",
        "the service that gives credentials for {url} gives none; {remedy}",
    ),
    (
        "PermissionDenied|Unauthenticated|ExpiredToken|status: 40[13]",
        "{url} refuses {access}{code}; {remedy}",
    ),
    ("^Encountered object", "{url} contains objects of another program; name an unused prefix below it"),
    ("relay: gaierror", "the host of {server} cannot be found; check its name and the network"),
    (
        "InvalidCertificate",
        "the certificate of {server} is not trusted; check its address, or set SSL_CERT_FILE",
    ),
    (
        "kind: Connect|relay: (Connection\\w*|OS)Error",
        "{server} cannot be reached; check its address and the network, or the proxy",
    ),
    (
        "TimedOut|kind: Timeout|relay: TimeoutError",
        "{server} does not respond in time; check its address and the network",
    ),
    ("without LOCATION", "{url} is in another region; set AWS_REGION to the region of the bucket"),
    ("status: \\d", "{server} returns an error{code}; check its address, or try again later"),
    ("", "{server} returns something other than an object; check its address"),
)
_process = 0


class CloudObjects(Objects):
    """See ``gpucache.remote.objects.Objects``."""

    def __init__(
        self,
        url: str,
        made: "Callable[[int, bool], ObjectStore]",
        meanings: Mapping[str, object],
        limits: Limits,
        relay: Relay,
    ) -> None:
        """``made`` gives the store with the time for requests of so many bytes, which are read or not; its
        requests go through the relay."""
        self.url = url
        self._relay = relay
        self._made = cache(made)
        self._store = self._made(0, False)
        self._limits = limits
        self._meanings = meanings
        """The meanings of errors, for sentences."""

    def listed(self, prefix: str, expected: int = 0) -> Iterator[Listed]:
        """Pages of 1,000, each requested when it is needed."""
        import obstore

        def pages() -> Iterator[Listed]:
            found = iter(obstore.list(self._store, prefix, chunk_size=_PAGE))
            while True:
                with self._asked(_PAGE_BYTES, _REQUEST_BYTES):
                    page = next(found, ())
                if not page:
                    return
                for one in page:
                    yield Listed(one["path"], one["size"], int(one["last_modified"].timestamp()) * 10**9)

        yield from bounded(pages(), prefix, expected, self.url)

    def read(self, names: Iterable[str], limit_bytes: int) -> Iterator[tuple[str, bytes | None]]:
        """Objects; a reply has the size before the bytes."""
        store = self._store_for(limit_bytes, reads=True)
        return in_parallel(lambda name: (name, self._read(name, limit_bytes, store)[0]), names)

    def create(
        self,
        objects: Iterable[tuple[str, bytes]],
        files: Files = NO_FILES,  # noqa: ARG002 - all objects are files
    ) -> Iterator[tuple[str, bool]]:
        """One conditional request for each object."""
        return in_parallel(
            lambda pair: (pair[0], self._put(*pair, "create")), objects, weight=lambda pair: len(pair[1])
        )

    def replace(self, name: str, change: Callable[[bytes | None], bytes]) -> None:
        """Compare and swap by the ETag or the generation of the object as read."""
        for tried in range(_TRIES):
            data, version = self._read(name, _LARGEST_REPLACED, self._store)
            if self._put(name, change(data), version or "create"):
                return
            time.sleep(random.random() * min(0.02 * 2**tried, 1.0))
        raise RemoteError(f"other machines change {name} in {self.url} all the time; try again later")

    def remove(self, names: Iterable[str]) -> None:
        """Remove many objects with one request, if the cloud has such requests."""
        import obstore

        for group in batches(map(require_removable, names), _AT_ONCE_REMOVED):
            with self._asked(_PAGE_BYTES, _PAGE_BYTES):
                try:
                    obstore.delete(self._store, group)
                except FileNotFoundError:  # some clouds report it at the first that is missing
                    for name in group:
                        with suppress(FileNotFoundError):
                            obstore.delete(self._store, name)

    def close(self) -> None:
        """Other connections than the relay's end with the last reference to the store."""
        self._relay.close()

    def _store_for(self, size_bytes: int, *, reads: bool = False) -> "ObjectStore":
        """The store for objects of a size: one for all of less than 1 MiB, and for each power of two."""
        return self._made(1 << (size_bytes - 1).bit_length() if size_bytes > 1 << 20 else 0, reads)

    def _read(self, name: str, limit_bytes: int, store: "ObjectStore") -> tuple[bytes | None, dict[str, str]]:
        """The bytes of an object and the mark of this version of it."""
        import obstore

        with self._asked(limit_bytes + limit_bytes // 16 + _PAGE_BYTES, _REQUEST_BYTES):
            try:
                found = obstore.get(store, require_object_name(name))
            except FileNotFoundError as error:
                if re.search(_NO_BUCKET, str(error)):
                    raise
                return None, {}
            data = found.bytes().to_bytes() if found.meta["size"] <= limit_bytes else None
            version = {"e_tag": found.meta["e_tag"], "version": found.meta["version"]}
            return data, {part: text for part, text in version.items() if text}

    def _put(self, name: str, data: bytes, mode: Any) -> bool:
        """Write an object, unless it is not as the mode says."""
        import obstore
        from obstore.exceptions import AlreadyExistsError, PreconditionError

        size = (len(data) + len(data) // 16 + _REQUEST_BYTES) * (self._limits.retries + 1)
        with self._asked(_PAGE_BYTES, size):
            try:
                store = self._store_for(len(data))
                obstore.put(store, require_object_name(name), data, mode=mode, use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            except FileNotFoundError as error:  # one that was there and is gone, or no bucket
                if mode == "create" or re.search(_NO_BUCKET, str(error)):
                    raise
                return False
        return True

    @contextmanager
    def _asked(self, received_bytes: int, sent_bytes: int) -> Iterator[None]:
        """A context around a request for so many bytes, which turns its failure into one sentence."""
        from obstore.exceptions import BaseError

        global _process
        _process = _process or os.getpid()
        if _process != os.getpid():  # obstore's threads are not copied by a fork, so it would wait for ever
            raise RemoteError(
                f"{self.url} cannot be reached from a process that was forked after its parent used such a "
                "store; start it with the method 'spawn'"
            )
        with self._relay.allowing(Bytes(received_bytes, sent_bytes)) as failure:
            try:
                yield
            except (BaseError, OSError, ValueError) as error:
                text = f"{error} relay: {type(failure()).__name__}"
                code = re.search(r"<Code>(\w{1,64})<|status: (\d{3})", text)
                words = {**self._meanings, "code": f" ({code[1] or code[2]})" if code else ""}
                meaning = next(meaning for pattern, meaning in _MEANINGS if re.search(pattern, text))
                raise RemoteError(meaning.format(**words)) from None


def open_url(url: str, limits: Limits) -> CloudObjects:
    """The store of a bucket; makes no request."""
    try:
        import obstore.store
        from obstore.exceptions import BaseError
    except ImportError:
        raise missing("obstore", url) from None
    match = _URL.fullmatch(url)
    if match is None:
        raise UsageError(
            "a store in a bucket is named s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, "
            "of letters, digits and ._=+-; the variables of that cloud name its server and the credentials"
        )
    scheme, bucket, prefix = match.groups()
    kind, limits = _KINDS[scheme], limits._replace(retries=limits.retries or 1)  # a server closes idle ones
    config = _aws_files(os.environ) if scheme == "s3" else {}
    endpoint = config.get("endpoint") or next(filter(None, map(os.environ.get, kind.endpoints)), "")
    if scheme == "az" and not endpoint and os.environ.get("AZURE_STORAGE_USE_EMULATOR"):
        endpoint = "http://127.0.0.1:10000"
    signed = "access_key_id" in config or _has_credentials(scheme, os.environ)
    try:
        host = urlsplit(endpoint)
        make: Callable[..., ObjectStore] = getattr(obstore.store, kind.store)

        def made(size_bytes: int, reads: bool) -> "ObjectStore":
            idle, request = (timedelta(seconds=limits.for_bytes(size)) for size in (0, size_bytes))
            # Of a download only the largest size is known, so a server that stalls is not given its time.
            stalled: ClientConfig = {"read_timeout": idle} if reads else {}
            return make(
                bucket,
                prefix=prefix.strip("/") or None,
                config=config if signed else {**config, **kind.unsigned},
                client_options={
                    "proxy_url": relay.url,
                    "http1_only": True,
                    "allow_http": host.scheme == "http",
                    "connect_timeout": timedelta(seconds=limits.connect_s),
                    "timeout": request,
                    **stalled,
                },
                # No try begins after the time of one, so two of them are the longest that a request takes.
                retry_config={"max_retries": limits.retries, "retry_timeout": idle if reads else request},
            )

        relay = Relay(limits.connect_s)
        url = url.rstrip("/")
        words = {
            "url": url,
            "bucket": bucket,
            "server": f"{url} at {host.scheme}://{host.netloc.rpartition('@')[2]}" if endpoint else url,
            "access": "the credentials of this environment" if signed else "requests without credentials",
            "remedy": kind.remedy,
        }
        return CloudObjects(url, made, words, limits, relay)
    except (BaseError, ValueError):
        raise UsageError(
            f"{url} cannot be opened with the variables of this environment; {kind.remedy}"
        ) from None


def _has_credentials(scheme: str, environ: Mapping[str, str]) -> bool:
    """Whether somebody configured credentials, or allowed to ask the machine's metadata address for them."""
    for group in _KINDS[scheme].credentials:
        parts = [part.partition("=") for part in group.split()]
        if all(
            environ.get(name, "").lower() == value if value else environ.get(name) for name, _, value in parts
        ):
            return True
    # The file of ``gcloud auth application-default login``, where obstore looks for it.
    place = environ.get("APPDATA") or Path(environ.get("HOME", "/nonexistent"), ".config")
    return scheme == "gs" and Path(place, "gcloud", "application_default_credentials.json").is_file()


def _aws_files(environ: Mapping[str, str]) -> dict[str, str]:
    """The keys, region and server that the environment lacks, from AWS's files for the profile."""
    profile = environ.get("AWS_PROFILE") or "default"
    values: dict[str, str] = {}
    for variable, usual in (
        ("AWS_CONFIG_FILE", "~/.aws/config"),
        ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ):
        parser = RawConfigParser(strict=False)
        try:
            parser.read(os.path.expanduser(environ.get(variable) or usual), "utf-8")  # noqa: PTH111 - without a home
        except (Error, UnicodeDecodeError):
            raise UsageError(
                f"{environ.get(variable) or usual} cannot be read as AWS's file of profiles; fix it"
            ) from None
        for section in filter(parser.has_section, (profile, f"profile {profile}")):
            values |= parser[section]
    found = {}
    if not _has_credentials("s3", environ):
        found = {ours: values[name] for ours, name in _AWS_KEYS.items() if name in values}
        if environ.get("AWS_PROFILE") and len(found) < 2:
            raise UsageError(
                f"the AWS profile {profile!r} has no access keys; run "
                f"'eval \"$(aws configure export-credentials --profile {profile} --format env)\"' first"
            )
    if "region" in values and not (environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION")):
        found["region"] = values["region"]
    if "endpoint_url" in values and not any(map(environ.get, _KINDS["s3"].endpoints)):
        found["endpoint"] = values["endpoint_url"]
    return found
