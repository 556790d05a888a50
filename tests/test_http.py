"""HTTP messages as values: what is shown of an address, and where a redirect may lead."""

import math
from urllib.parse import urlsplit

import pytest
from hypothesis import strategies as st

from holdfast.errors import A2AHTTPError
from holdfast.wire.http import (
    HttpReply,
    HttpRequest,
    Progress,
    Timeouts,
    excerpt,
    follow,
    harmless_headers,
    origin,
    presentable,
)
from holdfast.wire.reach import Reach

from .strategies import any_text, given

# ── Addresses ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://a.example", "https://a.example:443"),
        ("https://a.example:443/path?q#f", "https://a.example:443"),
        ("HTTPS://A.Example/", "https://a.example:443"),
        ("http://a.example", "http://a.example:80"),
        ("http://a.example:8080/", "http://a.example:8080"),
        ("https://user:pass@a.example/", "https://a.example:443"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("http://[FE80::1]/", "http://[fe80::1]:80"),
        ("grpc://a.example", "grpc://a.example"),
        ("grpc://a.example:50051", "grpc://a.example:50051"),
    ],
)
def test_an_origin_has_one_spelling(url, expected):
    assert origin(url) == expected


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("https://a.example", "http://a.example"),
        ("https://a.example", "https://b.example"),
        ("https://a.example", "https://a.example:444"),
        ("https://a.example", "https://a.example.evil"),
        ("https://a.example", "https://a.example@evil.example"),
        ("https://a.example", "https://sub.a.example"),
    ],
)
def test_scheme_host_and_port_make_another_origin(one, other):
    assert origin(one) != origin(other)


@pytest.mark.parametrize("url", ["http://[a", "http://a:99999/", "http://a:x/"])
def test_what_is_no_address_has_no_origin(url):
    with pytest.raises(ValueError, match=r"Port|IPv6"):
        origin(url)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("https://a.example/rpc", "https://a.example/rpc"),
        ("https://user:secret@a.example:8443/rpc", "https://a.example:8443/rpc"),
        ("https://user@x:secret@a.example/", "https://a.example/"),
        ("https://a.example/rpc?key=secret", "https://a.example/rpc"),
        ("https://a.example/rpc#secret", "https://a.example/rpc"),
        ("/next?key=secret", "/next"),
        ("http://[secret", "(unreadable address)"),
    ],
)
def test_what_is_shown_of_an_address_holds_no_secret(url, shown):
    assert presentable(url) == shown


@given(url=any_text | st.from_regex(r"https?://[\w:@\[\]]*/[\w?#]*", fullmatch=True))
def test_any_address_can_be_shown(url):
    assert not {"?", "#"} & set(presentable(url))


def test_an_error_carries_the_harmless_headers_only():
    headers = {
        "content-type": "text/html",
        "date": "today",
        "retry-after": "3",
        "x-request-id": "7",
        "set-cookie": "s=secret",
        "authorization": "Bearer secret",
        "x-api-key": "secret",
        "location": "https://u:secret@b.example/next?token=secret",
    }

    assert harmless_headers(headers) == {
        "content-type": "text/html",
        "date": "today",
        "retry-after": "3",
        "x-request-id": "7",
        "location": "https://b.example/next",
    }
    assert harmless_headers({"location": "http://["}) == {"location": "(unreadable address)"}


# ── Excerpts ─────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"", ""),
        (b"  a\r\n\tb  ", "a b"),
        (b"\x1b[31mred\x00", "[31mred"),
        ("é\u2028ü".encode(), "é ü"),
        (b"\xff\xfe", "\ufffd\ufffd"),
        (b"a" * 500, "a" * 199 + "…"),
        ("é".encode() * 500, "é" * 199 + "…"),
    ],
)
def test_an_excerpt_is_the_beginning_as_one_readable_line(body, shown):
    assert excerpt(body) == shown


@given(body=st.binary(max_size=300) | any_text.map(lambda t: t.encode("utf-8", "replace")))
def test_an_excerpt_of_anything_is_readable_and_bounded(body):
    shown = excerpt(body, 20)

    assert len(shown) <= 20
    assert shown.isprintable()


# ── Redirects ────────────────────────────────────────────────────────────────────────────────

HERE = "https://a.example/rpc?key=1"
OURS = {
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
        headers={**OURS, **SECRET},
        body=b"" if public else b"{}",
        timeouts=Timeouts(connect=1),
        max_idle=1.0,
        progress=Progress(sent=True),
    )
    headers = {} if location is None else {"location": location}
    reply = HttpReply(status=http_status, headers=headers)
    reach = Reach() if public else None
    return request, follow(request, reply, elsewhere=reach, followed=followed)


@pytest.mark.parametrize("http_status", [100, 200, 201, 300, 304, 305, 306, 400, 401, 503])
@pytest.mark.parametrize("public", [True, False])
def test_what_is_no_redirect_leads_nowhere(http_status, public):
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
def test_a_call_is_repeated_whole_at_its_own_origin(http_status, location, target):
    request, onward = redirected(location, http_status=http_status)

    assert urlsplit(onward.url) == urlsplit(target)
    assert (onward.method, onward.body, onward.headers) == ("POST", b"{}", request.headers)
    assert (onward.timeouts, onward.max_idle) == (request.timeouts, 1.0)
    assert onward.progress is request.progress


@pytest.mark.parametrize("http_status", [301, 302, 303, 307, 308])
def test_s24_a_public_document_may_come_from_elsewhere_but_no_secret_goes_there(http_status):
    _, onward = redirected("https://b.example/card", http_status=http_status, public=True)

    assert onward.url == "https://b.example/card"
    assert onward.headers == OURS


@pytest.mark.parametrize(
    "elsewhere",
    [
        "https://b.example/card",
        "https://a.example:444/card",
        "https://a.example.evil/card",
        "//b.example/card",
    ],
)
def test_s24_the_protocols_headers_alone_go_to_another_origin(elsewhere):
    _, onward = redirected(elsewhere, public=True)

    assert onward.headers == OURS


@pytest.mark.parametrize("http_status", [301, 302, 303, 307, 308])
def test_a_public_document_of_the_same_origin_is_asked_for_with_all_headers(http_status):
    request, onward = redirected("/card", http_status=http_status, public=True)

    assert onward.headers == request.headers


def test_a_redirect_from_http_to_https_is_followed_for_a_public_document():
    _, onward = redirected("https://a.example/card", public=True, url="http://a.example/card")

    assert onward.headers == OURS  # another scheme is another origin


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
    (None, {}, "names no location"),
    (None, {"public": True}, "names no location"),
    ("/next", {"followed": 5}, "5 redirects"),
    ("/next", {"followed": 6, "public": True}, "5 redirects"),
    ("https://a.example@evil.example/card", {"public": True}, "no HTTP address"),
    ("https://a.example\\@evil.example/card", {"public": True}, "no HTTP address"),
    ("/next\x0b", {"public": True}, "no HTTP address"),
    *(
        (odd, {"public": public}, "no HTTP address")
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


@pytest.mark.parametrize(("location", "options", "reason"), REFUSED)
def test_s24_any_other_redirect_is_an_error_that_says_why(location, options, reason):
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
def test_five_redirects_are_followed_and_no_sixth(public):
    for followed in range(5):
        assert redirected("/next", followed=followed, public=public)[1] is not None
    with pytest.raises(A2AHTTPError):
        redirected("/next", followed=5, public=public)


@given(
    location=any_text | st.from_regex(r"(https?:)?//[ab.:@\[\]0-9]*/[\w?#]*", fullmatch=True),
    http_status=st.sampled_from([301, 302, 303, 307, 308]),
    public=st.booleans(),
)
def test_s24_no_location_makes_a_secret_leave_its_origin(location, http_status, public):
    try:
        _, onward = redirected(location, http_status=http_status, public=public)
    except A2AHTTPError:
        return
    assert urlsplit(onward.url).scheme == "https"
    if origin(onward.url) != origin(HERE):
        assert public
        assert onward.headers == OURS


# ── Limits of an attempt ─────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["pool", "connect", "write", "first_byte", "idle"])
@pytest.mark.parametrize("bad", [0, -1, -0.5, math.nan, -math.inf])
def test_a_timeout_that_is_no_positive_number_is_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"the {name} timeout must be a positive"):
        Timeouts(**{name: bad})


@pytest.mark.parametrize("good", [0.001, 1, 3600.0, math.inf])
def test_a_timeout_may_be_any_positive_number(good):
    assert Timeouts(connect=good).connect == good


def test_the_defaults_are_those_of_the_documentation():
    timeouts = Timeouts()

    assert {name: getattr(timeouts, name) for name in timeouts.__struct_fields__} == {
        "pool": 10.0,
        "connect": 5.0,
        "write": 30.0,
        "first_byte": 120.0,
        "idle": 120.0,
    }


def test_requests_do_not_share_what_changes():
    one, other = (HttpRequest(method="GET", url=HERE) for _ in range(2))

    one.progress.sent = True
    one.headers["x"] = "y"

    assert not other.progress.sent
    assert other.headers == {}
