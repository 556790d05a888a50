"""A credential, wherever it is given, is on neither output, whatever happens (a2a-cli 12.1)."""

import json
import re

import pytest
from tests.kit.cli_canary import CANARY, PLACES, Place, guarded
from tests.kit.cli_harness import AGENT, holdfast

from holdfast.errors import A2AConnectionError
from holdfast.testing import FakeAgent, FakeNetwork, Respond

FORMS = pytest.mark.parametrize("form", ["text", "json"])


EVERY_PLACE = pytest.mark.parametrize("place", PLACES.values(), ids=PLACES)


class Telling:
    """An engine that tells, when a call fails, everything that it was given."""

    def __init__(self, error):
        self._error = error
        self._network = FakeNetwork(guarded("query"))

    async def request(self, request):
        if request.method == "GET":
            return await self._network.request(request)
        raise self._error(f"{request.url} {dict(request.headers)} {request.body.decode()}")

    def stream(self, request):
        raise NotImplementedError

    async def close(self):
        pass


def refused(message):
    return A2AConnectionError(message, failure="refused", executed=False)


@pytest.fixture
def run(tmp_path):
    """Runs a command with the credential in its place; it must not come out of it."""

    def run(place, *words, form="text", **more):
        own = tmp_path / ".config" / "a2a-cli" / ".env"
        own.parent.mkdir(parents=True, exist_ok=True)
        own.write_text(place.file)
        own.chmod(0o600)
        done = holdfast(
            *words, *place.words, "-o", form, card=place.card or None, env=place.env,
            home=tmp_path, **more,
        )  # fmt: skip
        for piece in ("canary", "4bd1f0a7"):
            assert piece not in done.out
            assert piece not in done.err
        return done

    return run


@EVERY_PLACE
@FORMS
def test_when_all_is_well(run, place, form):
    done = run(place, "send", "hello", "--debug", "--verbose", form=form)
    assert done.exit in {0, 2, 3}
    assert done.exit == 2 or "Debug: > GET http://agent.test" in done.err


@pytest.mark.rule("P27")
@EVERY_PLACE
@FORMS
@pytest.mark.parametrize("error", [refused, ZeroDivisionError])
def test_when_an_error_tells_everything(run, place, form, error):
    run(place, "send", "hello", "--debug", form=form, engine=lambda **_: Telling(error))


@pytest.mark.rule("P27")
@EVERY_PLACE
@FORMS
def test_when_it_is_not_taken(run, place, form):
    agent = FakeAgent()
    body = f'{{"error": "no {CANARY}"}}'.encode()
    agent.inject(Respond(status=401, body=body), on="SendMessage", times=9)
    run(place, "send", "hello", "--debug", form=form, agent=agent)


@EVERY_PLACE
@FORMS
def test_when_it_is_tried_again(run, place, form):
    agent = FakeAgent()
    body = json.dumps({"error": {"status": "UNAVAILABLE", "message": f"no {CANARY}"}}).encode()
    busy = Respond(status=503, headers={"retry-after": "1"}, body=body)
    agent.inject(busy, on="GetTask", times=2)
    words = ["task", "get", "t", "--transport", "HTTP+JSON"]
    done = run(place, *words, form=form, agent=agent)
    assert done.exit in {2, 3} or "retrying" in done.err


@EVERY_PLACE
@FORMS
def test_when_the_settings_are_shown(run, place, form):
    run(place, "config", "show", form=form)


@EVERY_PLACE
@FORMS
def test_when_another_option_is_wrong(run, place, form):
    assert run(place, "send", "hello", "--timeout", "soon", form=form).exit == 2


@EVERY_PLACE
def test_when_help_is_asked_for(run, place):
    assert run(place, "send", "--help").exit == 0


@EVERY_PLACE
def test_when_there_is_a_command_to_continue(run, place):
    done = run(place, "send", "hello", "--async")
    assert done.exit in {0, 2, 3}


@pytest.mark.rule("P27")
@pytest.mark.parametrize("location", ["header", "query", "cookie"])
@FORMS
def test_on_the_wire_as_it_is_logged(run, location, form):
    agent = guarded(location)
    place = Place(words=("--api-key", CANARY.replace("/", "-")))
    done = run(place, "send", "hello", "--debug", form=form, agent=agent)
    assert done.exit == 0
    assert CANARY.replace("/", "-") not in done.err
    (call,) = agent.calls("SendMessage")
    assert "canary" in f"{call.url} {dict(call.headers)}"
    shown = {"header": "the-key: ***", "query": "/rpc?the-key=***", "cookie": "cookie: ***"}
    assert shown[location] in done.err


def test_a_query_too_short_to_be_a_key_is_not_shown_either():
    card = f"{AGENT}/card.json?v=7"
    agent = FakeAgent()
    done = holdfast("send", "hello", "--async", "--debug", agent=agent, card=card)
    assert agent.received[0].url == card
    assert f"Debug: > GET {AGENT}/card.json?v=*** " in done.err
    agent.inject(Respond(status=404), on="GetAgentCard", times=9)
    done = holdfast("task", "get", "t", agent=agent, card=card)
    assert f"Hint: check --agent-card {AGENT}/card.json?v=***: " in done.err


@FORMS
def test_in_the_address_of_a_file_that_is_sent(run, form):
    agent = FakeAgent()
    words = ["send", "--file", f"https://me:{CANARY}@e.test/a.pdf?sig={CANARY}", "--debug"]
    done = holdfast(*words, "--verbose", "--async", "-o", form, agent=agent)
    sent = json.loads(agent.calls("SendMessage")[0].body)["params"]["message"]["parts"][0]
    assert sent["url"].count(CANARY) == 2
    assert CANARY not in done.err
    if form == "text":  # the document is what the agent says, word by word
        assert "URL: https://***@e.test/a.pdf?sig=***\n" in done.out.partition("Task ID")[0]


def test_the_header_of_a_reply_shows_no_cookie():
    agent = FakeAgent()
    headers = {"set-cookie": f"session={CANARY}", "x-short": "1", "location": f"/x?t={CANARY}"}
    agent.inject(Respond(status=404, headers=headers), on="GetTask")
    done = holdfast("task", "get", "t", "--debug", agent=agent)
    assert CANARY not in done.err
    assert re.search(r"< 404 .*set-cookie: \*\*\*, x-short: 1, location: /x\?t=\*\*\*", done.err)


@FORMS
@pytest.mark.parametrize("param", ["X-One:TOPSECRET", "x-flag:pw12", "server:TOPSECRET"])
def test_no_service_parameter_shows_its_value_whatever_it_is_called(form, param):
    name, value = param.split(":")
    agent = FakeAgent()
    agent.inject(Respond(status=500, body=f"no {value}".encode()), on="SendMessage")
    done = holdfast("send", "hello", "--svc-param", param, "--debug", "-o", form, agent=agent)
    assert done.exit == 1
    assert value not in done.out + done.err
    assert f"{name.lower()}: ***" in done.err


def test_secret_too_short_to_be_searched_is_not_logged_either():
    done = holdfast("send", "hello", "--async", "--svc-param", "x-one:k7", "--debug")
    assert "x-one: ***" in done.err


def test_the_headers_of_the_protocol_itself_are_logged_as_they_are():
    extension = "https://e.test/extension/v1"
    words = ["--svc-param", f"a2a-extensions:{extension}", "--debug"]
    done = holdfast("send", "hello", "--async", *words)
    assert f"a2a-extensions: {extension}" in done.err
    assert "a2a-version: 1.0" in done.err


def test_short_key_in_a_service_parameter_is_warned_about_without_verification():
    done = holdfast("send", "hello", "--async", "--svc-param", "x-one:pw", "--insecure")
    assert "SECURITY: a credential or service parameter" in done.err
