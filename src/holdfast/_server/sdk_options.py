"""The arguments of the official SDK's server: what replaces them, and which are passed on."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from holdfast._arguments import check_kind, check_options

__all__ = ["INSTEAD", "check_handler_options"]

_OF_SERVING = "pass it to app(), serving() or serve()"
_OF_SOCKETS = "pass it to serving() or serve()"
_OF_HANDLER = "pass it in handler_options={…}"

INSTEAD: Mapping[str, str] = {
    "agent_executor": "pass it as the first argument: A2AServer(executor, card=…)",
    "agent_card": "pass it as card=",
    "extended_agent_card": "pass it as extended_card=",
    "push_config_store": "pass it as push=",
    "queue_manager": _OF_HANDLER,
    "request_context_builder": _OF_HANDLER,
    "extended_card_modifier": _OF_HANDLER,
    "event_stream": _OF_HANDLER,
    "interrupted_task_timeout": _OF_HANDLER,
    "validate_input_modes": _OF_HANDLER,
    "context_builder": "pass authenticate= or middleware=, which say who calls",
    "enable_v0_3_compat": "pass versions=('1.0', '0.3')",
    "rpc_url": "the url= of app(), serving() or serve() is the address of JSON-RPC",
    "bindings": _OF_SERVING,
    "url": _OF_SERVING,
    "host": _OF_SOCKETS,
    "port": _OF_SOCKETS,
    "grpc_port": _OF_SOCKETS,
    "grace": _OF_SOCKETS,
}
"""What to pass in place of options that `A2AServer` does not have."""

_SET_BY_SERVER: Mapping[str, str] = {
    "agent_executor": "the first argument",
    "task_store": "task_store=",
    "agent_card": "card=",
    "extended_agent_card": "extended_card=",
    "push_config_store": "push=",
    "push_sender": "push_sender=",
    "push_url_validator": "push_url_validator=",
}
"""Arguments of the SDK's handler that the server sets, and its own for them."""


def check_handler_options(options: Mapping[str, Any] | None) -> dict[str, Any]:
    """Check and copy the caller's arguments for the SDK's handler.

    Raises:
        TypeError: They are not a dict, or the installed SDK has no such argument.
        ValueError: The server sets one of them itself.
    """
    if options is None:
        return {}
    check_kind("handler_options", options, Mapping)
    from a2a.server.request_handlers import DefaultRequestHandler

    for name in options:
        if name in _SET_BY_SERVER:
            text = (
                f"handler_options must not contain {name!r}; pass {_SET_BY_SERVER[name]} of "
                "A2AServer"
            )
            raise ValueError(text)
    known = inspect.signature(DefaultRequestHandler).parameters
    free = [name for name in known if name not in _SET_BY_SERVER]
    check_options("the installed SDK's request handler (handler_options)", options, free)
    return dict(options)
