"""Requests whose JSON is read here: what is none is said to be none, whatever it made of Python.

The SDK tells a client what an exception says, and calls it an internal error, where JSON is nested
too deeply, or holds a number that is too long. And it takes a body whatever it is called: but
browsers let any page send text to any server of the machine or its network, and ask the server
first before they send what is called JSON, as it has to be (A2A 9.1, 11.1).

How much the JSON holds is bounded before the SDK reads it, which takes it far longer than the
agent's other callers can wait.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast._model import codec
from holdfast._model.error_values import int64
from holdfast._wire.http import media_type
from holdfast._wire.limits import Limits, check_json_size
from holdfast.errors import LimitExceededError

__all__ = ["JsonRequest", "holds_more"]

_DEPTH = 100
"""Levels of JSON; protobuf reads no more."""


class JsonRequest(Request):
    """A request, as the SDK's routes take it."""

    _read: Any = None

    async def is_called_json(self) -> bool:
        """Whether the body, if there is one, may be taken for JSON."""
        return "json" in media_type(self.headers) or not await self.body()

    async def refusal(self, *, values: int, is_rpc: bool) -> Response | None:
        """The answer to a body that holds more than is read; None for one that may be read.

        Args:
            values: Objects, lists, members and items that it may hold altogether.
            is_rpc: Whether it is JSON-RPC, or should be.
        """
        try:
            check_json_size(await self.body(), Limits(json_values=values, json_depth=_DEPTH))
        except LimitExceededError as error:
            if error.which == "json_values":
                text = f"the body holds more than {values} JSON values"
                return JSONResponse({"detail": text}, status_code=413)
        else:
            return None
        text = f"the JSON is nested deeper than {_DEPTH} levels"
        if not is_rpc:
            return JSONResponse({"detail": text}, status_code=400)
        try:
            rpc_id, code = _id_of(await self.json()), -32602
        except json.JSONDecodeError:
            rpc_id, code = None, -32700
        told = {"code": code, "message": text}
        return JSONResponse({"jsonrpc": "2.0", "id": rpc_id, "error": told})

    async def json(self) -> Any:
        """What the body holds.

        Raises:
            JSONDecodeError: It cannot be read as JSON (RFC 8259).
        """
        if self._read is None:
            self._read = _parsed(await self.body())
        return self._read


def holds_more(request: Any, most: int) -> bool:
    """Whether the metadata of a message in protobuf, and its parts, hold more values than that.

    Args:
        request: One with a message.
        most: Values.
    """
    structs = [request.metadata, request.message.metadata]
    for part in request.message.parts:
        structs.append(part.metadata)
        if part.HasField("data"):
            structs.append(part.data)
    values = 0
    while structs:
        struct = structs.pop()
        kind = struct.DESCRIPTOR.name
        if kind == "Value":
            struct = getattr(struct, struct.WhichOneof("kind") or "null_value")
            if not hasattr(struct, "DESCRIPTOR"):
                continue
            kind = struct.DESCRIPTOR.name
        values += len(struct.values if kind == "ListValue" else struct.fields)
        if values > most:
            return True
        structs += struct.values if kind == "ListValue" else struct.fields.values()
    return False


def _id_of(document: Any) -> Any:
    """The ``id`` of a JSON-RPC request, as far as it can be one."""
    rpc_id = (codec.as_object(document) or {}).get("id")
    return rpc_id if isinstance(rpc_id, str) else int64(rpc_id)


def _parsed(body: bytes) -> Any:
    try:
        # As UTF-8 (RFC 8259, 8.1), in which it was counted: by itself, it takes others as well.
        return json.loads(body.decode("utf-8-sig"), parse_constant=_no_json)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        raise json.JSONDecodeError("no JSON that can be read", "", 0) from None


def _no_json(constant: str) -> Any:
    raise json.JSONDecodeError(f"{constant} is not JSON", "", 0)
