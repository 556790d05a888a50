"""An agent for workflows, whose code must be deterministic: the agent only starts activities."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Unpack, cast

from temporalio import workflow

from holdfast._arguments import check_kind, check_not_empty, check_options
from holdfast._integrations.temporal.requests import ASK, AskRequest, AskResult
from holdfast.client import Answer, to_message

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.client import Content

__all__ = ["WorkflowAgent"]

_DEFAULTS: workflow.ActivityConfig = {
    "start_to_close_timeout": timedelta(minutes=15),
    "heartbeat_timeout": timedelta(seconds=30),
}
_OPTIONS = tuple(workflow.ActivityConfig.__annotations__)


class WorkflowAgent:
    """An agent, for the code of a workflow: each `ask` is one activity.

    It has no state and may be created anywhere, such as at the top of the workflow's module. The
    worker that runs the activity knows the address and the credentials of the agent by its name
    (`HoldfastPlugin`), so that neither is stored in the history of the workflow.

    Args:
        name: The name of the agent at the plugin of the worker.
        cancel_task: Whether a cancellation of the workflow, or of the activity, also cancels the
            agent's task while the activity waits for it; the activity then ends when the task has
            ended, or after 20 s. False by default: the agent continues.
        options: Options of the activity, as of ``workflow.execute_activity``, for example
            ``start_to_close_timeout``, ``retry_policy``, ``task_queue`` and ``priority``. The
            ``start_to_close_timeout`` is 15 minutes by default; a retry after it continues to wait
            for the same task. The ``heartbeat_timeout`` is 30 s by default; a retry starts that
            long after a crash of the worker.

    Raises:
        ValueError: The name is empty, or ``cancel_task`` is True without a heartbeat timeout.
        TypeError: An argument of another type, or an option that activities do not have.

    Example:
        Ask an agent, and wait for a signal if it needs input::

            @workflow.defn
            class Order:
                def __init__(self) -> None:
                    self.replies: list[str] = []

                @workflow.run
                async def run(self, order: str) -> str:
                    pizzeria = WorkflowAgent("pizzeria")
                    answer = await pizzeria.ask(order)
                    while answer.needs_input:
                        await workflow.wait_condition(lambda: self.replies)
                        reply = self.replies.pop(0)
                        answer = await pizzeria.ask(reply, task_id=answer.task_id)
                    return answer.text

                @workflow.signal
                def reply(self, text: str) -> None:
                    self.replies.append(text)
    """

    def __init__(
        self,
        name: str,
        *,
        cancel_task: bool = False,
        **options: Unpack[workflow.ActivityConfig],
    ) -> None:
        check_options("a WorkflowAgent", options, (*_OPTIONS, "cancel_task"))
        self._name = check_not_empty("the name of an agent", name)
        check_kind("cancel_task", cancel_task, bool)
        self._cancel_task = cancel_task
        self._options: workflow.ActivityConfig = {**_DEFAULTS, **options}
        if cancel_task:
            if self._options.get("heartbeat_timeout") is None:
                text = (
                    "cancel_task=True needs a heartbeat_timeout: without heartbeats, an activity "
                    "is not notified of its cancellation"
                )
                raise ValueError(text)
            cancellation_type = workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED
            self._options.setdefault("cancellation_type", cancellation_type)

    async def ask(
        self,
        message: Content,
        *,
        task_id: str | None = None,
        context_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        message_metadata: Mapping[str, Any] | None = None,
        accepted_output_modes: Iterable[str] | None = None,
        key: str | None = None,
        **options: Unpack[workflow.ActivityConfig],
    ) -> Answer:
        """Ask the agent in an activity, and return its answer.

        The message is executed at most once, however often Temporal retries the activity and
        whichever worker runs it. A later `ask` is another message, even with the same text.

        Args:
            message: The `Content` to send: text, parts, a `Message` or its JSON object. Temporal
                stores it in the history of the workflow.
            task_id: Id of the task to continue, such as that of an answer that needs input; a new
                task by default.
            context_id: Id of the conversation to continue; a new conversation by default.
            metadata: A JSON object for the metadata of the request; none by default.
            message_metadata: A JSON object to add to the message's own metadata; none by default.
            accepted_output_modes: Media types that the caller accepts; the client's own by
                default, any if empty.
            key: Idempotency key in the journal of the worker, from 1 to 512 characters, such as
                the number of an order, for a message that must be executed at most once in all
                workflows and runs. By default a key of this activity: its workflow id, run id and
                activity id.
            options: Options of this activity, which take precedence over those of the agent.

        Returns:
            The answer, without the history of its task. If `Answer.needs_input` is true, ask
            again with its ``task_id``.

        Raises:
            temporalio.exceptions.ActivityError: The activity failed; `agent_failure` returns the
                facts.
            temporalio.workflow.NondeterminismError: In a replay, the workflow sends another
                message than its history records.
            ValueError: The message has no content, or an argument is out of range.
            TypeError: An argument of another type.
        """
        check_options("ask", options, _OPTIONS, function=WorkflowAgent.ask)
        content = to_message(
            message,
            new_id="",
            task_id=task_id,
            context_id=context_id,
            metadata=message_metadata,
        )
        modes = None if accepted_output_modes is None else list(accepted_output_modes)
        request = AskRequest(
            agent=self._name,
            message=content.to_dict(),
            metadata=None if metadata is None else dict(metadata),
            accepted_output_modes=modes,
            key=key,
            cancel_task=self._cancel_task,
        )
        fingerprint = request.new_fingerprint()
        config: workflow.ActivityConfig = {
            "summary": f"ask {self._name}",
            **self._options,
            **options,
        }
        result = cast(
            "AskResult",
            await workflow.execute_activity(
                ASK,
                replace(request, fingerprint=fingerprint),
                result_type=AskResult,
                **config,
            ),
        )
        if result.fingerprint != fingerprint:
            text = (
                f"the workflow sends the agent {self._name!r} another message than its history "
                "records, so the recorded answer does not belong to this message: guard the "
                "change with workflow.patched(…), or reset the workflow"
            )
            raise workflow.NondeterminismError(text)
        return Answer.from_dict(result.answer)

    def __repr__(self) -> str:
        return f"WorkflowAgent({self._name!r})"
