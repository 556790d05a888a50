"""Plans: where a task stands is a function of the clock."""

import asyncio

import pytest

from holdfast import Artifact, Message, Part, Role, TaskState
from holdfast._testing.timeline import TaskTimeline, timestamp
from holdfast.testing import (
    Plan,
    ReceivedMessage,
    Step,
    asks,
    completes,
    crashes,
    echo,
    fails,
    needs_auth,
    rejects,
    replies,
    streams,
    works_forever,
)


def hello(text="hello", **members):
    return Message(message_id="m", role=Role.USER, parts=(Part(text=text),), **members)


def begun(plan, *, at=0.0, message=None):
    life = TaskTimeline("task-1", "context-1")
    life.begin(plan, message, at)
    return life


def course(plan, *moments):
    life = begun(plan)
    return [life.task(moment).state.name for moment in moments]


# ── What plans say ───────────────────────────────────────────────────────────────────────────


def test_a_completing_task_is_submitted_then_working_then_completed():
    assert course(completes("done", after=5, works=2), 0, 1.9, 2, 4.9, 5, 1e9) == [
        "SUBMITTED",
        "SUBMITTED",
        "WORKING",
        "WORKING",
        "COMPLETED",
        "COMPLETED",
    ]


def test_a_task_that_takes_no_time_is_over_at_once():
    assert course(completes("done"), 0) == ["COMPLETED"]


def test_artifacts_come_with_completion_in_order_of_the_contents():
    given = Artifact(artifact_id="mine", parts=(Part(data=1),))

    life = begun(completes("one", Part(url="http://x.test/f"), given, after=1))

    assert life.task(0.5).artifacts == ()
    first, second, third = life.task(1).artifacts
    assert (first.artifact_id, first.text) == ("artifact-1", "one")
    assert (second.artifact_id, second.parts[0].url) == ("artifact-2", "http://x.test/f")
    assert third is given


@pytest.mark.parametrize(
    ("plan", "state"),
    [
        (fails("no luck", after=3), "FAILED"),
        (rejects("not mine", after=3), "REJECTED"),
        (asks("which one?", after=3), "INPUT_REQUIRED"),
    ],
)
def test_a_plan_that_ends_otherwise_says_why(plan, state):
    life = begun(plan)

    assert life.task(2.9).status.message is None
    assert life.task(3).state.name == state
    assert life.task(3).status.message.text == plan.steps[-1].says
    assert life.task(3).status.message.role is Role.AGENT


def test_a_reason_may_be_missing():
    assert begun(fails()).task(0).status.message is None


def test_a_task_that_works_for_ever_never_settles():
    assert course(works_forever(), 0, 1e9) == ["WORKING", "WORKING"]


def test_an_artifact_grows_chunk_by_chunk():
    life = begun(streams("Hel", "lo, ", "world", every=2))

    shown = [(life.task(at).state.name, life.task(at).text) for at in (0, 1.9, 2, 4, 6, 7.9, 8)]
    assert shown == [
        ("WORKING", ""),
        ("WORKING", ""),
        ("WORKING", "Hel"),
        ("WORKING", "Hello, "),
        ("WORKING", "Hello, world"),
        ("WORKING", "Hello, world"),
        ("COMPLETED", "Hello, world"),
    ]
    (artifact,) = life.task(8).artifacts
    assert [part.text for part in artifact.parts] == ["Hel", "lo, ", "world"]


def test_what_follows_the_chunks_can_be_said():
    assert course(streams("a", every=1, then=fails("no", after=5)), 1, 6.9, 7) == [
        "WORKING",
        "WORKING",
        "FAILED",
    ]
    assert course(streams("a", then=Plan(())), 0, 1e9) == ["WORKING", "WORKING"]
    assert begun(streams(then=crashes("boom"))).crash(0) == "boom"


def test_without_chunks_there_is_no_artifact():
    assert begun(streams()).task(0).artifacts == ()
    assert course(streams(every=3), 2.9, 3) == ["WORKING", "COMPLETED"]


def test_an_authorization_clears_out_of_band_and_the_task_continues():
    plan = needs_auth("log in", cleared_after=10, then=completes("in", after=5))

    assert course(plan, 0, 9, 10, 14, 15) == [
        "AUTH_REQUIRED",
        "AUTH_REQUIRED",
        "WORKING",
        "WORKING",
        "COMPLETED",
    ]


def test_an_authorization_that_never_comes_is_waited_for():
    assert course(needs_auth("log in"), 0, 1e9) == ["AUTH_REQUIRED", "AUTH_REQUIRED"]


def test_events_after_an_authorization_are_emitted_whole():
    hand_made = Plan((Step(state=TaskState.FAILED, says="no"),))

    assert course(needs_auth("log in", cleared_after=1, then=hand_made), 1) == ["FAILED"]


def test_a_crash_leaves_a_failed_task_without_a_reason():
    life = begun(crashes("boom", after=2))

    assert life.task(1).state is TaskState.WORKING
    assert life.crash(1) is None
    assert life.task(2).state is TaskState.FAILED
    assert life.task(2).status.message is None
    assert life.crash(2) == "boom"


def test_echo_completes_with_the_text_of_the_message():
    assert begun(echo(ReceivedMessage(message=hello("say it")))).task(0).text == "say it"


def test_a_message_instead_of_a_task_is_the_agents():
    assert replies("no task").role is Role.AGENT
    assert replies("no task").text == "no task"


def test_time_does_not_run_backwards():
    with pytest.raises(ValueError, match="after must be zero or more seconds, not -1"):
        Step(state=TaskState.WORKING, after=-1)
    with pytest.raises(ValueError, match="after must be zero or more seconds, not -2"):
        completes("done", after=1, works=3)


def test_a_status_message_needs_a_state():
    with pytest.raises(ValueError, match="text needs state"):
        Step(says="hello")


# ── Lives ────────────────────────────────────────────────────────────────────────────────────


def test_a_step_keeps_the_time_at_which_it_happened():
    life = begun(completes("done", after=90.5))

    assert life.task(1000).status.timestamp == "2026-01-01T00:01:30.500Z"
    assert timestamp(0) == "2026-01-01T00:00:00.000Z"


def test_a_task_before_its_first_step_is_submitted():
    life = begun(Plan((Step(state=TaskState.WORKING, after=1),)))

    assert life.task(0).state is TaskState.SUBMITTED
    assert life.task(0).status.timestamp is None


def test_a_new_plan_ends_the_old_one():
    life = begun(completes("never", after=10))

    life.begin(fails("changed"), None, 5)

    assert life.task(20).state is TaskState.FAILED
    assert life.task(20).text == ""


def test_an_artifact_with_a_known_id_replaces_the_earlier_one():
    life = begun(completes("draft"))

    life.begin(completes("final"), None, 1)

    assert life.task(1).text == "final"


def chunk(text, artifact_id="a", **members):
    return Artifact(artifact_id=artifact_id, parts=(Part(text=text),), **members)


def test_chunks_go_behind_the_artifact_with_their_id():
    one = Step(
        artifacts=(chunk("1", name="first", metadata={"n": 1, "kept": True}), chunk("x", "b"))
    )
    more = Step(
        artifacts=(chunk("2", name="second", metadata={"n": 2}), chunk("y", "b")), append=True
    )
    life = begun(Plan((one, more)))

    assert life.task(0).artifacts == (
        Artifact(
            artifact_id="a",
            name="first",
            parts=(Part(text="1"), Part(text="2")),
            metadata={"n": 2, "kept": True},
        ),
        Artifact(artifact_id="b", parts=(Part(text="x"), Part(text="y"))),
    )
    assert one.artifacts[0].metadata == {"n": 1, "kept": True}


def test_a_chunk_without_an_artifact_begins_one():
    assert begun(Plan((Step(artifacts=(chunk("1"),), append=True),))).task(0).text == "1"


def test_an_artifact_that_was_appended_to_can_be_replaced():
    life = begun(streams("dr", "aft"))

    life.begin(completes("final"), None, 1)

    assert life.task(1).text == "final"


def test_a_step_without_a_state_leaves_the_status():
    life = begun(Plan((Step(state=TaskState.WORKING, says="busy"), Step(after=5))))

    assert life.task(5).status == life.task(0).status
    assert life.task(5).status.message.text == "busy"


def test_what_is_not_stored_is_not_shown():
    steps = (Step(state=TaskState.WORKING), Step(state=TaskState.FAILED, is_stored=False))
    life = begun(Plan(steps))

    assert life.task(0).state is TaskState.WORKING
    assert life.position(0) == 2


def test_status_messages_go_into_the_history_when_others_follow():
    said = [Step(state=TaskState.WORKING, says=text) for text in ("one", "two")]
    life = begun(Plan((*said, Step(state=TaskState.COMPLETED))), message=hello())

    task = life.task(0)
    assert [message.text for message in task.history] == ["hello", "one", "two"]
    assert len({message.message_id for message in task.history}) == 3
    assert task.status.message is None


def test_a_task_without_history_keeps_no_message():
    life = TaskTimeline("task-1", "context-1", keeps_history=False)
    life.begin(asks("which one?"), hello(), 0.0)
    life.begin(completes("done"), hello("this"), 1.0)

    assert life.task(1).history == ()


def test_events_that_did_not_happen_are_gone():
    life = begun(streams("a", "b", every=10))

    life.begin(completes("done"), None, 15.0)

    assert life.position(1e9) == 6
    assert [part.text for part in life.task(1e9).artifacts[0].parts] == ["done"]


def test_the_history_holds_messages_and_the_questions_that_they_answer():
    life = begun(asks("which one?"), message=hello("book it"))

    life.begin(completes("booked"), hello("the blue one"), 1)

    history = life.task(1).history
    assert [message.text for message in history] == ["book it", "which one?", "the blue one"]
    assert {(message.task_id, message.context_id) for message in history} == {
        ("task-1", "context-1")
    }


def test_a_message_that_is_not_recorded_is_in_no_history():
    assert begun(completes("done")).task(0).history == ()


async def settling_time(life):
    await life.wait_settled()
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize(
    ("plan", "at"),
    [
        (completes("done"), 0),
        (completes("done", after=5), 5),
        (asks("what?", after=2), 2),
        (needs_auth("log in", cleared_after=9), 0),
        (fails(after=3), 3),
    ],
)
async def test_task_settles_when_it_is_terminal_or_interrupted(plan, at):
    assert await settling_time(begun(plan)) == at


async def test_a_question_that_was_answered_does_not_count_as_settled():
    life = begun(asks("what?"))

    life.begin(completes("done", after=4), None, 0.0)

    assert await settling_time(life) == 4


async def test_waiter_is_woken_by_a_new_plan():
    life = begun(works_forever())
    waiting = asyncio.create_task(settling_time(life))
    await asyncio.sleep(3)

    life.begin(Plan((Step(state=TaskState.CANCELED, after=2),)), None, 3.0)

    assert await waiting == 5


async def test_waiter_may_be_cancelled():
    life = begun(works_forever())

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(60):
            await life.wait_settled()

    life.begin(completes("done"), None, 60.0)
    await life.wait_settled()


async def test_who_waits_can_be_stirred():
    life = begun(works_forever())
    waiting = asyncio.create_task(life.wait(100))
    await asyncio.sleep(3)

    life.notify()

    await waiting
    assert asyncio.get_running_loop().time() == 3
