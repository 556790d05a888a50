"""Addresses of gRPC interfaces: host, port, and whether to use TLS."""

import pytest
from hypothesis import strategies as st
from tests.kit.strategies import given

from holdfast._model.addresses import is_http_address
from holdfast._model.grpc_addresses import grpc_address, is_of_grpc_alone, without_grpc
from holdfast._wire.origins import origin


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("agent.test:50051", "https://agent.test:50051"),
        ("agent_1:50051", "https://agent_1:50051"),
        ("10.0.0.7:50051", "https://10.0.0.7:50051"),
        ("localhost:50051", "http://localhost:50051"),
        ("127.0.0.1:50051", "http://127.0.0.1:50051"),
        ("[::1]:50051", "http://[::1]:50051"),
        ("[2001:db8::1]:50051", "https://[2001:db8::1]:50051"),
        ("dns:agent.test:50051", "https://agent.test:50051"),
        ("dns:///agent.test:50051", "https://agent.test:50051"),
        ("DNS:///agent.test", "https://agent.test:443"),
        ("ipv4:10.0.0.7:50051", "https://10.0.0.7:50051"),
        ("ipv6:[::1]:50051", "http://[::1]:50051"),
        ("http://agent.test:50051", "http://agent.test:50051"),
        ("https://agent.test", "https://agent.test:443"),
        ("https://agent.test/a2a/grpc?x#y", "https://agent.test:443"),
        ("http://agent.test", "http://agent.test:80"),
        ("grpc://agent.test:50051", "http://agent.test:50051"),
        ("grpcs://agent.test:50051/", "https://agent.test:50051"),
        ("GRPCS://Agent.Test", "https://agent.test:443"),
        ("grpcs://localhost:50051", "https://localhost:50051"),
        ("grpc://[::1]:50051", "http://[::1]:50051"),
    ],
)
def test_grpc_address_parses_each_form(written, meant):
    address = grpc_address(written)
    assert (address.url, address.is_secure) == (meant, meant.startswith("https"))
    assert without_grpc(address.url) == meant
    assert origin(written) == meant


@pytest.mark.parametrize(
    "written",
    [
        "",
        "agent.test",
        "localhost",
        "agent.test:",
        "agent.test:0",
        "agent.test:99999",
        "agent.test:50051/path",
        "user@agent.test:50051",
        "grpc://user:secret@agent.test:50051",
        "grpc://",
        "grpcs://:443",
        "dns://8.8.8.8/agent.test:50051",
        "dns:///",
        "ipv4:10.0.0.7:1,10.0.0.8:1",
        "unix:/run/agent.sock",
        "unix-abstract:agent",
        "xds:///agent",
        "vsock:1:2",
        "agent\\.test:50051",
        "agent test:50051",
        "[::1:50051",
        "a\u3002test:50051",
    ],
)
def test_grpc_address_refuses_ambiguous_addresses(written):
    assert grpc_address(written) is None


@given(
    written=st.text(max_size=40)
    | st.from_regex(r"(dns:|grpcs?://|ipv[46]:)?[a-z0-9.:\[\]/@,]{1,30}")
)
def test_any_address_is_an_http_address_or_none(written):
    address = grpc_address(written)
    if address is not None:
        assert is_http_address(address.url)
        assert grpc_address(address.url) == address
    is_of_grpc_alone(written)
