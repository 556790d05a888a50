"""Functions as tools: described by their signatures, called with arguments that a model writes.

Rules: a function that cannot be described is an error where the caller passes it; arguments that
are not valid are an error for the model. Of an exception, only the type's name reaches the agent,
unless it is a `ToolError`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from inspect import Parameter
from typing import TYPE_CHECKING, Any, cast

import msgspec

from holdfast._aio.callbacks import reject_self_cancellation
from holdfast._wire.client_tools import ToolResult, ToolSchema

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from holdfast._wire.client_tools import ToolCall

__all__ = ["Tool", "ToolError"]

_VARIADIC = frozenset({Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD})


class ToolError(Exception):
    """Raise it in a tool to send the agent the reason why there is no result.

    Args:
        reason: The text that the agent receives.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)


class _WrongArgumentsError(Exception):
    """The arguments that a model wrote do not fit the tool; the text is for the model."""


class Tool:
    """A function that an agent may call.

    Args:
        function: The function. Each parameter has a type that `msgspec` can describe: JSON's
            types, enums, `Literal`, dataclasses, structs, `Annotated` with a `msgspec.Meta`.

    Attributes:
        schema: The description for the agent: the function's name, docstring and parameters.

    Raises:
        TypeError: The function has no name, or a parameter cannot be described.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name = getattr(function, "__name__", "")
        if not callable(function) or isinstance(function, type) or not name.isidentifier():
            text = f"a tool must be a named function, not {function!r}"
            raise TypeError(text)
        self._function = function
        self._parameters = _parameters(function, name)
        self.schema = ToolSchema(
            name=name,
            description=inspect.getdoc(function) or "",
            parameters=_parameters_schema(name, self._parameters),
        )

    async def run(
        self,
        call: ToolCall,
        *,
        raises: bool = False,
        on_failure: Callable[[Exception], None] = lambda _: None,
    ) -> ToolResult:
        """Call the function; if it is not async, it runs in a thread, to its end.

        Args:
            call: The agent's call.
            raises: Whether an exception of the function is raised instead of becoming an error
                result. A `ToolError` always becomes an error result.
            on_failure: Called with an exception that becomes an error result, other than a
                `ToolError`, while it is handled.
        """
        try:
            content = _to_text(await reject_self_cancellation(self._invoke(call.arguments)))
        except (_WrongArgumentsError, ToolError) as error:
            return ToolResult(id=call.id, name=call.name, error=str(error))
        except Exception as error:
            if raises:
                raise
            on_failure(error)
            reason = f"the tool failed: {type(error).__name__}"
            return ToolResult(id=call.id, name=call.name, error=reason)
        return ToolResult(id=call.id, name=call.name, content=content)

    async def _invoke(self, arguments: str) -> Any:
        args, kwargs = self._bind(arguments)
        if inspect.iscoroutinefunction(self._function):
            return await self._function(*args, **kwargs)
        result, error = await asyncio.to_thread(_outcome, self._function, args, kwargs)
        if error is not None:
            raise error
        return await result if inspect.isawaitable(result) else result

    def _bind(self, arguments: str) -> tuple[list[Any], dict[str, Any]]:
        """Return the positional and keyword arguments for the function.

        Raises:
            _WrongArgumentsError: The arguments do not fit the parameters.
        """
        members = _parse(arguments)
        if unknown := [name for name in members if name not in self._parameters]:
            text = (
                f"there is no parameter {unknown[0]!r}; valid names: {', '.join(self._parameters)}"
            )
            raise _WrongArgumentsError(text)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in self._parameters.items():
            if name in members:
                value = _convert(name, members[name], parameter.annotation)
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
    """Call a function; return its exception, because a future cannot hold a StopIteration."""
    try:
        return function(*args, **kwargs), None
    except Exception as error:  # noqa: BLE001  raised by the caller
        return None, error


# ── Describing a function ────────────────────────────────────────────────────────────────────


def _parameters(function: Callable[..., Any], name: str) -> Mapping[str, Parameter]:
    try:
        parameters = inspect.signature(function, eval_str=True).parameters
    except (ValueError, NameError, TypeError, SyntaxError) as error:
        text = f"the tool {name} cannot be described: {error}"
        raise TypeError(text) from None
    for parameter in parameters.values():
        if parameter.kind in _VARIADIC:
            text = (
                f"the parameter {parameter.name!r} of the tool {name} must not be positional-only"
            )
            raise TypeError(text)
        if parameter.annotation is Parameter.empty:
            text = f"the parameter {parameter.name!r} of the tool {name} needs a type"
            raise TypeError(text)
    return parameters


def _parameters_schema(tool: str, parameters: Mapping[str, Parameter]) -> dict[str, Any]:
    """Return the JSON schema of the object with all arguments."""
    for name, parameter in parameters.items():
        try:
            _schemas([parameter.annotation])
        except TypeError as error:
            reason = str(error).splitlines()[-1]
            text = f"the parameter {name!r} of the tool {tool} cannot be described: {reason}"
            raise TypeError(text) from None
    schemas, shared = _schemas([parameter.annotation for parameter in parameters.values()])
    properties = dict(zip(parameters, schemas, strict=True))
    for name, parameter in parameters.items():
        if parameter.default is not Parameter.empty:
            properties[name] |= _default_schema(parameter.default)
    schema: dict[str, Any] = {
        "type": "object",
        "properties": properties,
        "required": [n for n, p in parameters.items() if p.default is Parameter.empty],
        "additionalProperties": False,
    }
    return {**schema, "$defs": shared} if shared else schema


def _schemas(types: list[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    schemas, shared = msgspec.json.schema_components(types, ref_template="#/$defs/{name}")
    return [dict(schema) for schema in schemas], shared


def _default_schema(value: Any) -> dict[str, Any]:
    """Return the schema's ``default``; empty if the value cannot be JSON."""
    try:
        return {"default": msgspec.json.decode(msgspec.json.encode(value))}
    except (TypeError, ValueError, RecursionError):
        return {}


# ── Arguments and results ────────────────────────────────────────────────────────────────────


def _parse(arguments: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(arguments.strip() or "{}", type=dict[str, Any])
    except (ValueError, RecursionError) as error:
        text = f"the arguments are not a JSON object: {error}"
        raise _WrongArgumentsError(text) from None


def _convert(name: str, value: Any, annotation: Any) -> Any:
    try:
        converted = msgspec.convert(value, annotation)
        _set_defaults(converted)
    except (ValueError, RecursionError) as error:
        text = f"the parameter {name!r} is not valid: {error}"
        raise _WrongArgumentsError(text) from None
    return converted


def _set_defaults(value: Any) -> None:
    """Set the default fields of each dataclass instance, as its constructor does.

    `msgspec.convert` leaves defaults on the class, where they are not part of ``__dict__``.
    """
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        for field in fields:
            if field.init and field.default is not dataclasses.MISSING:
                # setattr() would fail on a frozen dataclass.
                object.__setattr__(value, field.name, getattr(value, field.name))
        _set_defaults([getattr(value, field.name, None) for field in fields])
    elif isinstance(value, msgspec.Struct):
        _set_defaults([getattr(value, name) for name in value.__struct_fields__])
    elif isinstance(value, dict):
        _set_defaults(list(cast("dict[Any, Any]", value).values()))
    elif isinstance(value, list | tuple | set | frozenset):
        for item in cast("Iterable[Any]", value):
            _set_defaults(item)


def _to_text(result: Any) -> str:
    """Return a result as text: a str unchanged, other values as JSON."""
    if isinstance(result, str):
        return result
    return msgspec.json.encode(result).decode()
