"""HTTP messages: presentable addresses, excerpts, and the timeouts of an attempt."""

import math

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import any_text, given

from holdfast._wire.http import excerpt, harmless_headers, presentable
from holdfast.extend import HttpRequest
from holdfast.policies import Timeouts

# ── Addresses ────────────────────────────────────────────────────────────────────────────────


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
def test_presentable_hides_secrets(url, shown):
    assert presentable(url) == shown


@given(url=any_text | st.from_regex(r"https?://[\w:@\[\]]*/[\w?#]*", fullmatch=True))
def test_presentable_accepts_any_address(url):
    assert not {"?", "#"} & set(presentable(url))


def test_an_error_has_only_harmless_headers():
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
def test_excerpt_is_the_beginning_as_one_readable_line(body, shown):
    assert excerpt(body) == shown


@given(body=st.binary(max_size=300) | any_text.map(lambda t: t.encode("utf-8", "replace")))
def test_excerpt_of_any_bytes_is_readable_and_bounded(body):
    shown = excerpt(body, 20)

    assert len(shown) <= 20
    assert shown.isprintable()


# ── Timeouts of an attempt ───────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["pool", "connect", "write", "first_byte", "idle"])
@pytest.mark.parametrize("bad", [0, -1, -0.5, math.nan, -math.inf])
def test_a_timeout_that_is_not_positive_is_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"the {name} timeout must be a positive"):
        Timeouts(**{name: bad})


@pytest.mark.parametrize("good", [0.001, 1, 3600.0, math.inf])
def test_a_timeout_may_be_any_positive_number(good):
    assert Timeouts(connect=good).connect == good


def test_default_timeouts_match_the_documentation():
    timeouts = Timeouts()

    assert {name: getattr(timeouts, name) for name in timeouts.__struct_fields__} == {
        "pool": 10.0,
        "connect": 5.0,
        "write": 30.0,
        "first_byte": 120.0,
        "idle": 120.0,
    }


def test_requests_share_no_mutable_state():
    first, second = (HttpRequest(method="GET", url="https://a.example/rpc") for _ in range(2))

    first.progress.sent = True
    first.headers["x"] = "y"

    assert not second.progress.sent
    assert second.headers == {}
