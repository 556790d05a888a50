"""Hosts: all modules classify and normalize them alike."""

import socket
from urllib.parse import urlsplit

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast import A2AConnectionError, Resilience, connect
from holdfast._cli.agent.reference import read_reference
from holdfast._model.addresses import is_http_address
from holdfast._model.grpc_addresses import GrpcAddress, grpc_address
from holdfast._model.hosts import ascii_host, ip_literal, is_loopback, normalized_host
from holdfast._net.sockets import ForbiddenAddressError, check_host
from holdfast._wire.network_scope import NetworkReach, scope_of_host
from holdfast._wire.origins import origin
from holdfast.errors import NetworkPolicyError
from holdfast.extend import HttpRequest
from holdfast.testing import FakeNetwork

LOOPBACK = {
    # host: the number that it leads to
    "localhost": "127.0.0.1",
    "LocalHost": "127.0.0.1",
    "localhost.": "127.0.0.1",
    "app.localhost": "127.0.0.1",
    "app.localhost.": "127.0.0.1",
    "127.0.0.1": "127.0.0.1",
    "127.0.0.1.": "127.0.0.1",
    "127.0.0.2": "127.0.0.2",
    "127.255.255.255": "127.255.255.255",
    "::1": "::1",
    "0:0:0:0:0:0:0:1": "::1",
    "::ffff:127.0.0.1": "127.0.0.1",
    "::FFFF:7f00:1": "127.0.0.1",
}
ELSEWHERE = {
    "10.0.0.1": "10.0.0.1",
    "::ffff:10.0.0.1": "10.0.0.1",
    "8.8.8.8.": "8.8.8.8",
    "2001:DB8:0::1": "2001:db8::1",
    "0.0.0.0": "0.0.0.0",
    "::": "::",
}
NAMES = ["", ".", "agent.test", "localhost.test", "mylocalhost", "localhost..", "127.0.0.1.test"]
NUMBERS_TO_SOME = ["127.1", "0x7f.0.0.1", "0x7f000001", "2130706433", "0177.0.0.1"]


def urls(host):
    return f"http://[{host}]/" if ":" in host else f"http://{host}/"


@pytest.mark.parametrize(("host", "number"), [*LOOPBACK.items(), *ELSEWHERE.items()])
def test_ip_literal_parses_unambiguous_addresses(host, number):
    assert str(ip_literal(host)) == number


@pytest.mark.parametrize("host", [*NAMES, *NUMBERS_TO_SOME])
def test_ip_literal_of_other_names_is_none(host):
    assert ip_literal(host) is None
    assert not is_loopback(host)
    assert normalized_host(host) == host


@pytest.mark.parametrize("host", LOOPBACK)
def test_all_modules_agree_on_loopback(host):
    url = urls(host)

    assert is_loopback(host)
    assert scope_of_host(url) == "loopback"
    assert scope_of_host(origin(url)) == "loopback"
    assert str(read_reference(url.removeprefix("http://"))) == url
    with pytest.raises(ForbiddenAddressError):
        check_host(url, NetworkReach())
    check_host(url, NetworkReach(inward="loopback"))


@pytest.mark.parametrize("host", [*ELSEWHERE, *NAMES[2:]])
def test_all_modules_agree_on_other_hosts(host):
    assert not is_loopback(host)
    assert str(read_reference(urls(host).removeprefix("http://"))).startswith("https://")


@pytest.mark.parametrize("host", LOOPBACK)
async def test_a_fake_network_recognizes_loopback(host):
    request = HttpRequest(method="GET", url=urls(host), reach=NetworkReach())

    with pytest.raises(NetworkPolicyError) as caught:
        await FakeNetwork().request(request)

    assert caught.value.address == LOOPBACK[host]


@pytest.mark.parametrize("host", NUMBERS_TO_SOME)
def test_ambiguous_ip_literals_are_names(host):
    with pytest.raises(ForbiddenAddressError) as caught:
        check_host(urls(host), NetworkReach())

    assert caught.value.address == "127.0.0.1"


# ── Names in other scripts (UTS 46, IDNA 2008) ───────────────────────────────────────────────

IN_ASCII = {
    "b\xfccher.example": "xn--bcher-kva.example",
    "B\xdcCHER.Example": "xn--bcher-kva.example",
    "XN--Bcher-KVA.example": "xn--bcher-kva.example",
    "stra\xdfe.example": "xn--strae-oqa.example",  # not strasse.example
    "\u03b2\u03cc\u03bb\u03bf\u03c2.example": "xn--nxasmm1c.example",  # with its last sigma
    "\u65e5\u672c\u8a9eabc.example": "xn--abc-s08fl0dtz6h.example",
    "\u0dc1\u0dca\u200d\u0dbb\u0dd3.example": "xn--10cl1a0b660p.example",  # joined on purpose
    "xn--10cl1a0b660p.example": "xn--10cl1a0b660p.example",
    "a_b.b\xfccher.example.": "a_b.xn--bcher-kva.example.",
    "xn--i-7iq.example": "xn--i-7iq.example",  # a heart, in the ASCII form only
    "xn--pypal-4ve.example": "xn--pypal-4ve.example",
    "r3---sn-ab.example": "r3---sn-ab.example",
}
REFUSED = {
    # host: what is said of it
    "\uff45xample.test": "ambiguous.*; if you mean example",  # fullwidth
    "agent\u3002test": "ambiguous",
    "agent\uff0etest": "ambiguous",
    "\u24d0gent.test": "ambiguous.*; if you mean agent",
    "bu\u0308cher.test": "ambiguous",  # one letter, written as two
    "\u0392\u038c\u039b\u039f\u03a3.test": "ambiguous",  # which sigma?
    "\u212aelvin.test": "ambiguous",
    "a\xadgent.test": "ambiguous",
    "p\u0430ypal.test": "Cyrillic and Latin letters.* write xn--pypal-4ve",
    "\u03bfracle.test": "Greek and Latin",
    "agent\u200d.test": "IDNA 2008",
    "a\u200db.test": r"IDNA 2008 \(.*U\+200D",
    "\u2764.test": "IDNA 2008",
    "\u0301a.test": "IDNA 2008",
    "a\u0661.test": "IDNA 2008",  # left and right
    "xn--.test": "not a valid ASCII form",
    "xn--abc-.test": "not a valid ASCII form",  # of what is ASCII
    "xn--bcher-kv.test": "not a valid ASCII form",
    "xn--99999999.test": "not a valid ASCII form",
    "xn--bucher-xyd.test": "not a valid ASCII form",
    "xn--xample-hy68a.test": "not a valid ASCII form",  # fullwidth
    "xn--\u00fc.test": "IDNA 2008",
    "\u0430" * 64: "more than 63",
}


@pytest.mark.rule("P20")
@pytest.mark.parametrize(("host", "expected"), IN_ASCII.items(), ids=ascii)
def test_a_name_in_another_script_is_converted_to_ascii(host, expected):
    assert ascii_host(host) == ascii_host(expected) == expected
    assert normalized_host(host) == expected
    assert origin(f"https://{host}:1") == f"https://{expected}:1"
    assert HttpRequest(method="GET", url=f"https://{host}:1/x").url.lower() == (
        f"https://{expected}:1/x"
    )
    assert grpc_address(f"{host}:1") == GrpcAddress(expected, 1, is_secure=True)
    assert is_http_address(f"https://{host}/")


@pytest.mark.rule("P20")
@pytest.mark.parametrize(("host", "reason"), REFUSED.items(), ids=ascii)
def test_a_confusable_name_is_refused(host, reason):
    with pytest.raises(ValueError, match=reason):
        ascii_host(host)
    assert not is_http_address(f"https://{host}/")
    with pytest.raises(ValueError, match=r"host that|control character"):
        connect(f"https://{host}")


@pytest.mark.rule("P20")
@given(host=st.text(max_size=20) | st.text("abx\u0430\u03b1\xdf\u200d\uff41-.n", max_size=20))
def test_a_host_is_sent_in_ascii(host):
    try:
        encoded = ascii_host(host)
    except ValueError:
        return
    assert encoded.isascii()
    assert ascii_host(encoded) == encoded


@pytest.mark.rule("P20")
@pytest.mark.real_time
async def test_the_resolver_receives_the_ascii_form(monkeypatch):
    looked_up = []

    def getaddrinfo(host, *_, **__):
        looked_up.append(host)
        raise socket.gaierror(socket.EAI_NONAME, "unknown")

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    async with connect("https://stra\xdfe.example", resilience=Resilience.off()) as client:
        with pytest.raises(A2AConnectionError) as caught:
            await client.agent_card()

    assert set(looked_up) == {"xn--strae-oqa.example"}
    assert "xn--strae-oqa.example" in (caught.value.agent or "")


@given(number=st.ip_addresses())
def test_an_ip_address_has_one_spelling(number):
    exploded = normalized_host(number.exploded.upper())

    assert exploded == normalized_host(str(number)) == normalized_host(normalized_host(exploded))
    assert ip_literal(exploded) == ip_literal(str(number))
    assert urlsplit(urls(exploded)).hostname == exploded
