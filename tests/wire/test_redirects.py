"""Redirects: allowed targets, and the headers that are sent there."""

from urllib.parse import urlsplit

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import any_text, given

from holdfast._wire.http import Progress
from holdfast._wire.network_scope import NetworkReach
from holdfast._wire.origins import origin
from holdfast._wire.redirects import follow
from holdfast.errors import A2AHTTPError
from holdfast.extend import HttpReply, HttpRequest
from holdfast.policies import Timeouts

HERE = "https://a.example/rpc?key=1"
WITH_KEY = "https://a.example/card?lang=en&v=1&api_key=s3cret/+key"
OWN_HEADERS = {
    "accept": "application/json",
    "a2a-version": "1.0",
    "a2a-extensions": "urn:x",
    "user-agent": "holdfast",
}
SECRET = {
    "authorization": "Bearer secret",
    "cookie": "s=secret",
    "x-api-key": "secret",
    "content-type": "application/json",
}


def redirected(location, *, http_status=307, public=False, followed=0, url=HERE):
    request = HttpRequest(
        method="GET" if public else "POST",
        url=url,
        headers={**OWN_HEADERS, **SECRET},
        body=b"" if public else b"{}",
        timeouts=Timeouts(connect=1),
        max_idle=1.0,
        progress=Progress(sent=True),
    )
    headers = {} if location is None else {"location": location}
    reply = HttpReply(status=http_status, headers=headers)
    reach = NetworkReach() if public else None
    return request, follow(request, reply, other_origins=reach, followed=followed)


@pytest.mark.parametrize("http_status", [100, 200, 201, 300, 304, 305, 306, 400, 401, 503])
@pytest.mark.parametrize("public", [True, False])
def test_other_statuses_are_not_redirects(http_status, public):
    assert redirected("/next", http_status=http_status, public=public)[1] is None


@pytest.mark.parametrize("http_status", [307, 308])
@pytest.mark.parametrize(
    ("location", "target"),
    [
        ("https://a.example/next?x=1", "https://a.example/next?x=1"),
        ("https://a.example:443/next", "https://a.example:443/next"),
        ("HTTPS://A.EXAMPLE/next", "HTTPS://A.EXAMPLE/next"),
        ("/next#part", "https://a.example/next"),
        ("next", "https://a.example/next"),
        ("//a.example/next", "https://a.example/next"),
        ("?x=2", "https://a.example/rpc?x=2"),
    ],
)
def test_a_call_is_repeated_unchanged_at_its_own_origin(http_status, location, target):
    request, onward = redirected(location, http_status=http_status)

    assert urlsplit(onward.url) == urlsplit(target)
    assert (onward.method, onward.body, onward.headers) == ("POST", b"{}", request.headers)
    assert (onward.timeouts, onward.max_idle) == (request.timeouts, 1.0)
    assert onward.progress is request.progress


@pytest.mark.rule("S24", "P03")
@pytest.mark.parametrize("http_status", [301, 302, 303, 307, 308])
def test_s24_a_public_document_is_fetched_from_another_origin_without_secrets(http_status):
    _, onward = redirected("https://b.example/card", http_status=http_status, public=True)

    assert onward.url == "https://b.example/card"
    assert onward.headers == OWN_HEADERS


@pytest.mark.rule("S24")
@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://b.example/card",
        "https://a.example:444/card",
        "https://a.example.evil/card",
        "//b.example/card",
    ],
)
def test_s24_only_protocol_headers_are_sent_to_another_origin(elsewhere):
    _, onward = redirected(elsewhere, public=True)

    assert onward.headers == OWN_HEADERS


@pytest.mark.parametrize("http_status", [301, 302, 303, 307, 308])
def test_a_public_document_of_the_same_origin_is_requested_with_all_headers(http_status):
    request, onward = redirected("/card", http_status=http_status, public=True)

    assert onward.headers == request.headers


def test_a_redirect_from_http_to_https_is_followed_for_a_public_document():
    _, onward = redirected("https://a.example/card", public=True, url="http://a.example/card")

    assert onward.headers == OWN_HEADERS  # another scheme is another origin


@pytest.mark.parametrize(
    "location",
    [
        "https://b.example/card?lang=de&v=1",
        "https://b.example/1/card",
        "https://a.example/card?api_key=s3cret/+key",  # its own origin
    ],
)
def test_a_redirect_of_a_public_document_to_another_origin_loses_its_query(location):
    _, onward = redirected(location, public=True, url=WITH_KEY)

    assert onward.url == location


@pytest.mark.rule("P03")
@pytest.mark.parametrize(
    "location",
    [
        "https://b.example/card?lang=en&v=1&api_key=s3cret/+key",
        "https://b.example/card?key=s3cret%2F%20key",
        "https://b.example/card?at=%2573%2533cret%2F%2Bkey&of=/s3cret%2F+key/",
        "https://b.example/s3cret/+key/card",
        "https://b.example/card?c2VjcmV0OnMzY3JldC8ga2V5=&k=czNjcmV0LyBrZXk",
        "https://a.example:444/card?api_key=s3cret/+key",
    ],
)
def test_a_key_in_the_query_of_an_address_is_sent_to_no_other_origin(location):
    with pytest.raises(A2AHTTPError, match="takes the query of the address"):
        redirected(location, public=True, url=WITH_KEY)


@pytest.mark.rule("P03")
def test_a_query_that_is_a_key_is_sent_to_no_other_origin():
    with pytest.raises(A2AHTTPError, match="takes the query of the address"):
        redirected("https://b.example/?s3cret", public=True, url="https://a.example/?s3cret")


REFUSED = [
    # location, options, what the error says
    ("https://b.example/rpc", {}, "another origin"),
    ("//b.example/rpc", {"http_status": 308}, "another origin"),
    ("https://a.example:444/", {}, "another origin"),
    ("https://a.example/rpc", {"url": "http://a.example/rpc"}, "another origin"),
    *(("/next", {"http_status": code}, "into another one") for code in (301, 302, 303)),
    ("http://a.example/rpc", {}, "from https to http"),
    ("http://a.example/card", {"public": True}, "from https to http"),
    ("http://b.example/card", {"public": True}, "from https to http"),
    (None, {}, "has no Location"),
    (None, {"public": True}, "has no Location"),
    ("/next", {"followed": 5}, "5 redirects"),
    ("/next", {"followed": 6, "public": True}, "5 redirects"),
    ("https://a.example@evil.example/card", {"public": True}, "not an HTTP address"),
    ("https://a.example\\@evil.example/card", {"public": True}, "not an HTTP address"),
    ("/next\x0b", {"public": True}, "not an HTTP address"),
    *(
        (odd, {"public": public}, "not an HTTP address")
        for public in (True, False)
        for odd in (
            "ftp://a.example/",
            "file:///etc/passwd",
            "javascript:alert(1)",
            "data:,x",
            "http://",
            "http:///path",
            "http://[",
            "http://[::1",
            "https://a.example:99999/",
            "https://a.example:x/",
        )
    ),
]


@pytest.mark.rule("S24")
@pytest.mark.parametrize(("location", "options", "reason"), REFUSED)
def test_s24_any_other_redirect_is_an_error_with_its_reason(location, options, reason):
    with pytest.raises(A2AHTTPError, match=reason) as caught:
        redirected(location, **options)

    error = caught.value
    assert error.http_status == options.get("http_status", 307)
    assert error.agent == options.get("url", HERE).partition("?")[0]
    assert error.transient is False
    assert "secret" not in str(error)


@pytest.mark.parametrize("public", [True, False])
def test_the_error_names_the_target_without_user_and_query(public):
    with pytest.raises(A2AHTTPError) as caught:
        redirected("http://me:secret@b.example/in/side?token=secret#secret", public=public)

    assert "http://b.example/in/side was not followed" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert caught.value.headers == {"location": "http://b.example/in/side"}


@pytest.mark.parametrize("public", [True, False])
def test_five_redirects_are_followed_and_a_sixth_is_not(public):
    for followed in range(5):
        assert redirected("/next", followed=followed, public=public)[1] is not None
    with pytest.raises(A2AHTTPError):
        redirected("/next", followed=5, public=public)


@pytest.mark.rule("S24", "P03")
@given(
    location=any_text | st.from_regex(r"(https?:)?//[ab.:@\[\]0-9]*/[\w?#]*", fullmatch=True),
    http_status=st.sampled_from([301, 302, 303, 307, 308]),
    public=st.booleans(),
)
def test_s24_no_location_sends_a_secret_to_another_origin(location, http_status, public):
    try:
        _, onward = redirected(location, http_status=http_status, public=public)
    except A2AHTTPError:
        return
    assert urlsplit(onward.url).scheme == "https"
    if origin(onward.url) != origin(HERE):
        assert public
        assert onward.headers == OWN_HEADERS
