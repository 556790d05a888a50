"""Schemas of the protocol's types for pydantic, and so for FastAPI; imported by pydantic only.

Valid are a value of the type and its JSON object; both are serialized as `WireValue.to_dict` does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from pydantic_core import core_schema

if TYPE_CHECKING:
    from holdfast.types import WireValue

__all__ = ["json_schema_of", "validation_schema_of"]


def validation_schema_of(kind: type[WireValue]) -> core_schema.CoreSchema:
    """Return how pydantic validates and serializes a type."""

    def validate(value: Any) -> WireValue:
        if isinstance(value, kind):
            return value
        if isinstance(value, dict):
            return kind.from_dict(value)  # pyright: ignore[reportUnknownArgumentType]
        text = f"must be a {kind.__name__} or its JSON object, not {type(value).__name__}"
        raise ValueError(text)

    def serialize(value: WireValue) -> dict[str, Any]:
        return value.to_dict()

    return core_schema.no_info_plain_validator_function(
        validate, serialization=core_schema.plain_serializer_function_ser_schema(serialize)
    )


def json_schema_of(kind: type[WireValue]) -> dict[str, Any]:
    """Return the JSON schema of a type, with the types of its members in it."""
    (schema,), definitions = msgspec.json.schema_components((kind,), ref_template="{name}")
    inlined: dict[str, Any] = _inlined(schema, definitions)
    return inlined


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """Return a schema with definitions in place of references to them; none refers to itself."""
    if isinstance(schema, list):
        return [_inlined(item, definitions) for item in schema]  # pyright: ignore[reportUnknownVariableType]
    if not isinstance(schema, dict):
        return schema
    members: dict[str, Any] = {**schema}
    members.update(definitions.get(members.pop("$ref", ""), {}))
    if isinstance(description := members.get("description"), str):
        members["description"] = description.partition("\n")[0]
    return {name: _inlined(member, definitions) for name, member in members.items()}
