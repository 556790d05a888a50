"""The plugin of Temporal's clients and workers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Unpack

from temporalio.plugin import SimplePlugin
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from holdfast._arguments import check_options
from holdfast._integrations.temporal.activities import AgentActivities
from holdfast._integrations.temporal.clients import AgentClients
from holdfast.client import ConnectOptions

if TYPE_CHECKING:
    from collections.abc import Mapping

    from temporalio.worker import WorkflowRunner

    from holdfast.client import AgentOrClient

__all__ = ["HoldfastPlugin"]

_PASSED_THROUGH = ("holdfast", "msgspec")
"""Modules that workflows share with their worker: they are imported once, outside the sandbox."""


class HoldfastPlugin(SimplePlugin):
    """Plugin of Temporal: lets workflows ask agents, with `WorkflowAgent`.

    Pass it to ``temporalio.client.Client.connect(plugins=[…])``; every worker with that client has
    it, and so has a ``Replayer`` with ``plugins=[…]``. It adds the activity ``holdfast.ask``, and
    lets workflows import `holdfast` inside their sandbox. The clients of the agents are closed
    when the last worker of the plugin ends.

    Args:
        agents: A mapping of names to agents, as for `Coordinator`: anything that `connect`
            accepts, such as an address, or a `Client`, which keeps its own options and stays open.
            Empty by default, for a worker that runs workflows only.
        options: Options of `connect` for every agent that is not a `Client`, as for
            `Coordinator`. With ``journal``, a retry resumes the call of a crashed worker, whenever
            the worker crashed: pass a file if all workers run on one machine, the address of a
            PostgreSQL database if they do not. Without a journal, a crash between sending a
            message and learning its task's id makes the outcome unknown; the message is never sent
            twice.

    Raises:
        ValueError: An address, a name or an option is not valid.
        TypeError: An argument of another type.

    Example:
        Run a worker::

            plugin = HoldfastPlugin({"pizzeria": "http://localhost:9999"}, journal="calls.db")
            client = await temporalio.client.Client.connect("localhost:7233", plugins=[plugin])
            await Worker(client, task_queue="orders", workflows=[Order]).run()
    """

    def __init__(
        self,
        agents: Mapping[str, AgentOrClient] | None = None,
        **options: Unpack[ConnectOptions],
    ) -> None:
        check_options("a HoldfastPlugin", options, (*ConnectOptions.__annotations__, "agents"))
        clients = AgentClients(agents or {}, options)
        super().__init__(  # pyright: ignore[reportUnknownMemberType]  # of any activity
            "holdfast.HoldfastPlugin",
            activities=[AgentActivities(clients).ask] if agents else None,
            workflow_runner=_with_holdfast,
            run_context=clients.running,
        )


def _with_holdfast(runner: WorkflowRunner | None) -> WorkflowRunner:
    if isinstance(runner, SandboxedWorkflowRunner):
        passed_through = runner.restrictions.with_passthrough_modules(*_PASSED_THROUGH)
        return replace(runner, restrictions=passed_through)
    return runner or SandboxedWorkflowRunner()
