"""The cache of agent cards between commands: what is kept, for whom, and how safely.

Tests carry the identifiers of the a2a-cli specification, as in `tests.cli.test_specification`.
"""

import json
import os
from pathlib import Path

import pytest
from tests.kit.card_signing import SIGNER, Signer, document
from tests.kit.cli_harness import VirtualWall, holdfast

from holdfast._cli.environment import user_cache
from holdfast.extend import HttpReply

AGENT = "https://agent.test"
INTERFACE = {"url": f"{AGENT}/rpc", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
PLAIN = document(supportedInterfaces=[INTERFACE])

posix = pytest.mark.skipif(os.name != "posix", reason="owners and modes of files")


class CardServer:
    """The server of a card, as an engine; it answers 304 to whoever has the card already."""

    def __init__(self, card=PLAIN, *, status=200, address="93.184.216.34", **headers):
        self.card, self.status, self.address = card, status, address
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}
        self.requests = []
        self.verify = []

    def __call__(self, *, verify, tls=None):
        self.verify.append(verify)
        return self

    async def request(self, request):
        self.requests.append(request)
        status, body = self.status, json.dumps(self.card).encode()
        etag = self.headers.get("etag")
        if etag is not None and request.headers.get("if-none-match") == etag:
            status, body = 304, b""
        return HttpReply(status=status, headers=self.headers, body=body, address=self.address)

    def stream(self, request):
        raise AssertionError(request.url)

    async def close(self):
        pass


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "home" / "cards"


@pytest.fixture
def wall():
    return VirtualWall()


@pytest.fixture
def get(cache, wall):
    def get(server, *words, card=AGENT, **more):
        words = ("card", "get", *words, "-o", "json")
        more = {"cache": cache, "wall": wall, **more}
        return holdfast(*words, engine=server, card=card, **more)

    return get


def conditions(server):
    return [request.headers.get("if-none-match") for request in server.requests]


# ── As the headers allow ─────────────────────────────────────────────────────────────────────


def test_card_get_001_the_card_is_cached_between_commands_while_it_is_fresh(get, wall):
    server = CardServer(cache_control="max-age=60", age="10", etag='"one"')
    first = get(server)
    server.card = document(name="Newer", supportedInterfaces=[INTERFACE])
    assert (get(server).json, len(server.requests)) == (first.json, 1)

    server.headers["etag"] = '"two"'
    wall.start += 51
    assert get(server).json["name"] == "Newer"
    assert conditions(server) == [None, '"one"']


@pytest.mark.parametrize("headers", [{"cache_control": "no-cache"}, {}], ids=["no-cache", "none"])
def test_card_get_001_a_cached_card_is_revalidated_where_its_headers_do_not_say_it_is_fresh(
    get, headers
):
    server = CardServer(etag='"one"', **headers)
    assert [get(server).json["name"] for _ in range(3)] == [PLAIN["name"]] * 3
    assert conditions(server) == [None, '"one"', '"one"']


def test_a_revalidated_card_is_fresh_as_the_304_says(get, wall):
    server = CardServer(etag='"one"', cache_control="max-age=5")
    get(server)
    wall.start += 6
    for _ in range(2):
        assert get(server).json["name"] == PLAIN["name"]
    assert conditions(server) == [None, '"one"']


@pytest.mark.parametrize(
    "headers",
    [
        {"cache_control": "no-store, max-age=60", "etag": '"one"'},
        {"cache_control": "max-age=60", "vary": "*"},
        {},
    ],
)
def test_a_card_that_must_not_or_cannot_be_kept_leaves_no_file(get, cache, headers):
    server = CardServer(**headers)
    for _ in range(2):
        assert get(server).exit == 0
    assert conditions(server) == [None, None]
    assert not cache.exists()


def test_a_cached_card_is_asked_for_again_after_a_day_and_where_the_clock_went_back(get, wall):
    server = CardServer(cache_control="max-age=31536000")
    get(server)
    wall.start -= 10
    get(server)
    wall.start += 86_401
    get(server)
    assert len(server.requests) == 3


def test_a_card_that_is_gone_is_forgotten(get, cache, wall):
    server = CardServer(cache_control="max-age=5")
    get(server)
    wall.start += 6
    server.status = 404
    assert get(server).exit == 3
    assert list(cache.iterdir()) == []


def test_no_cache_neither_reads_nor_writes_cards(get, cache):
    server = CardServer(cache_control="max-age=60")
    get(server, "--no-cache")
    assert not cache.exists()
    get(server)
    get(server, "--no-cache")
    get(server, env={"A2ACLI_NO_CACHE": "1"})
    assert len(server.requests) == 4


# ── For whom ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.rule("P21")
def test_a_cached_card_answers_only_the_same_address_and_tls_mode(get):
    server = CardServer(cache_control="max-age=60", vary="A2A-Version")
    for words in ((), ("--insecure",), (), ("--insecure",)):
        get(server, *words)
    get(server, card=f"{AGENT}/other/agent-card.json")
    assert len(server.requests) == 3


@pytest.mark.rule("P21")
@pytest.mark.parametrize(
    ("words", "card"),
    [
        ((), f"{AGENT}/card.json?key=secret"),
        ((), "http://agent.test"),
        (("--svc-param", "x-key:secret"), AGENT),
    ],
)
def test_a_card_that_may_hold_a_secret_or_came_over_plain_http_is_not_cached(
    get, cache, words, card
):
    server = CardServer(cache_control="max-age=60")
    done = [get(server, *words, card=card) for _ in range(2)]
    assert [one.exit for one in done] == [0, 0]
    if "--svc-param" in words:  # which goes to the agent, and not to the server of its card
        assert not any("x-key" in request.headers for request in server.requests)
        return
    assert len(server.requests) == 2
    assert not cache.exists()


@pytest.mark.rule("P21")
def test_a_card_that_was_fetched_with_credentials_is_not_cached(get, cache):
    server = CardServer(cache_control="max-age=60", www_authenticate="Bearer")
    given = server.request

    async def guarded(request):
        server.status = 200 if "authorization" in request.headers else 401
        return await given(request)

    server.request = guarded
    words = ("--bearer", "t0p-s3cret", "--credential-origin", AGENT)
    assert [get(server, *words).exit for _ in range(2)] == [0, 0]
    assert len(server.requests) == 4
    assert not cache.exists() or not list(cache.iterdir())


@pytest.mark.rule("P21")
def test_a_cached_card_is_held_to_the_reach_of_the_host_that_sent_it(get, cache, wall):
    inside = {**INTERFACE, "url": "http://192.168.1.7/rpc"}
    server = CardServer(document(supportedInterfaces=[inside]), cache_control="max-age=60")
    first = get(server)
    again = get(server)
    assert len(server.requests) == 1
    assert (again.exit, again.out, again.err) == (first.exit, first.out, first.err)
    [file] = cache.iterdir()
    assert json.loads(file.read_bytes())["address"] == "93.184.216.34"
    reach = []
    for kept in (None, cache):
        holdfast("send", "hi", "--async", engine=server, card=AGENT, cache=kept, wall=wall)
        reach.append(server.requests[-1].reach)
        assert server.requests[-1].url == inside["url"]
    assert reach[0] == reach[1] is not None
    assert reach[1].inward == "public"


@pytest.mark.rule("P21")
def test_the_signature_of_a_cached_card_is_verified_again(get, tmp_path):
    keys, other = tmp_path / "keys.json", tmp_path / "other.json"
    keys.write_text(json.dumps(SIGNER.jwks))
    other.write_text(json.dumps(Signer().jwks))
    signed = SIGNER.sign(PLAIN)
    server = CardServer(signed, cache_control="max-age=60")
    words = ("--require-signature", "--card-keys")
    assert get(server, *words, str(keys)).exit == 0
    assert get(server, *words, str(other)).exit != 0
    assert get(server, *words, str(keys)).exit == 0
    assert len(server.requests) == 1


def test_doctor_asks_the_server_whatever_is_cached(get, cache, wall):
    server = CardServer(cache_control="max-age=60", etag='"one"')
    get(server)
    before = len(server.requests)
    holdfast("doctor", engine=server, card=AGENT, cache=cache, wall=wall)
    assert len(server.requests) > before


# ── How safely ───────────────────────────────────────────────────────────────────────────────


@posix
def test_cached_cards_are_in_private_files_of_a_private_directory(get, cache):
    get(CardServer(cache_control="max-age=60"))
    [file] = cache.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert cache.stat().st_mode & 0o777 == 0o700


def _broken(file, cache):
    file.write_bytes(file.read_bytes()[:-9])


def _of_another_request(file, cache):
    content = json.loads(file.read_bytes())
    file.write_text(json.dumps({**content, "key": "another"}))


def _open(file, cache):
    file.chmod(0o604)


def _in_an_open_directory(file, cache):
    cache.chmod(0o750)


def _a_link(file, cache):
    moved = file.rename(cache.parent / "moved")
    file.symlink_to(moved)


def _in_a_linked_directory(file, cache):
    cache.symlink_to(cache.rename(cache.parent / "moved"))


@pytest.mark.rule("P21")
@posix
@pytest.mark.parametrize(
    "spoil",
    [_broken, _of_another_request, _open, _in_an_open_directory, _a_link, _in_a_linked_directory],
)
def test_a_cache_file_that_is_broken_or_open_to_others_is_ignored(get, cache, spoil):
    server = CardServer(cache_control="max-age=60")
    first = get(server)
    [file] = cache.iterdir()
    spoil(file, cache)
    again = get(server)
    assert (again.out, again.err, len(server.requests)) == (first.out, first.err, 2)


@pytest.mark.rule("P21")
@posix
def test_a_cache_of_another_user_is_ignored(get, cache, monkeypatch):
    server = CardServer(cache_control="max-age=60")
    get(server)
    monkeypatch.setattr(os, "geteuid", lambda: cache.stat().st_uid + 1)
    assert get(server).exit == 0
    assert len(server.requests) == 2


def test_a_cache_that_cannot_be_written_makes_no_command_fail(get, tmp_path):
    (tmp_path / "file").touch()
    server = CardServer(cache_control="max-age=60")
    assert get(server, cache=tmp_path / "file" / "cards").exit == 0


def test_the_cache_is_bounded_in_number_and_size(get, cache, monkeypatch):
    monkeypatch.setattr("holdfast._cli.agent.cards._MAX_FILES", 3)
    server = CardServer(cache_control="max-age=60")
    for number in range(5):
        get(server, card=f"{AGENT}/{number}/agent-card.json")
    assert len(list(cache.iterdir())) == 3
    huge = document(description="x" * 300_000, supportedInterfaces=[INTERFACE])
    before = sorted(cache.iterdir())
    assert get(CardServer(huge, cache_control="max-age=60"), card=f"{AGENT}/huge.json").exit == 0
    assert sorted(cache.iterdir()) == before


@pytest.mark.parametrize(
    ("platform", "variables", "where"),
    [
        ("linux", {}, ".cache/holdfast/cards"),
        ("linux", {"XDG_CACHE_HOME": "{home}/x"}, "x/holdfast/cards"),
        ("linux", {"XDG_CACHE_HOME": "relative"}, ".cache/holdfast/cards"),
        ("darwin", {}, "Library/Caches/holdfast/cards"),
        ("win32", {"LOCALAPPDATA": "{home}/local"}, "local/holdfast/Cache/cards"),
    ],
)
def test_the_cache_is_where_the_platform_has_caches(
    monkeypatch, tmp_path, platform, variables, where
):
    monkeypatch.setattr("sys.platform", platform)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value.format(home=tmp_path))
    assert user_cache() == tmp_path / where


def test_without_a_home_there_is_no_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "nowhere")
    assert user_cache() is None
