"""Buckets: the credentials, the requests to each cloud, and every failure in one sentence."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import pytest

from gpucache.errors import RemoteError, UsageError
from gpucache.remote.objects import Limits, Objects, open_objects
from tests.remote.servers import Scripted, make_bucket, moto_url, pausing, saying, scripted, use_cloud
from tests.remote.test_objects import ONE

_SHORT = Limits(connect_s=2.0, request_s=0.25, retries=1)
_PATIENT = Limits(retries=1)
_KEYS = {"AWS_ACCESS_KEY_ID": "any", "AWS_SECRET_ACCESS_KEY": "s3cret"}
_URLS = {"s3": "s3://bucket/pre/fix", "gs": "gs://bucket/pre/fix", "az": "az://bucket/pre/fix"}
_ENDPOINTS = {"s3": "AWS_ENDPOINT_URL", "gs": "GOOGLE_BASE_URL", "az": "AZURE_STORAGE_ENDPOINT"}
_EMPTY = "HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n"


@pytest.fixture(name="moto", scope="module")
def _moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with moto_url(tmp_path_factory.mktemp("moto")) as url:
        make_bucket(url, "bucket")
        yield url


Use = Callable[..., None]


@pytest.fixture(name="use")
def _use(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Use:
    """Sets variables of clouds, and an account for Azure, which has no buckets without one."""
    use_cloud(monkeypatch, tmp_path, AZURE_STORAGE_ACCOUNT_NAME="account")

    def use(**variables: str) -> None:
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return use


def _failure(call: Callable[[], object], *secrets: str) -> str:
    """The sentence of a failure: one line, without secrets and without the server's text."""
    with pytest.raises(RemoteError) as raised:
        call()
    sentence = raised.value.message
    assert len(sentence.splitlines()) == 1 and len(sentence) < 400
    assert ";" in sentence
    for hidden in ("s3cret", "Debug", "retr", "<", *secrets):
        assert hidden not in sentence
    return sentence


def _calls(store: Objects) -> dict[str, Callable[[], object]]:
    return {
        "listed": lambda: list(store.listed("")),
        "read": lambda: list(store.read(["a"], 10)),
        "create": lambda: list(store.create([("a", b"1")])),
        "replace": lambda: store.replace("a", lambda _: b"1"),
        "remove": lambda: store.remove([ONE]),
    }


def test_a_writer_that_comes_between_is_not_lost(moto: str, use: Use) -> None:
    """A change is applied again to the other writer's result, whether there was an object or not."""
    use(AWS_ENDPOINT_URL=moto, **_KEYS)
    one, other = (open_objects("s3://bucket/many") for _ in range(2))
    for _ in range(2):
        between = iter([lambda old: (old or b"") + b"b"])

        def change(old: bytes | None, between: Iterator[Callable[..., bytes]] = between) -> bytes:
            for others in between:
                other.replace("index", others)
            return (old or b"") + b"a"

        one.replace("index", change)
    assert dict(one.read(["index"], 100)) == {"index": b"baba"}


_FOUND = 'HTTP/1.1 200 OK\r\nETag: "1"\r\nLast-Modified: Mon, 23 Nov 2026 00:00:00 GMT\r\nContent-Length: '


def test_an_object_that_others_always_change_is_given_up(use: Use, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries are bounded. An error of the change itself comes through as it is."""
    monkeypatch.setattr("random.random", lambda: 0.0)

    def answer(client: socket.socket, server: Scripted) -> None:
        replies = {"GET": _FOUND, "PUT": "HTTP/1.1 412 No\r\nContent-Length: "}
        client.sendall(f"{replies[server.requests[-1][:3]]}0\r\n\r\n".encode())

    with scripted(answer) as server:
        use(AWS_ENDPOINT_URL=server.url)
        store = open_objects("s3://bucket")
        assert "all the time" in _failure(lambda: store.replace("a", lambda _: b"1"))
        assert 10 < len(server.requests) < 100
        assert 'if-match: "1"' in server.requests[-1].lower()
        with pytest.raises(ZeroDivisionError):
            store.replace("a", lambda _: bytes(1 // 0))


def test_a_listing_of_other_names_than_objects_have_is_one_sentence(use: Use) -> None:
    """A bucket may belong to something else."""
    one = (
        "<Contents><Key>x//y</Key><Size>1</Size><LastModified>2026-11-23T00:00:00Z</LastModified></Contents>"
    )
    body = f"<ListBucketResult>{one}</ListBucketResult>"
    with scripted(saying(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n{body}")) as server:
        use(AWS_ENDPOINT_URL=server.url)
        assert "objects of another program" in _failure(lambda: list(open_objects("s3://bucket").listed("")))


def test_more_objects_than_a_page_are_listed_and_removed(moto: str, use: Use) -> None:
    """Pages follow each other, of no other prefix that begins alike."""
    use(AWS_ENDPOINT_URL=moto, **_KEYS)
    store = open_objects("s3://bucket/pages")
    names = {f"blobs/ab/ab{number:062x}" for number in range(1002)}
    list(store.create((name, b"") for name in names))
    list(store.create([("blobs-/1", b""), ("a..b/1", b"")]))
    assert {one.name for one in store.listed("blobs/")} == names
    assert all(one.written_ns > 10**18 for one in store.listed(""))
    store.remove(names)
    assert {one.name for one in store.listed("")} == {"blobs-/1", "a..b/1"}


@pytest.mark.parametrize("call", ["listed", "read", "create", "replace"])
def test_a_missing_bucket_is_one_sentence(moto: str, use: Use, call: str) -> None:
    """It names the bucket; removing something from it is not an error."""
    use(AWS_ENDPOINT_URL=moto, **_KEYS)
    store = open_objects("s3://never")
    assert "the bucket never does not exist" in _failure(_calls(store)[call])
    store.remove([ONE])


@pytest.mark.parametrize("call", ["listed", "read", "create", "replace", "remove"])
def test_refused_credentials_are_one_sentence(use: Use, call: str) -> None:
    """It names the variables, and says whether there were any credentials."""
    body = "<Error><Code>AccessDenied</Code><Message>s3cret</Message></Error>"
    refused = f"HTTP/1.1 403 Forbidden\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with scripted(saying(refused)) as server:
        use(AWS_ENDPOINT_URL=server.url)
        said = _failure(_calls(open_objects("s3://bucket"))[call])
        assert "s3://bucket refuses requests without credentials" in said
        assert "(AccessDenied); set AWS_ACCESS_KEY_ID" in said
        use(**_KEYS)
        assert "the credentials of this environment" in _failure(_calls(open_objects("s3://bucket"))[call])


def _hang(_: socket.socket, server: Scripted) -> None:
    server.over.wait()


@pytest.mark.parametrize(
    ("scheme", "call"),
    [
        *(("s3", call) for call in ("listed", "read", "create", "replace", "remove")),
        ("gs", "read"),
        ("az", "read"),
    ],
)
def test_a_server_that_fails_is_one_sentence(use: Use, scheme: str, call: str) -> None:
    """It is gone, hangs, closes early, has an unknown name, fails, or speaks another language."""

    def said(endpoint: str, limits: Limits = _PATIENT) -> str:
        use(**{_ENDPOINTS[scheme]: endpoint})
        return _failure(_calls(open_objects(_URLS[scheme], limits))[call])

    with scripted(_hang) as silent:
        assert "does not respond in time" in said(silent.url, _SHORT)
    assert "cannot be reached" in said(silent.url)
    assert "the host" in said("http://user:s3cret@store.invalid")
    with scripted(saying("HTTP/1.1 500 No\r\nContent-Length: 5\r\n\r\nwrong")) as failing:
        assert "(500)" in said(failing.url)
    with scripted(saying("")) as closing, scripted(saying("+OK\r\n\r\n")) as other:
        assert "returns something other" in said(closing.url)
        assert "returns something other" in said(other.url)


def test_a_large_object_has_more_time(use: Use) -> None:
    """A second for each MiB that it has, beyond the time of a request; an unread limit gives no more."""
    reply = f"{_FOUND}2\r\n\r\nok"
    for place in (len(reply) - 2, 0):
        with scripted(pausing(reply[:place])) as server:
            use(AWS_ENDPOINT_URL=server.url)
            store = open_objects("s3://bucket", _SHORT)
            assert "in time" in _failure(lambda: list(store.read(["a"], 64 << 20)))  # noqa: B023 - called here
    with scripted(pausing("", reply, 1.0)) as server:
        use(AWS_ENDPOINT_URL=server.url)
        store = open_objects("s3://bucket", _SHORT)
        assert list(store.create([("a", bytes(16 << 20))])) == [("a", True)]


def test_bytes_that_do_not_come_are_one_sentence(use: Use) -> None:
    """A length that is not kept; beyond the limit nothing is read."""
    with scripted(saying(f"{_FOUND}9\r\n\r\nless")) as server:
        use(AWS_ENDPOINT_URL=server.url)
        store = open_objects("s3://bucket", _PATIENT)
        assert "something other" in _failure(lambda: list(store.read(["a"], 10)))
    with scripted(saying(f"{_FOUND}99999999999999\r\n\r\n")) as server:
        use(AWS_ENDPOINT_URL=server.url)
        assert list(open_objects("s3://bucket", _PATIENT).read(["a"], 10)) == [("a", None)]


def test_a_connection_that_the_server_closes_at_the_next_request_is_replaced(use: Use) -> None:
    """Servers close idle ones, also where no failure may be tried again."""

    def answer(client: socket.socket, server: Scripted) -> None:
        if len(server.requests) == 2:
            client.shutdown(socket.SHUT_RDWR)
        client.sendall(f"{_FOUND}2\r\n\r\nok".encode())

    with scripted(answer) as server:
        use(AWS_ENDPOINT_URL=server.url)
        store = open_objects("s3://bucket", Limits(retries=0))
        assert [dict(store.read(["a"], 10)) for _ in range(2)] == [{"a": b"ok"}] * 2


@pytest.mark.parametrize("scheme", _URLS)
def test_each_cloud_creates_on_a_condition(use: Use, scheme: str) -> None:
    """The request itself requires that the object must not exist; a reply that it does is False."""
    status = {"s3": "412 Precondition Failed", "gs": "412 Precondition Failed", "az": "409 Conflict"}[scheme]
    with scripted(saying(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n")) as server:
        use(**{_ENDPOINTS[scheme]: server.url})
        assert list(open_objects(_URLS[scheme]).create([("a/b", b"1")])) == [("a/b", False)]
    [head] = server.requests
    assert "/bucket/pre/fix/a/b" in unquote(head.splitlines()[0])
    assert "if-none-match: *" in head.lower() or "x-goog-if-generation-match: 0" in head.lower()
    assert "authorization" not in head.lower().replace("authorization: bearer \r", "")


_METADATA = {
    "s3": ("AWS_METADATA_ENDPOINT", {"AWS_EC2_METADATA_DISABLED": "false"}),
    "gs": ("GCE_METADATA_ROOT", {}),
    "az": ("AZURE_MSI_ENDPOINT", {"AZURE_CREDENTIAL_TYPE": "managed_identity"}),
}


@pytest.mark.parametrize("scheme", _URLS)
def test_the_metadata_address_is_asked_only_where_a_variable_allows_it(use: Use, scheme: str) -> None:
    """Requests are unsigned without credentials; with the variable the address is queried."""
    with scripted(saying(_EMPTY)) as store, scripted(saying(_EMPTY)) as metadata:
        variable, allowed = _METADATA[scheme]
        host = metadata.url.removeprefix("http://")
        use(**{_ENDPOINTS[scheme]: store.url, variable: host if scheme == "gs" else metadata.url})
        use(GCE_METADATA_IP=host)
        for call in _calls(open_objects(_URLS[scheme], _PATIENT)).values():
            with suppress(RemoteError):
                call()
        assert len(store.requests) >= 5 and not metadata.requests
        use(**(allowed or {"GCE_METADATA_HOST": host}))
        for call in _calls(open_objects(_URLS[scheme], _PATIENT)).values():
            assert "that gives credentials for" in _failure(call)
        assert metadata.requests


def test_nothing_on_this_machine_is_reached_through_a_proxy(moto: str, use: Use) -> None:
    """A proxy is for other machines, and NO_PROXY excludes some of them."""
    with scripted(saying(_EMPTY)) as proxy:
        use(**dict.fromkeys(("HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY"), proxy.url))
        for host in ("127.0.0.1", "localhost"):
            use(AWS_ENDPOINT_URL=moto.replace("127.0.0.1", host), **_KEYS)
            assert dict(open_objects("s3://bucket").read(["none"], 10)) == {"none": None}
        assert not proxy.requests
        use(AWS_ENDPOINT_URL="http://store.invalid")
        assert dict(open_objects("s3://bucket").read(["none"], 10)) == {"none": None}
        assert proxy.requests[0].startswith("GET http://store.invalid/bucket/none")
        use(NO_PROXY="store.invalid")
        assert "the host" in _failure(lambda: list(open_objects("s3://bucket", _PATIENT).read(["a"], 10)))
        assert len(proxy.requests) == 1


def _signed(server: Scripted, **variables: str) -> str:
    """The line of the signature of a request."""
    list(open_objects("s3://bucket").read(["a"], 10))
    found = [line for line in server.requests[-1].splitlines() if line.lower().startswith("authorization")]
    return found[0] if found else ""


def test_keys_and_the_region_are_taken_from_the_files_of_aws(use: Use, tmp_path: Path) -> None:
    """Keys are those of AWS_PROFILE; the environment comes first; a profile without keys is an error."""
    (tmp_path / ".aws").mkdir()
    (tmp_path / ".aws" / "credentials").write_text(
        "[default]\naws_access_key_id = ONE\naws_secret_access_key = s\n"
        "[work]\naws_access_key_id = TWO\naws_secret_access_key = s\n"
    )
    config = tmp_path / ".aws" / "config"
    with scripted(saying(_EMPTY)) as server:
        config.write_text(
            f"[default]\nregion = eu-west-1\nendpoint_url = {server.url}\n"
            f"[profile work]\nregion = eu-west-2\nendpoint_url = {server.url}\n"
            "[profile login]\nsso_session = x\n"
        )
        assert "Credential=ONE/" in _signed(server) and "/eu-west-1/s3/" in _signed(server)
        use(AWS_PROFILE="work")
        assert "Credential=TWO/" in _signed(server) and "/eu-west-2/s3/" in _signed(server)
        use(AWS_PROFILE="login", AWS_ENDPOINT_URL=server.url)
        with pytest.raises(UsageError, match="export-credentials"):
            open_objects("s3://bucket")
        use(**_KEYS, AWS_PROFILE="work", AWS_REGION="eu-west-3")
        assert "Credential=any/" in _signed(server) and "/eu-west-3/s3/" in _signed(server)
    config.write_text("no section\n")
    with pytest.raises(UsageError, match="config"):
        open_objects("s3://bucket")


@pytest.mark.parametrize(
    "variables",
    [{"AWS_ACCESS_KEY_ID": "any"}, {"AWS_SECRET_ACCESS_KEY": "s3cret"}, {"AWS_ENDPOINT_URL": "s3cret://["}],
)
def test_variables_that_are_not_complete_are_a_usage_error(use: Use, variables: dict[str, str]) -> None:
    """The sentence names the variables and shows no value."""
    use(**variables)
    with pytest.raises(UsageError, match="AWS_SECRET_ACCESS_KEY") as raised:
        open_objects("s3://bucket")
    assert "s3cret" not in raised.value.message


def test_without_its_library_a_bucket_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message has the command that installs it."""
    monkeypatch.setitem(sys.modules, "obstore", None)
    monkeypatch.setitem(sys.modules, "obstore.store", None)
    with pytest.raises(UsageError, match="pip install obstore"):
        open_objects("s3://bucket")


_FORKED = """
import os, sys
from gpucache.errors import RemoteError
from gpucache.remote.objects import open_objects
open_objects("/nowhere"), open_objects("http://127.0.0.1")
assert "obstore" not in sys.modules
store = open_objects("s3://bucket")
assert dict(store.read(["none"], 10)) == {"none": None}
child = os.fork()
if not child:
    try:
        list(store.read(["none"], 10))
    except RemoteError as error:
        os._exit(7 if "spawn" in error.message else 8)
    os._exit(9)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert dict(store.read(["none"], 10)) == {"none": None}
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked here")
def test_a_forked_process_gets_a_sentence(moto: str, use: Use) -> None:
    """Threads of its parent would never answer. Only such a URL imports the library."""
    use(AWS_ENDPOINT_URL=moto, **_KEYS)
    subprocess.run([sys.executable, "-W", "ignore", "-c", _FORKED], check=True)
