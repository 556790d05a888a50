"""The check that the packages of the server's extras are installed."""

from __future__ import annotations

from importlib import import_module

from holdfast._model.extras import missing_extra

__all__ = ["require_extra"]

_PACKAGES = {
    "server": ("a2a.types.a2a_pb2", "starlette", "sse_starlette"),
    "server,grpc": ("a2a.types.a2a_pb2", "grpc", "google.rpc.error_details_pb2"),
}


def require_extra(extra: str, feature: str, *modules: str) -> None:
    """Check that the packages of an extra are installed.

    Args:
        extra: The extra's name, or names with commas.
        feature: The feature that needs them, for the error.
        modules: Modules to check besides those of the extra.

    Raises:
        ImportError: A package is missing; the message says how to install it.
    """
    for module in (*_PACKAGES[extra], *modules):
        try:
            import_module(module)
        except ModuleNotFoundError as missing:
            raise missing_extra(feature, extra, library=missing.name) from missing
