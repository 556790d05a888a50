"""Whether gRPC is used: with the extra installed, or an error that says how to install it."""

import importlib.util

import pytest
from tests.kit.grpc_agent import card_of

from holdfast import connect
from holdfast._pipeline import grpc_extra


async def test_without_the_extra_an_error_says_how_to_install_it(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(
        grpc_extra, "find_spec", lambda name: None if name == "grpc" else real(name)
    )
    for name in ("bindings", "supported_protocol_bindings"):
        with pytest.raises(ImportError, match=r"pip install \"\.\[grpc\]\""):
            connect("http://agent.test", **{name: ["GRPC"]})
    with pytest.raises(ImportError, match="grpc"):
        connect("http://agent.test", url="grpc://agent.test:1")
    with pytest.raises(ValueError, match=r"offers only GRPC.*pip install \"\.\[grpc\]\""):
        connect(card_of("a:1"))


def test_an_extra_that_is_installed_while_a_program_runs_is_found(monkeypatch):
    searches, is_installed = [], False

    def find(name):
        searches.append(name)
        return importlib.util.find_spec("json") if is_installed else None

    monkeypatch.setattr(grpc_extra, "find_spec", find)
    assert grpc_extra.use_of_grpc(None, None) == "missing"

    is_installed = True
    for _ in range(3):
        assert grpc_extra.use_of_grpc(None, None) == "spoken"
    assert searches == ["grpc", "grpc", "google.protobuf", "google.rpc"]
