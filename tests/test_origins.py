"""Origins: each has one spelling, and this machine has aliases."""

import pytest

from holdfast.wire.origins import origin


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
