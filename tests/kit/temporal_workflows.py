"""Workflows that ask agents; Temporal's sandbox imports this module by itself."""

from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError

from holdfast.integrations.temporal import WorkflowAgent, agent_failure

__all__ = ["Ask", "AskOtherwise", "Canceled", "Converse"]

QUICK = {
    "heartbeat_timeout": timedelta(seconds=1),
    "retry_policy": RetryPolicy(initial_interval=timedelta(milliseconds=100)),
}
"""A crash of the worker is noticed after a second."""


@workflow.defn
class Ask:
    """Asks once; gives the text, or the facts of the failure."""

    @workflow.run
    async def run(self, agent: str, text: str, key: str | None) -> dict:
        try:
            answer = await WorkflowAgent(agent, **QUICK).ask(text, key=key)
        except ActivityError as error:
            failure = agent_failure(error)
            if failure is None:
                raise
            return {name: getattr(failure, name) for name in failure.__struct_fields__}
        return {"text": answer.text}


@workflow.defn
class Converse:
    """Asks, and answers the agent's questions by signals."""

    def __init__(self):
        self._replies = []
        self._question = ""

    @workflow.run
    async def run(self, text: str) -> str:
        agent = WorkflowAgent("agent", **QUICK)
        answer = await agent.ask(text)
        while answer.needs_input:
            self._question = answer.question
            await workflow.wait_condition(lambda: self._replies)
            answer = await agent.ask(self._replies.pop(0), task_id=answer.task_id)
        return answer.text

    @workflow.signal
    def reply(self, text: str) -> None:
        self._replies.append(text)

    @workflow.query
    def question(self) -> str:
        return self._question


@workflow.defn(name="Converse")
class AskOtherwise(Converse):
    """The same workflow after a change of its code: it sends another message."""

    @workflow.run
    async def run(self, text: str) -> str:
        return (await WorkflowAgent("agent", **QUICK).ask(f"{text}, please")).text


@workflow.defn
class Canceled:
    """Asks an agent that never answers, until it is cancelled."""

    @workflow.run
    async def run(self, text: str, cancel_task: bool) -> str:
        agent = WorkflowAgent("agent", cancel_task=cancel_task, **QUICK)
        return (await agent.ask(text)).text
