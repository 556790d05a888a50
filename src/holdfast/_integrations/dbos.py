"""Steps of DBOS that ask agents; `holdfast.integrations.dbos` publishes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from dbos import DBOS, StepOptions

from holdfast._arguments import check_key, check_kind
from holdfast._client.client import journaling_of
from holdfast._integrations.durable import may_succeed_later, step_key
from holdfast.client import Answer, Client, to_message
from holdfast.errors import A2AError, KeyConflictError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.client import Content, SendOptions

__all__ = ["ask_agent"]


async def ask_agent(
    agent: Client,
    message: Content,
    *,
    task_id: str | None = None,
    context_id: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    message_metadata: Mapping[str, Any] | None = None,
    accepted_output_modes: Iterable[str] | None = None,
    key: str | None = None,
    step: StepOptions | None = None,
    **options: Unpack[SendOptions],
) -> Answer:
    """Ask an agent in a step of a DBOS workflow, and return its answer.

    The message is executed at most once, however often DBOS repeats the step, and whichever
    process runs it, because the call of the step is recorded in the journal of the client.

    Args:
        agent: The client of the agent, with a journal: a file if all processes run on one
            machine, a PostgreSQL database if they do not.
        message: The `Content` to send: text, parts, a `Message` or its JSON object.
        task_id: Id of the task to continue, such as that of an answer that needs input; a new
            task by default.
        context_id: Id of the conversation to continue; a new conversation by default.
        metadata: A JSON object for the metadata of the request; none by default.
        message_metadata: A JSON object to add to the message's own metadata; none by default.
        accepted_output_modes: Media types that the caller accepts; the client's own by default,
            any if empty.
        key: Idempotency key in the journal, from 1 to 512 characters, for a message that must be
            executed at most once in all workflows, such as the number of an order. By default a
            key of this step: its workflow id and step id.
        step: Options of the step, which take precedence over the defaults: the name
            ``holdfast.ask``, and up to 10 attempts, after 1 s, 2 s, 4 s and so on, while a later
            attempt may succeed.
        options: Any of `SendOptions`: ``timeout`` (seconds; the client's own, 900, by default),
            ``headers``, ``extensions``, ``context`` and ``tenant`` (none by default), ``timeouts``
            (the client's `Timeouts` by default), ``on_unknown`` (after a lost reply: the client's
            own, ``"reconcile"``, by default).

    Returns:
        The answer. If `Answer.needs_input` is true, ask again with its ``task_id``.

    Raises:
        A2AError: There is no answer, as for `Client.ask`; `KeyConflictError` if a repeated
            workflow asks something else in this step.
        dbos.error.DBOSMaxStepRetriesExceeded: All attempts of the step failed.
        ValueError: The client has no journal, the message has no content, an argument is out of
            range, or the call is not in a workflow, or in another step.
        TypeError: An argument of another type.

    Example:
        Ask in a workflow, and wait for a person if the agent needs input::

            @DBOS.workflow()
            async def order(text: str) -> str:
                answer = await ask_agent(pizzeria, text)
                while answer.needs_input:
                    reply = await DBOS.recv_async("reply", timeout_seconds=86400)
                    answer = await ask_agent(pizzeria, reply, task_id=answer.task_id)
                return answer.text
    """
    check_kind("agent", agent, Client)
    if DBOS.workflow_id is None or DBOS.step_id is not None:
        text = (
            "ask_agent is a step of a DBOS workflow: call it in a workflow, and not in another "
            "step; elsewhere, call Client.ask(…, key=…)"
        )
        raise ValueError(text)
    if journaling_of(agent) is None:
        text = "a step of DBOS may be repeated, so it needs a journal: connect(…, journal=…)"
        raise ValueError(text)
    if key is not None:
        check_key(key)
    content = to_message(
        message, new_id="", task_id=task_id, context_id=context_id, metadata=message_metadata
    )
    modes = None if accepted_output_modes is None else list(accepted_output_modes)

    async def ask() -> dict[str, Any]:
        try:
            answer = await agent.ask(
                content,
                metadata=metadata,
                accepted_output_modes=modes,
                key=_own_key() if key is None else key,
                **options,
            )
        except KeyConflictError as error:
            if key is None:
                _explain_changed_workflow(error)
            raise
        return answer.to_dict()

    step_options: StepOptions = {
        "name": "holdfast.ask",
        "retries_allowed": True,
        "max_attempts": 10,
        "interval_seconds": 1.0,
        "should_retry": _may_succeed_later,
        **(step or {}),
    }
    return Answer.from_dict(await DBOS.run_step_async(step_options, ask))


def _own_key() -> str:
    return step_key("dbos", DBOS.workflow_id or "", "", str(DBOS.step_id))


def _explain_changed_workflow(error: KeyConflictError) -> None:
    """Say why the key of a step, which the caller did not choose, is used already."""
    error.message = (
        f"the code or the arguments of workflow {DBOS.workflow_id} have changed: the key "
        f"{error.key!r} of this step was used for message {error.message_id}; this message was "
        "not sent: start the workflow under another id"
    )


def _may_succeed_later(error: BaseException) -> bool:
    return isinstance(error, A2AError) and may_succeed_later(
        error, error.task_id, has_journal=True
    )
