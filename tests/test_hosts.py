"""What a host says of itself, read in one way by all who ask."""

from urllib.parse import urlsplit

import pytest
from hypothesis import strategies as st

from holdfast import NetworkPolicyError
from holdfast.cli.reference import read_reference
from holdfast.model.hosts import is_loopback, number_of, spelled
from holdfast.net.sockets import ForbiddenAddressError, check_host
from holdfast.testing import FakeNetwork
from holdfast.wire.http import HttpRequest
from holdfast.wire.origins import origin
from holdfast.wire.reach import Reach, scope_of_host

from .strategies import given

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
def test_a_host_leads_to_a_number_where_that_is_plain(host, number):
    assert str(number_of(host)) == number


@pytest.mark.parametrize("host", [*NAMES, *NUMBERS_TO_SOME])
def test_any_other_name_is_for_a_resolver(host):
    assert number_of(host) is None
    assert not is_loopback(host)
    assert spelled(host) == host


@pytest.mark.parametrize("host", LOOPBACK)
def test_all_agree_on_what_is_this_machine(host):
    url = urls(host)

    assert is_loopback(host)
    assert scope_of_host(url) == "loopback"
    assert scope_of_host(origin(url)) == "loopback"
    assert str(read_reference(url.removeprefix("http://"))) == url
    with pytest.raises(ForbiddenAddressError):
        check_host(url, Reach())
    check_host(url, Reach(inward="loopback"))


@pytest.mark.parametrize("host", [*ELSEWHERE, *NAMES[2:]])
def test_all_agree_on_what_is_not(host):
    assert not is_loopback(host)
    assert str(read_reference(urls(host).removeprefix("http://"))).startswith("https://")


@pytest.mark.parametrize("host", LOOPBACK)
async def test_a_fake_network_knows_this_machine_too(host):
    request = HttpRequest(method="GET", url=urls(host), reach=Reach())

    with pytest.raises(NetworkPolicyError) as caught:
        await FakeNetwork().request(request)

    assert caught.value.address == LOOPBACK[host]


@pytest.mark.parametrize("host", NUMBERS_TO_SOME)
def test_what_only_some_read_as_a_number_a_proxy_may_read_so(host):
    with pytest.raises(ForbiddenAddressError) as caught:
        check_host(urls(host), Reach())

    assert caught.value.address == "127.0.0.1"


@given(number=st.ip_addresses())
def test_a_number_is_spelled_in_one_way(number):
    exploded = spelled(number.exploded.upper())

    assert exploded == spelled(str(number)) == spelled(spelled(exploded))
    assert number_of(exploded) == number_of(str(number))
    assert urlsplit(urls(exploded)).hostname == exploded
