"""Credentials and headers as callers pass them. What is done with them is in `test_layers`."""

import pytest

from holdfast import AuthProvider, StaticAuth
from holdfast.auth import to_provider
from holdfast.errors import AuthenticationError
from holdfast.wire.http import check_headers

SECRET = "s3cret-value"


class Provider:
    async def headers(self, call, /):
        return {}

    async def on_unauthorized(self, error, /):
        return False


@pytest.mark.parametrize(
    ("auth", "headers"),
    [
        (f"Bearer {SECRET}", {"authorization": f"Bearer {SECRET}"}),
        ({"X-API-Key": SECRET}, {"x-api-key": SECRET}),
        ({"Authorization": "a", "Cookie": "b=c"}, {"authorization": "a", "cookie": "b=c"}),
        ({}, {}),
    ],
)
async def test_a_value_or_headers_become_a_provider(auth, headers):
    provider = to_provider(auth)

    assert isinstance(provider, StaticAuth)
    assert await provider.headers(None) == headers
    assert await provider.on_unauthorized(AuthenticationError("no")) is False


def test_none_is_none_and_a_provider_is_itself():
    own: AuthProvider = Provider()

    assert to_provider(None) is None
    assert to_provider(own) is own


@pytest.mark.parametrize("auth", [7, b"Bearer x", ["a"], object(), ("user", "password")])
def test_what_is_no_credential_is_named_by_its_type(auth):
    with pytest.raises(TypeError, match=f"not {type(auth).__name__}"):
        to_provider(auth)


def test_a_provider_shows_no_value():
    provider = StaticAuth({"authorization": f"Bearer {SECRET}", "x-api-key": SECRET})

    assert repr(provider) == "StaticAuth(authorization, x-api-key)"
    assert SECRET not in str(provider)


async def test_a_provider_keeps_what_it_was_given():
    headers = {"authorization": "one"}
    provider = StaticAuth(headers)
    headers["authorization"] = "two"

    assert await provider.headers(None) == {"authorization": "one"}


@pytest.mark.parametrize(
    "value", ["", "plain", "with spaces", "tab\there", "latin é", "Bearer a.b-c_d~e+f/g=="]
)
def test_values_that_http_allows(value):
    assert check_headers({"X-Any": value}) == {"x-any": value}


@pytest.mark.parametrize("bad", ["\r\nx: y", "\n", "\r", "\x00", "\x7f", "\u2028", "ł", "\ud800"])
def test_a_value_that_would_break_the_request_is_refused_and_not_shown(bad):
    with pytest.raises(ValueError, match="the header X-Any") as caught:
        check_headers({"X-Any": f"{SECRET}{bad}"})

    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", " ", "a b", "a:b", "a\r\nb", "é", "a\x00", "(a)", '"a"'])
def test_a_name_that_is_none_is_refused(name):
    with pytest.raises(ValueError, match="no name of an HTTP header") as caught:
        check_headers({name: SECRET})

    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "Connection",
        "content-length",
        "Expect",
        "Host",
        "keep-alive",
        "Proxy-Connection",
        "TE",
        "Transfer-Encoding",
        "Upgrade",
    ],
)
def test_headers_of_the_connection_are_not_the_callers(name):
    with pytest.raises(ValueError, match=f"the header {name} is set by the connection"):
        check_headers({name: SECRET})


@pytest.mark.parametrize(
    "headers", [7, "a: b", ["a"], [("a", "b")], {1: "a"}, {"a": 1}, {"a": None}]
)
def test_headers_are_strings_by_strings(headers):
    with pytest.raises(TypeError, match="header"):
        check_headers(headers)


def test_the_callers_dict_is_not_changed():
    headers = {"X-Any": "a"}

    check_headers(headers)["x-other"] = "b"

    assert headers == {"X-Any": "a"}
