"""What is said where the packages of the server are missing."""

from __future__ import annotations

from importlib import import_module

__all__ = ["need"]

_PACKAGES = {
    "server": ("a2a.types.a2a_pb2", "starlette", "sse_starlette"),
    "server,grpc": ("a2a.types.a2a_pb2", "grpc", "google.rpc.error_details_pb2"),
}

_NAMES = {"a2a": "a2a-sdk"}
"""What packages are installed by, where that is not how they are imported."""


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
            name = _NAMES.get(missing.name or "", missing.name)
            text = f'{what} needs {name}: pip install "holdfast[{extra}]"'
            raise ImportError(text, name=missing.name) from missing
