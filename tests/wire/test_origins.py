"""Origins: each has one spelling, and this machine has aliases."""

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._wire.origins import canonical_origin, origin, origin_and_aliases


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
        ("grpc://a.example", "http://a.example:80"),
        ("grpc://a.example:50051", "http://a.example:50051"),
        ("grpcs://A.Example", "https://a.example:443"),
        ("a.example:50051", "https://a.example:50051"),
        ("127.0.0.1:50051", "http://127.0.0.1:50051"),
        ("[::1]:50051", "http://[::1]:50051"),
        ("dns:///a.example", "https://a.example:443"),
        ("ipv6:[2001:db8::1]:50051", "https://[2001:db8::1]:50051"),
        ("urn:a.example", "urn:a.example"),
        ("http://a.example:0", "http://a.example:0"),
        ("http://localhost./", "http://localhost:80"),
        ("http://App.LocalHost.:8000", "http://app.localhost:8000"),
        ("http://127.0.0.1.:8000", "http://127.0.0.1:8000"),
        ("http://[::ffff:127.0.0.1]:8000", "http://127.0.0.1:8000"),
        ("http://[::FFFF:7f00:1]:8000", "http://127.0.0.1:8000"),
        ("https://[::ffff:10.0.0.7]", "https://10.0.0.7:443"),
        ("http://[0:0:0:0:0:0:0:1]:8000", "http://[::1]:8000"),
        ("http://[2001:DB8:0::1]", "http://[2001:db8::1]:80"),
        ("http://[fe80::1%25eth0]", "http://[fe80::1%25eth0]:80"),
    ],
)
def test_an_origin_has_one_spelling(url, expected):
    assert origin(url) == expected


@pytest.mark.parametrize(
    ("address", "other_address"),
    [
        ("https://a.example", "http://a.example"),
        ("https://a.example", "https://b.example"),
        ("https://a.example", "https://a.example:444"),
        ("https://a.example", "https://a.example.evil"),
        ("https://a.example", "https://a.example@evil.example"),
        ("https://a.example", "https://sub.a.example"),
        ("https://a.example", "https://a.example."),
        ("http://a.example", "http://a.example:0"),
        ("http://localhost", "http://127.0.0.1"),
        ("http://127.0.0.1", "http://127.1"),
        ("http://[fe80::1%25eth0]", "http://[fe80::1%25eth1]"),
    ],
)
def test_scheme_host_and_port_distinguish_origins(address, other_address):
    assert origin(address) != origin(other_address)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:8000/path", "http://localhost:8000"),
        ("https://[::1]", "https://localhost:443"),
        ("http://LOCALHOST.", "http://localhost:80"),
        ("http://zebra.example", "http://zebra.example:80"),
        ("http://127.0.0.2", "http://127.0.0.2:80"),
        ("dns:///agent.test:50051", "https://agent.test:50051"),
    ],
)
def test_canonical_origin_replaces_aliases_of_localhost(url, expected):
    assert canonical_origin(url) == expected
    assert {canonical_origin(alias) for alias in origin_and_aliases(url)} == {expected}


@pytest.mark.parametrize("url", ["http://[a", "http://a:99999/", "http://a:x/"])
def test_an_invalid_address_has_no_origin(url):
    with pytest.raises(ValueError, match=r"Port|IPv6"):
        origin(url)


@given(
    host=st.from_regex(r"[A-Za-z0-9.-]{1,20}", fullmatch=True)
    | st.ip_addresses(v=4).map(str)
    | st.ip_addresses(v=6).map(lambda number: f"[{number}]"),
    port=st.none() | st.integers(0, 65535),
    scheme=st.sampled_from(["http", "https", "grpc"]),
)
def test_origin_of_an_origin_is_itself(scheme, host, port):
    own = origin(f"{scheme}://{host}" if port is None else f"{scheme}://{host}:{port}")

    assert origin(own) == own


# ── Aliases of this machine ──────────────────────────────────────────────────────────────────

ALIASES = {"http://localhost:8000", "http://127.0.0.1:8000", "http://[::1]:8000"}


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST.",
        "127.0.0.1",
        "127.0.0.1.",
        "[::1]",
        "[0:0::1]",
        "[::ffff:127.0.0.1]",
    ],
)
def test_localhost_has_three_aliases_in_any_spelling(host):
    assert origin_and_aliases(f"http://{host}:8000/rpc") == ALIASES


@pytest.mark.parametrize(
    "host", ["127.0.0.2", "app.localhost", "0.0.0.0", "[::]", "127.1", "10.0.0.1", "agent.test"]
)
def test_other_hosts_have_no_aliases(host):
    assert origin_and_aliases(f"http://{host}:8000/rpc") == {f"http://{host}:8000"}


def test_an_alias_has_the_same_scheme_and_port():
    assert origin_and_aliases("https://localhost") == {
        "https://localhost:443",
        "https://127.0.0.1:443",
        "https://[::1]:443",
    }
    assert origin_and_aliases("grpc://[::1]") == {
        "http://localhost:80",
        "http://127.0.0.1:80",
        "http://[::1]:80",
    }
