"""Functions as tools: described by their signatures, and run with what a model writes.

Rules: what cannot be described is refused where the caller passes it; what a model gets wrong is
told to the model. Nothing of an exception reaches an agent but its kind, unless it is a
`ToolError`, which is made for that.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from inspect import Parameter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._aio.callbacks import reject_self_cancellation
from holdfast._wire.client_tools import ToolResult, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast._wire.client_tools import ToolCall

__all__ = ["Tool", "ToolError"]

logger = logging.getLogger("holdfast")

_MANY = frozenset({Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD})


class ToolError(Exception):
    """To be raised in a tool, to tell the agent why there is no result.

    Args:
        reason: What the agent is told.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class _WrongArgumentsError(Exception):
    """What a model wrote is not what the tool takes; its text is for the model."""


class Tool:
    """A function that an agent may call.

    Args:
        function: With a type for each parameter, of what `msgspec` can describe: JSON's own types,
            enums, `Literal`, dataclasses, structs, `Annotated` with a `msgspec.Meta`.

    Attributes:
        schema: What the agent is told of it: the function's name, docstring and parameters.

    Raises:
        TypeError: It cannot be called by name, or a parameter cannot be described.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name = getattr(function, "__name__", "")
        if not callable(function) or isinstance(function, type) or not name.isidentifier():
            text = f"a tool is a function with a name, not {function!r}"
            raise TypeError(text)
        self._function = function
        self._parameters = _parameters(function, name)
        self.schema = ToolSchema(
            name=name,
            description=inspect.getdoc(function) or "",
            parameters=_described(name, self._parameters),
        )

    async def run(self, call: ToolCall, *, raises: bool = False) -> ToolResult:
        """Runs it; one that is not async runs in a thread, to its end.

        Args:
            call: What the agent wants.
            raises: Whether an exception of the function is raised, and not told to the agent. A
                `ToolError` is always told.
        """
        try:
            content = _written(await reject_self_cancellation(self._result(call.arguments)))
        except (_WrongArgumentsError, ToolError) as error:
            return ToolResult(id=call.id, name=call.name, error=str(error))
        except Exception as error:
            if raises:
                raise
            logger.warning("tool %s failed", call.name, exc_info=True)
            reason = f"the tool failed: {type(error).__name__}"
            return ToolResult(id=call.id, name=call.name, error=reason)
        return ToolResult(id=call.id, name=call.name, content=content)

    async def _result(self, arguments: str) -> Any:
        args, kwargs = self._bound(arguments)
        if inspect.iscoroutinefunction(self._function):
            return await self._function(*args, **kwargs)
        result, error = await asyncio.to_thread(_outcome, self._function, args, kwargs)
        if error is not None:
            raise error
        return await result if inspect.isawaitable(result) else result

    def _bound(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """The arguments for the function.

        Raises:
            _WrongArgumentsError: They are not what it takes.
        """
        given = _read(arguments)
        if unknown := [name for name in given if name not in self._parameters]:
            text = f"there is no parameter {unknown[0]!r}; there are {', '.join(self._parameters)}"
            raise _WrongArgumentsError(text)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name in given:
                value = _converted(name, given[name], parameter.annotation)
            elif parameter.default is not Parameter.empty:
                value = parameter.default
            else:
                text = f"the parameter {name!r} is missing"
                raise _WrongArgumentsError(text)
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                args.append(value)
            else:
                kwargs[name] = value
        return args, kwargs


def _outcome(
    function: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]
) -> tuple[Any, Exception | None]:
    """Runs a function; its exception is returned, as a future cannot hold a StopIteration."""
    try:
        return function(*args, **kwargs), None
    except Exception as error:  # noqa: BLE001  raised where it is waited for
        return None, error


# ── Describing a function ────────────────────────────────────────────────────────────────────


def _parameters(function: Callable[..., Any], name: str) -> Mapping[str, Parameter]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (ValueError, NameError, TypeError, SyntaxError) as error:
        text = f"the tool {name} cannot be described: {error}"
        raise TypeError(text) from None
    for parameter in parameters.values():
        if parameter.kind in _MANY:
            text = f"the parameter {parameter.name!r} of the tool {name} has no name to call it by"
            raise TypeError(text)
        if parameter.annotation is Parameter.empty:
            text = f"the parameter {parameter.name!r} of the tool {name} needs a type"
            raise TypeError(text)
    return parameters


def _described(tool: str, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """The JSON schema of the object of all arguments."""
    for name, parameter in parameters.items():
        try:
            _schemas([parameter.annotation])
        except TypeError as error:
            why = str(error).splitlines()[-1]
            text = f"the parameter {name!r} of the tool {tool} cannot be described: {why}"
            raise TypeError(text) from None
    properties, shared = _schemas([parameter.annotation for parameter in parameters.values()])
    described = dict(zip(parameters, properties, strict=True))
    for name, parameter in parameters.items():
        if parameter.default is not Parameter.empty:
            described[name] |= _default(parameter.default)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": described,
        "required": [n for n, p in parameters.items() if p.default is Parameter.empty],
        "additionalProperties": False,
    }
    return {**schema, "$defs": shared} if shared else schema


def _schemas(types: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    found, shared = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return [dict(schema) for schema in found], shared


def _default(value: Any) -> dict[str, Any]:
    """The default in a schema; one that JSON does not have is left to the function."""
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(value))}
    except (TypeError, ValueError, RecursionError):
        return {}


# ── What a model writes, and reads ───────────────────────────────────────────────────────────


def _read(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments.strip() or "{}", type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        text = f"the arguments are not a JSON object: {error}"
        raise _WrongArgumentsError(text) from None


def _converted(name: str, value: Any, kind: Any) -> Any:
    try:
        converted = msgspec.convert(value, kind)
        _complete(converted)
    except (ValueError, RecursionError) as error:
        text = f"the parameter {name!r} is not valid: {error}"
        raise _WrongArgumentsError(text) from None
    return converted


def _complete(value: Any) -> None:
    """Gives each dataclass its defaults as its own, as its constructor would.

    `msgspec.convert` leaves them to the class, where nothing that writes an instance finds them.
    """
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        for field in fields:
            if field.init and field.default is not dataclasses.MISSING:
                # It may be frozen.
                object.__setattr__(value, field.name, getattr(value, field.name))
        _complete([getattr(value, field.name, None) for field in fields])
    elif isinstance(value, msgspec.Struct):
        _complete([getattr(value, name) for name in value.__struct_fields__])
    elif isinstance(value, dict):
        _complete(list(cast("dict[Any, Any]", value).values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for one in cast("Iterable[Any]", value):
            _complete(one)


def _written(result: Any) -> str:
    """A result as text: text as it is, all else as JSON."""
    if isinstance(result, str):
        return result
    return msgspec.json.encode(result).decode()
