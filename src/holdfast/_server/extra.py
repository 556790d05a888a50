"""What is said where the packages of the server are missing."""

from __future__ import annotations

from importlib import import_module

from holdfast._model.extras import missing_extra

__all__ = ["need"]

_PACKAGES = {
    "server": ("a2a.types.a2a_pb2", "starlette", "sse_starlette"),
    "server,grpc": ("a2a.types.a2a_pb2", "grpc", "google.rpc.error_details_pb2"),
}


def need(extra: str, what: str, *modules: str) -> None:
    """Checks that the packages of an extra are there.

    Args:
        extra: Its name.
        what: What needs them.
        modules: More of them than the extra always takes.

    Raises:
        ImportError: One is missing; the message says how to install it.
    """
    for module in (*_PACKAGES[extra], *modules):
        try:
            import_module(module)
        except ModuleNotFoundError as missing:
            raise missing_extra(what, extra, library=missing.name) from missing
