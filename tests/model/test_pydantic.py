"""Values of the protocol in models of pydantic, as in the endpoints of FastAPI."""

import msgspec
import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from holdfast import AgentCard, Answer, Artifact, Message, Part, Task
from holdfast.types import Event, Role, TaskStatusUpdateEvent

MESSAGE = Message(message_id="m-1", role=Role.AGENT, parts=(Part(raw=b"\0"), Part(data=None)))
TASK = Task(
    id="t-1", artifacts=(Artifact(artifact_id="a", parts=(Part(text="hi"),)),), history=(MESSAGE,)
)


class Report(BaseModel):
    title: str = ""
    task: Task | None = None
    answers: list[Answer] = []


REPORT = Report(task=TASK, answers=[Answer(task=TASK), Answer(message=MESSAGE)])


def test_a_model_holds_values_and_dumps_the_json_objects_of_the_protocol():
    assert REPORT.task is TASK
    assert REPORT.model_dump() == {
        "title": "",
        "task": TASK.to_dict(),
        "answers": [{"task": TASK.to_dict()}, {"message": MESSAGE.to_dict()}],
    }


def test_a_model_reads_what_it_dumps():
    assert Report.model_validate_json(REPORT.model_dump_json()) == REPORT
    assert Report.model_validate(REPORT.model_dump()) == REPORT


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("t-1", "must be a Task or its JSON object, not str"),
        (MESSAGE, "must be a Task or its JSON object, not Message"),
        ({"id": 7}, "Expected `str`, got `int` at id"),
    ],
)
def test_a_value_that_is_not_valid_is_an_error_of_the_model(value, reason):
    with pytest.raises(ValidationError) as caught:
        Report(task=value)

    (error,) = caught.value.errors()
    assert (error["loc"], error["msg"]) == (("task",), f"Value error, {reason}")


@pytest.mark.parametrize("kind", [Answer, Message])
def test_an_empty_object_is_refused(kind):
    with pytest.raises(ValidationError, match="Value error, Object missing required field"):
        TypeAdapter(kind).validate_python({})


def test_a_union_of_types_keeps_the_type_of_a_value():
    event = TaskStatusUpdateEvent(task_id="t-1")
    assert TypeAdapter(Event).validate_python(event) is event


@pytest.mark.parametrize("kind", [Task, Message, Answer, AgentCard])
@pytest.mark.parametrize("mode", ["validation", "serialization"])
def test_the_json_schema_names_the_members_of_the_protocol(kind, mode):
    """FastAPI puts it into its OpenAPI document."""
    schema = TypeAdapter(kind).json_schema(mode=mode)

    names = {field.encode_name for field in msgspec.structs.fields(kind)}
    assert (schema["title"], schema["properties"].keys()) == (kind.__name__, names)
    assert "$ref" not in str(schema)
    assert "\n" not in str(schema["description"])
