"""Facts that the doctor may observe of an agent, and the verdict on each."""

from holdfast._doctor.facts import (
    CardFacts,
    InterfaceFacts,
    ListingFacts,
    Observations,
    ReplyFacts,
    SendingFacts,
    StreamFacts,
    SubscriptionFacts,
    TlsFacts,
)
from holdfast.errors import (
    A2AConnectionError,
    A2AHTTPError,
    A2ATimeoutError,
    AgentCardResolutionError,
    AuthenticationError,
    InvalidAgentCardError,
    InvalidAgentResponseError,
    PermissionDeniedError,
)
from holdfast.types import AgentCapabilities, AgentCard, AgentInterface

NOW = 1_767_225_600.0


DAY = 86_400.0


NOT_FOUND = ReplyFacts(status=200, error="TaskNotFoundError", code=-32001)


RESULT = ReplyFacts(status=200, media_type="text/event-stream", is_result=True)


EVENTS = ReplyFacts(status=200, media_type="text/event-stream", is_result=True)


NOBODY = ReplyFacts(failure="the connection was refused")


REFUSED = ReplyFacts(status=401, challenge="Bearer")


HTML = ReplyFacts(status=502, media_type="text/html")


NOT_JSON = ReplyFacts(status=200, media_type="text/html", failure="the reply is not JSON")


def card_facts(*, streaming=True, **facts):
    card = AgentCard(name="A", capabilities=AgentCapabilities(streaming=streaming))
    document = {"name": "A", "supportedInterfaces": []}
    url = "https://a.test/card.json"
    return CardFacts(card=card, document=document, url=url, moved_to=url, **facts)


def interface_facts(**facts):
    interface = AgentInterface(
        url="https://a.test/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
    )
    given = {
        "interface": interface,
        "address": "https://a.test/rpc",
        "number": 1,
        "is_examined": True,
        "task": NOT_FOUND,
        "versions": {"1.0": True, "0.3": False},
        **facts,
    }
    return InterfaceFacts(**given)


def observed(*interfaces, **facts):
    given = {"agent": "https://a.test", "scheme": "https", "card": card_facts(), **facts}
    return Observations(interfaces=list(interfaces), **given)


def sent(*, stream=None, subscription=None, **facts):
    """What was observed when a message was sent."""
    given = {
        "message_id": "m-1",
        "reply": RESULT,
        "task_id": "t-1",
        "state": "TASK_STATE_COMPLETED",
        "stream": stream,
        "subscription": subscription or SubscriptionFacts(),
        **facts,
    }
    return observed(may_send=True, sending=SendingFacts(**given))


def streamed(**facts):
    given = {"opened": EVENTS, "arrivals": [0.1, 2.1], "pieces": 2, "end": "settled", **facts}
    return sent(stream=StreamFacts(**given))


def subscribed(**facts):
    stream = StreamFacts(opened=EVENTS, arrivals=[0.1, 2.1], end="settled")
    return sent(stream=stream, subscription=SubscriptionFacts(**facts))


def tls(**facts):
    return observed(tls=TlsFacts(host="a.test", **facts))


def listed(**facts):
    return observed(interface_facts(listing=ListingFacts(**facts)))


PAGE = ReplyFacts(status=200, media_type="application/json", is_result=True)


def without_card(error):
    return Observations(agent="https://a.test", scheme="https", card_error=error)


BAD_REQUEST = ReplyFacts(status=400, media_type="application/json")


REST = interface_facts(
    interface=AgentInterface(url="https://a.test", protocol_binding="HTTP+JSON"),
    params=BAD_REQUEST,
)


METADATA = interface_facts(scope="metadata")


TABLE = [
    # What keeps a card from coming
    (without_card(A2AConnectionError("no", failure="tls")), "card.reached", "problem"),
    (without_card(A2ATimeoutError("no", phase="connect")), "card.reached", "problem"),
    (without_card(AuthenticationError("no", http_status=401)), "card.found", "problem"),
    (without_card(PermissionDeniedError("no", http_status=403)), "card.found", "problem"),
    (without_card(AgentCardResolutionError("no", http_status=404)), "card.found", "problem"),
    (without_card(A2AHTTPError("no", http_status=500)), "card.found", "problem"),
    (without_card(InvalidAgentCardError("no")), "card.valid", "problem"),
    (without_card(InvalidAgentResponseError("no")), "card.valid", "problem"),
    # The card
    (observed(), "card.found", "ok"),
    (observed(card=card_facts(is_at_legacy_path=True)), "card.found", "warning"),
    (observed(card=card_facts(requires_credentials=True)), "card.access", "info"),
    (observed(), "card.members", "warning"),
    (observed(card=card_facts(headers={"content-type": "text/html"})), "card.type", "warning"),
    (observed(card=card_facts(headers={"last-modified": "x"})), "card.caching", "info"),
    # TLS
    (tls(version="TLSv1.3", not_after=NOW + 90 * DAY), "tls.version", "ok"),
    (tls(version="TLSv1.2", not_after=NOW + 90 * DAY), "tls.certificate", "ok"),
    (tls(version="TLSv1.1"), "tls.version", "warning"),
    (tls(version="TLSv1.3", not_after=NOW + 20 * DAY), "tls.certificate", "warning"),
    (tls(version="TLSv1.3", not_after=NOW - DAY), "tls.certificate", "warning"),
    (tls(version="TLSv1.3"), "tls.certificate", "ok"),
    (tls(version="TLSv1.3", fault="self-signed certificate"), "tls.certificate", "problem"),
    (tls(failure="wrong version number"), "tls.version", "problem"),
    (observed(), "tls.version", "not measured"),
    # Clocks and limits
    (observed(skew=4.9), "clock.skew", "ok"),
    (observed(skew=-299), "clock.skew", "info"),
    (observed(skew=301), "clock.skew", "warning"),
    (observed(), "clock.skew", "not measured"),
    (observed(refusals=1), "limits.rate", "warning"),
    (observed(hints={"x-ratelimit-limit": "3"}), "limits.rate", "info"),
    # Addresses
    (observed(interface_facts()), "address.interface", "ok"),
    (
        observed(interface_facts(address_fault="it is this machine")),
        "address.interface",
        "problem",
    ),
    (observed(interface_facts(scope="private")), "address.interface", "problem"),
    (observed(interface_facts(scope="private"), scope="private"), "address.interface", "ok"),
    (
        observed(interface_facts(scope="metadata"), scope="loopback"),
        "address.interface",
        "problem",
    ),
    (observed(interface_facts(is_card_origin=False)), "address.interface", "warning"),
    (observed(interface_facts(address="http://a.test/rpc")), "address.plain", "warning"),
    # Credentials, where no agent answers
    (observed(interface_facts(task=HTML)), "authentication.asked", "not measured"),
    (observed(interface_facts(task=NOT_JSON)), "authentication.asked", "not measured"),
    (
        observed(interface_facts(task=HTML, unauthorized=HTML), has_credentials=True),
        "authentication.accepted",
        "not measured",
    ),
    # Interfaces and versions
    (observed(interface_facts(task=NOBODY)), "bindings.answers", "problem"),
    (observed(interface_facts(task=HTML)), "bindings.answers", "problem"),
    (observed(interface_facts(task=ReplyFacts(status=429))), "bindings.answers", "warning"),
    (observed(interface_facts(task=REFUSED)), "bindings.answers", "ok"),
    (observed(interface_facts(is_supported=False)), "bindings.answers", "not measured"),
    (observed(interface_facts(is_supported=False)), "bindings.known", "problem"),
    (observed(interface_facts(is_examined=False)), "bindings.answers", "not measured"),
    (observed(interface_facts()), "versions.spoken", "ok"),
    (
        observed(interface_facts(versions={"1.0": False, "0.3": True})),
        "versions.spoken",
        "problem",
    ),
    (
        observed(interface_facts(versions={"1.0": False, "0.3": False})),
        "versions.spoken",
        "problem",
    ),
    (
        observed(interface_facts(versions={"1.0": None, "0.3": False})),
        "versions.spoken",
        "not measured",
    ),
    # Errors
    (observed(interface_facts(params=BAD_REQUEST)), "errors.params", "warning"),
    (observed(REST), "errors.params", "ok"),
    (observed(interface_facts(task=RESULT)), "errors.task", "problem"),
    (observed(interface_facts(method=RESULT)), "errors.method", "warning"),
    (observed(interface_facts(broken=NOBODY)), "errors.broken", "warning"),
    (observed(interface_facts(path=RESULT)), "errors.path", "warning"),
    (observed(interface_facts(path=HTML)), "errors.path", "ok"),
    # The list of tasks
    (listed(reply=PAGE, tasks=2, with_history=1), "list.history", "ok"),
    (listed(reply=PAGE, tasks=2), "list.history", "info"),
    (listed(reply=PAGE), "list.history", "not measured"),
    (listed(reply=PAGE, tasks=2, in_unknown_context=0), "list.context", "ok"),
    (listed(reply=PAGE, tasks=2, in_unknown_context=2), "list.context", "warning"),
    (listed(reply=PAGE, tasks=2, after_future=1), "list.time", "warning"),
    (listed(reply=PAGE, tasks=2), "list.time", "not measured"),
    (listed(reply=HTML), "list.there", "warning"),
    # Streams
    (streamed(), "streaming.begins", "ok"),
    (streamed(opened=PAGE), "streaming.begins", "warning"),
    (streamed(opened=HTML, arrivals=[]), "streaming.begins", "problem"),
    (streamed(), "streaming.flushed", "ok"),
    (streamed(arrivals=[3.0, 3.1], timestamps=[NOW, NOW + 3]), "streaming.flushed", "problem"),
    (
        streamed(arrivals=[0.9, 1.0], timestamps=[NOW, NOW + 1]),
        "streaming.flushed",
        "not measured",
    ),
    (
        streamed(arrivals=[0.1, 0.2], timestamps=[NOW, NOW + 9]),
        "streaming.flushed",
        "not measured",
    ),
    (streamed(arrivals=[3.0, 3.1], timestamps=[NOW]), "streaming.flushed", "not measured"),
    (streamed(arrivals=[3.0], timestamps=[NOW]), "streaming.flushed", "not measured"),
    (streamed(comments=3, silence=15.0), "streaming.keep-alive", "ok"),
    (streamed(comments=3, silence=61.0), "streaming.keep-alive", "warning"),
    (streamed(silence=16.0), "streaming.keep-alive", "warning"),
    (streamed(silence=14.0), "streaming.keep-alive", "not measured"),
    (streamed(end="cut", failure="x"), "streaming.end", "problem"),
    (streamed(end="left"), "streaming.end", "ok"),
    (sent(), "streaming.begins", "not measured"),
    # Subscriptions
    (subscribed(opened=RESULT, begins_with_task=True), "subscribe.snapshot", "ok"),
    (subscribed(opened=RESULT, begins_with_task=False), "subscribe.snapshot", "warning"),
    (subscribed(opened=RESULT), "subscribe.snapshot", "not measured"),
    (subscribed(opened=HTML), "subscribe.snapshot", "problem"),
    (subscribed(), "subscribe.snapshot", "not measured"),
    (subscribed(opened=RESULT, text="right"), "subscribe.overlap", "ok"),
    (subscribed(opened=RESULT, text="repeated"), "subscribe.overlap", "warning"),
    (subscribed(opened=RESULT, text="lost"), "subscribe.overlap", "warning"),
    (subscribed(opened=RESULT), "subscribe.overlap", "not measured"),
    (subscribed(after_end=NOT_FOUND), "subscribe.finished", "ok"),
    (subscribed(after_end=RESULT, events_after_end=1), "subscribe.finished", "info"),
    (subscribed(after_end=NOBODY), "subscribe.finished", "warning"),
    (observed(interface_facts(subscription=NOT_FOUND)), "subscribe.unknown", "ok"),
    (observed(interface_facts(subscription=RESULT)), "subscribe.unknown", "info"),
    (observed(interface_facts(subscription=NOBODY)), "subscribe.unknown", "warning"),
    # Messages
    (sent(in_task=True), "recording.task", "ok"),
    (sent(in_task=False), "recording.task", "warning"),
    (sent(), "recording.task", "not measured"),
    (sent(in_list=False), "recording.list", "warning"),
    (sent(in_recent=False), "recording.time", "warning"),
    (sent(in_recent=True), "recording.time", "ok"),
    (sent(reply=None, task_id=""), "sending.answer", "warning"),
    (sent(reply=NOBODY, task_id=""), "sending.answer", "warning"),
    (sent(reply=HTML, task_id=""), "sending.answer", "problem"),
    (sent(state="TASK_STATE_REJECTED"), "sending.answer", "info"),
    (sent(second_reply=PAGE, second_task_id="t-1"), "sending.twice", "ok"),
    (sent(second_reply=PAGE, second_task_id="t-2"), "sending.twice", "info"),
    (sent(second_reply=HTML), "sending.twice", "ok"),
    (sent(not_sent_reason="no interface answers"), "sending.answer", "not measured"),
]
