"""Requests whose JSON is parsed here, before the official SDK gets it.

The SDK answers with an internal error and the exception's text if the JSON is nested too deeply or
contains a number that is too long; here that is a parse error. The SDK also accepts a body of any
content type. Browsers let every page send text to any server of the machine or its network, but
ask the server before they send JSON; so the content type must be JSON (A2A 9.1, 11.1).

The number of JSON values is bounded first, because the SDK would take so long to read a large
body that other callers wait too long.
"""

from __future__ import annotations

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast._model import codec
from holdfast._model.error_values import int64
from holdfast._wire.limits import check_json_size
from holdfast.errors import LimitExceededError
from holdfast.extend import media_type
from holdfast.policies import Limits

__all__ = ["JsonRequest", "exceeds_json_values"]

_MAX_DEPTH = 100
"""Levels of nested JSON; protobuf reads no more."""


class JsonRequest(Request):
    """A request for the SDK's routes, whose JSON is parsed and bounded here."""

    _document: Any = None

    async def has_json_type(self) -> bool:
        """Whether the content type is JSON, or there is no body."""
        return "json" in media_type(self.headers) or not await self.body()

    async def refusal(self, *, max_values: int, is_rpc: bool) -> Response | None:
        """Return the answer to a body that exceeds a bound; None for an accepted one.

        Args:
            max_values: Objects, lists, members and items that the body may contain altogether.
            is_rpc: Whether the request is JSON-RPC, or should be.
        """
        limits = Limits(json_values=max_values, json_depth=_MAX_DEPTH)
        try:
            check_json_size(await self.body(), limits)
        except LimitExceededError as error:
            if error.which == "json_values":
                text = f"the body holds more than {max_values} JSON values"
                return JSONResponse({"detail": text}, status_code=413)
        else:
            return None
        text = f"the JSON is nested deeper than {_MAX_DEPTH} levels"
        if not is_rpc:
            return JSONResponse({"detail": text}, status_code=400)
        try:
            rpc_id, code = _id_of(await self.json()), -32602
        except json.JSONDecodeError:
            rpc_id, code = None, -32700
        error_object = {"code": code, "message": text}
        return JSONResponse({"jsonrpc": "2.0", "id": rpc_id, "error": error_object})

    async def json(self) -> Any:
        """Return the parsed body.

        Raises:
            JSONDecodeError: The body is not valid JSON (RFC 8259).
        """
        if self._document is None:
            self._document = _parse(await self.body())
        return self._document


def exceeds_json_values(request: Any, max_values: int) -> bool:
    """Whether the message of a protobuf request contains too many values.

    Its metadata and the data and metadata of its parts count.

    Args:
        request: A request with a message.
        max_values: Objects, lists, members and items that it may contain altogether.
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
        if values > max_values:
            return True
        structs += struct.values if kind == "ListValue" else struct.fields.values()
    return False


def _id_of(document: Any) -> Any:
    """Return the ``id`` of a JSON-RPC request; None if there is no valid one."""
    rpc_id = (codec.as_object(document) or {}).get("id")
    return rpc_id if isinstance(rpc_id, str) else int64(rpc_id)


def _parse(body: bytes) -> Any:
    try:
        # json.loads accepts other encodings than UTF-8 (RFC 8259, 8.1), as which it was counted.
        return json.loads(body.decode("utf-8-sig"), parse_constant=_refuse_constant)
    except json.JSONDecodeError:
        raise
    except (ValueError, RecursionError):
        raise json.JSONDecodeError("not valid JSON", "", 0) from None


def _refuse_constant(constant: str) -> Any:
    raise json.JSONDecodeError(f"{constant} is not JSON", "", 0)
