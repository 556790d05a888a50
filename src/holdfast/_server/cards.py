"""The card of an agent, made from a card, an object with a name, or a function.

Rules: given members are kept; the server fills in what only it knows: the interfaces, and the
capabilities that it was configured to offer.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

import msgspec

from holdfast._arguments import check_kind
from holdfast._model import codec
from holdfast.types import AgentCard, AgentInterface, AgentSkill, WireValue

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["interfaces", "metadata_card", "modified_card"]

_DEFAULT_VERSION = "1.0.0"
_DEFAULT_MODES = ("text/plain",)
_MAX_FILE_BYTES = 1024 * 1024


def metadata_card(agent: object, card: object) -> AgentCard:
    """Return the card without interfaces and capabilities, which only the server knows.

    Args:
        agent: The agent; if there is no card, its name and docstring are used.
        card: An `AgentCard`, an SDK card, its JSON object, the path of its file, or any object
            with a ``name``; None for the agent itself.

    Raises:
        ValueError: The card is not valid, cannot be read, or has no name.
        TypeError: It is none of these.
    """
    made = _read(agent if card is None else card, is_agent=card is None)
    if not made.name:
        raise ValueError("the card has no name")
    return msgspec.structs.replace(
        made,
        version=made.version or _DEFAULT_VERSION,
        description=made.description or made.name,
        default_input_modes=made.default_input_modes or _DEFAULT_MODES,
        default_output_modes=made.default_output_modes or _DEFAULT_MODES,
        skills=made.skills or (_default_skill(made),),
    )


def interfaces(
    url: str,
    bindings: Sequence[str],
    *,
    versions: Sequence[str] = ("1.0",),
    grpc_url: str | None = None,
) -> tuple[AgentInterface, ...]:
    """Return the interfaces of a served agent, in the order of versions and bindings.

    Args:
        url: The address of its application.
        bindings: Some of `holdfast._wire.bindings.BINDINGS`.
        versions: Protocol versions, the preferred one first.
        grpc_url: ``host:port`` for gRPC; None for the host and port of `url`.
    """
    root = url.rstrip("/")
    addresses = {
        "JSONRPC": f"{root}/",
        "HTTP+JSON": root,
        "GRPC": grpc_url or urlsplit(url).netloc,
    }
    return tuple(
        AgentInterface(url=addresses[name], protocol_binding=name, protocol_version=version)
        for version in versions
        for name in bindings
    )


def modified_card(card: AgentCard, modifier: Callable[[Any], Any]) -> AgentCard:
    """Return the card that the caller's function makes of the complete card.

    Args:
        card: The complete card.
        modifier: The function; one that the SDK made, such as its signer, gets the SDK's card.

    Raises:
        TypeError: It returns no card.
    """
    if (getattr(modifier, "__module__", None) or "").partition(".")[0] != "a2a":
        modified: AgentCard = modifier(card)
        check_kind("what card_modifier returns", modified, AgentCard)
        return modified
    from a2a.types import a2a_pb2

    from holdfast.integrations.a2a_sdk import to_proto, to_value

    return to_value(modifier(to_proto(card, a2a_pb2.AgentCard)), AgentCard)


def _default_skill(card: AgentCard) -> AgentSkill:
    return AgentSkill(
        id=card.name.replace(" ", "-").lower(),
        name=card.name,
        description=card.description or card.name,
        tags=(card.name,),
    )


def _read(source: Any, *, is_agent: bool) -> AgentCard:
    match source:
        case AgentCard():
            return source
        case str() | bytes() | int() | float() | list():
            pass
        case Path():
            return _from_document(_read_file(source))
        case Mapping():
            return _from_document(dict(cast("Mapping[str, Any]", source)))
        case _ if _is_sdk_card(source):
            from holdfast.integrations.a2a_sdk import to_value

            return to_value(source, AgentCard)
        case _ if isinstance(getattr(source, "name", None), str) and not isinstance(source, type):
            return _from_object(source)
        case _ if is_agent:
            return _from_code(source)
        case _:
            pass
    raise TypeError(
        "card must be an AgentCard, its JSON object, the Path of its file, or an object with a "
        f"name, not {type(cast('object', source)).__name__}"
    )


def _is_sdk_card(source: object) -> bool:
    return hasattr(source, "DESCRIPTOR") and type(source).__name__ == "AgentCard"


def _read_file(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ValueError(f"cannot read the card {path}: {error.strerror or error}") from None
    if len(content) > _MAX_FILE_BYTES:
        raise ValueError(f"the card {path} is larger than {_MAX_FILE_BYTES} bytes")
    try:
        return codec.parse(content)
    except codec.MalformedError as error:
        raise ValueError(f"the card {path} is {error}") from None


def _from_document(document: Any) -> AgentCard:
    try:
        return AgentCard.from_dict(document)
    except ValueError as error:
        raise ValueError(f"the card is not valid: {error}") from None


def _from_object(agent: Any) -> AgentCard:
    """Return the card of an object with a name and any other attributes of a card.

    Other attributes, such as a prompt, are private to the agent.
    """
    document: dict[str, Any] = {}
    for name in AgentCard.__struct_fields__:
        value = getattr(agent, name, None)
        if isinstance(value, str | Mapping | WireValue | list | tuple):
            document[_camel(name)] = _to_json(cast("Any", value))
    document["skills"] = [_skill_to_json(skill) for skill in document.get("skills", ())]
    return _from_document(document)


def _to_json(value: Any) -> Any:
    match value:
        case WireValue():
            return value.to_dict()
        case Mapping():
            items = cast("Mapping[str, Any]", value).items()
            return {name: _to_json(item) for name, item in items}
        case list() | tuple():
            return [_to_json(item) for item in cast("list[Any]", value)]
        case _:
            return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _skill_to_json(skill: Any) -> dict[str, Any]:
    """Return the JSON of a skill, which may be only a name."""
    if isinstance(skill, dict):
        return cast("dict[str, Any]", skill)
    name = skill if isinstance(skill, str) else str(getattr(skill, "name", "") or "")
    return {
        "id": str(getattr(skill, "id", "") or name),
        "name": name,
        "description": str(getattr(skill, "description", "") or name),
        "tags": [name],
    }


def _from_code(agent: Any) -> AgentCard:
    """Return a card from the name of a function or class, and its docstring's first paragraph."""
    code: Any = agent if inspect.isroutine(agent) else cast("Any", type(agent))
    code = inspect.unwrap(code)
    name = str(getattr(code, "__name__", "") or "agent").strip("_<>")
    description = " ".join((inspect.getdoc(code) or "").partition("\n\n")[0].split())
    return AgentCard(name=name, description=description)
