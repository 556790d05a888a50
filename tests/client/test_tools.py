"""Functions as tools: schemas, arguments and results."""

import asyncio
import enum
import inspect
import json
import keyword
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._client.tools import Tool
from holdfast._wire.client_tools import ToolCall
from holdfast.testing import run


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Point:
    x: int
    y: int = 0


class Line(msgspec.Struct):
    points: list[Point]
    colour: Colour = Colour.RED


class Style(TypedDict):
    width: int
    dashed: NotRequired[bool]


def the_parameter(kind, default=inspect.Parameter.empty):
    """Return the schema of a function's only parameter, and of its shared types."""
    schema = Tool(taking({"a": (kind, default)})).schema.parameters
    return schema["properties"]["a"], schema["required"], schema.get("$defs", {})


def taking(parameters, got=None):
    """Return a function with some parameters, which records its arguments."""

    async def tool(**arguments):
        got.update(arguments)

    tool.__signature__ = inspect.Signature(
        [
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default
            )
            for name, (kind, default) in parameters.items()
        ]
    )
    return tool


def result_of(tool, arguments):
    return run(tool.run(ToolCall(id="c", name="tool", arguments=arguments)))


# ── Schemas ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("kind", "schema"),
    [
        (str, {"type": "string"}),
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (dict[str, Any], {"type": "object"}),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Literal["a", "b"], {"enum": ["a", "b"]}),
        (date, {"type": "string", "format": "date"}),
        (
            Annotated[int, msgspec.Meta(ge=1, description="How many.")],
            {"type": "integer", "minimum": 1, "description": "How many."},
        ),
    ],
)
def test_plain_types_have_their_json_schema(kind, schema):
    assert the_parameter(kind) == (schema, ["a"], {})


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (Colour, {"Colour"}),
        (Point, {"Point"}),
        (Line, {"Line", "Point", "Colour"}),
        (Style, {"Style"}),
    ],
)
def test_custom_types_are_described_in_defs(kind, names):
    schema, _, shared = the_parameter(kind)

    assert schema == {"$ref": f"#/$defs/{kind.__name__}"}
    assert set(shared) == names


@pytest.mark.parametrize(
    ("kind", "default", "in_schema"),
    [
        (int, 1, {"default": 1}),
        (int | None, None, {"default": None}),
        (Colour, Colour.BLUE, {"default": "blue"}),
        (Point, Point(1), {"default": {"x": 1, "y": 0}}),
        (list[int], [1], {"default": [1]}),
        (int, object(), {}),
    ],
)
def test_a_default_is_in_the_schema_if_it_is_json(kind, default, in_schema):
    schema, required, _ = the_parameter(kind, default)

    assert {name: value for name, value in schema.items() if name == "default"} == in_schema
    assert required == []


def test_a_tool_has_its_name_and_docstring():
    def measure(what: "str") -> float:
        """Measures something.

        Args:
            what: What to measure.
        """

    schema = Tool(measure).schema

    assert schema.name == "measure"
    assert schema.description == inspect.getdoc(measure)
    assert schema.parameters["properties"] == {"what": {"type": "string"}}


def test_a_function_without_parameters_has_an_empty_schema():
    def rest() -> None:
        pass

    tool = Tool(rest)

    assert tool.schema.description == ""
    assert tool.schema.parameters == {
        "type": "object",
        "properties": {},
        "required": [],
        "additionalProperties": False,
    }
    assert [result_of(tool, text).error for text in ("", " ", "{}")] == [None] * 3


# ── Arguments ────────────────────────────────────────────────────────────────────────────────

NAMES = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True).filter(
    lambda name: not keyword.iskeyword(name)
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
INTEGERS = st.integers(-(2**63), 2**64 - 1)
POINTS = st.builds(Point, x=INTEGERS, y=INTEGERS)
KINDS = {
    str: TEXT,
    int: INTEGERS,
    float: st.floats(allow_nan=False, allow_infinity=False),
    bool: st.booleans(),
    Colour: st.sampled_from(Colour),
    Literal["a", "b"]: st.sampled_from(["a", "b"]),
    Point: POINTS,
    Line: st.builds(Line, points=st.lists(POINTS, max_size=2), colour=st.sampled_from(Colour)),
    Style: st.fixed_dictionaries({"width": INTEGERS}, optional={"dashed": st.booleans()}),
    datetime: st.datetimes(timezones=st.just(UTC)),
    list[int]: st.lists(INTEGERS, max_size=3),
    dict[str, int]: st.dictionaries(TEXT, INTEGERS, max_size=3),
    int | None: st.none() | INTEGERS,
}


@st.composite
def tools(draw):
    """Generate parameters, each with a type, perhaps a default, and perhaps a value."""
    parameters, values = {}, {}
    for name in draw(st.lists(NAMES, unique=True, max_size=5)):
        kind = draw(st.sampled_from(list(KINDS)))
        has_default = draw(st.booleans())
        parameters[name] = kind, draw(KINDS[kind]) if has_default else inspect.Parameter.empty
        if not has_default or draw(st.booleans()):
            values[name] = draw(KINDS[kind])
    return parameters, values


@given(tools())
def test_a_function_receives_arguments_and_defaults(drawn):
    parameters, values = drawn
    got = {}
    tool = Tool(taking(parameters, got))

    result = result_of(tool, msgspec.json.encode(values).decode())

    assert result.error is None
    assert got == {n: values.get(n, default) for n, (_, default) in parameters.items()}
    assert [type(got[name]) for name in values] == [type(values[name]) for name in values]
    schema = json.loads(json.dumps(tool.schema.parameters))
    assert set(schema["properties"]) == set(parameters)
    assert set(schema["required"]) <= set(values)


JSON = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)


@given(
    st.text(max_size=40)
    | JSON.map(json.dumps)
    | st.fixed_dictionaries({"a": JSON}).map(json.dumps)
)
def test_for_any_arguments_a_function_runs_with_valid_ones_or_not_at_all(text):
    got = {}
    result = result_of(Tool(taking({"a": (int, 7)}, got)), text)

    if result.error is None:
        assert type(got["a"]) is int
    else:
        assert got == {}
        assert "the tool failed" not in result.error


# ── Results ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("text", "text"),
        ("", ""),
        (None, "null"),
        (True, "true"),
        ([1, "a"], '[1,"a"]'),
        (Point(1), '{"x":1,"y":0}'),
        (Colour.RED, '"red"'),
        (b"\x00", '"AA=="'),
    ],
)
def test_a_result_is_text_or_json(value, written):
    async def give() -> Any:
        return value

    result = result_of(Tool(give), "")

    assert (result.content, result.error) == (written, None)


@dataclass(frozen=True)
class Way:
    start: Point
    stops: list[Point]
    named: dict[str, Point]
    line: Line
    length: float = 0.5


def test_a_returned_argument_has_its_defaults():
    async def follow(way: Way) -> Way:
        return way

    point = '{"x": 1}'
    way = (
        f'{{"start": {point}, "stops": [{point}], "named": {{"a": {point}}}, '
        f'"line": {{"points": [{point}]}}}}'
    )

    result = result_of(Tool(follow), f'{{"way": {way}}}')

    whole = {"x": 1, "y": 0}
    assert json.loads(result.content) == {
        "start": whole,
        "stops": [whole],
        "named": {"a": whole},
        "line": {"points": [whole], "colour": "red"},
        "length": 0.5,
    }


def test_a_cancelled_tool_is_cancelled():
    async def endless() -> None:
        await asyncio.sleep(1e6)

    async def main():
        call = ToolCall(id="c", name="endless", arguments="{}")
        running = asyncio.create_task(Tool(endless).run(call))
        await asyncio.sleep(1)
        running.cancel()
        await running

    with pytest.raises(asyncio.CancelledError):
        run(main())
