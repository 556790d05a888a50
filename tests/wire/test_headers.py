"""Headers and query parameters of callers: checked, and never quoted in an error."""

from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._wire.credentials import with_query
from holdfast._wire.http import check_headers

SECRET = "s3cret-value"


@pytest.mark.parametrize(
    "value", ["", "plain", "with spaces", "tab\there", "latin é", "Bearer a.b-c_d~e+f/g=="]
)
def test_valid_header_values_are_accepted(value):
    assert check_headers({"X-Any": value}) == {"x-any": value}


@pytest.mark.parametrize("bad", ["\r\nx: y", "\n", "\r", "\x00", "\x7f", "\u2028", "ł", "\ud800"])
def test_an_invalid_header_value_is_refused_and_not_shown(bad):
    with pytest.raises(ValueError, match="the header X-Any") as caught:
        check_headers({"X-Any": f"{SECRET}{bad}"})

    assert SECRET not in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["", " ", "a b", "a:b", "a\r\nb", "é", "a\x00", "(a)", '"a"'])
def test_an_invalid_header_name_is_refused_and_not_shown(name):
    with pytest.raises(ValueError, match="not the name of an HTTP header") as caught:
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
def test_connection_headers_are_refused(name):
    with pytest.raises(ValueError, match=f"the header {name} is set by the connection"):
        check_headers({name: SECRET})


@pytest.mark.parametrize(
    "headers", [7, "a: b", ["a"], [("a", "b")], {1: "a"}, {"a": 1}, {"a": None}]
)
def test_headers_of_another_type_are_refused(headers):
    with pytest.raises(TypeError, match="header"):
        check_headers(headers)


@given(
    present=st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=4),
    added=st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5), max_size=3),
)
def test_with_query_replaces_earlier_values(present, added):
    once = with_query("http://a.test/b?#c", present)

    query = urlsplit(with_query(once, added)).query

    assert dict(parse_qsl(query, keep_blank_values=True)) == present | added
    assert with_query("http://a.test/b?x=%20", {}) == "http://a.test/b?x=%20"
