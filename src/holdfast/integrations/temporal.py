"""Holdfast on Temporal: workflows that ask agents, and execute no message twice.

Needs the extra ``holdfast[temporal]``.

`HoldfastPlugin` gives the workers an activity that asks agents; `WorkflowAgent` starts it in a
workflow::

    plugin = HoldfastPlugin({"pizzeria": "http://localhost:9999"}, journal="calls.db")
    client = await temporalio.client.Client.connect("localhost:7233", plugins=[plugin])

`agent_failure` returns the facts of a failed call from Temporal's errors.
"""

from __future__ import annotations

from importlib import import_module

from holdfast._model.extras import missing_extra
from holdfast._public import publish

try:
    import_module("temporalio")
except ModuleNotFoundError as missing:
    if missing.name != "temporalio":
        raise
    raise missing_extra(
        "holdfast.integrations.temporal", "temporal", library="temporalio"
    ) from missing

from holdfast._integrations.temporal.failures import AgentFailure, agent_failure
from holdfast._integrations.temporal.plugin import HoldfastPlugin
from holdfast._integrations.temporal.workflow_agent import WorkflowAgent

__all__ = ["AgentFailure", "HoldfastPlugin", "WorkflowAgent", "agent_failure"]

__getattr__, __dir__ = publish(__name__)
