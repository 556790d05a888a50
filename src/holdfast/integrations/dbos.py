"""Holdfast on DBOS: steps that ask agents, and execute no message twice.

Needs the extra ``holdfast[dbos]``.

`ask_agent` is a step of a workflow::

    pizzeria = holdfast.connect("http://localhost:9999", journal="calls.db")


    @DBOS.workflow()
    async def order(text: str) -> str:
        return (await ask_agent(pizzeria, text)).text
"""

from __future__ import annotations

from importlib import import_module

from holdfast._model.extras import missing_extra
from holdfast._public import publish

try:
    import_module("dbos")
except ModuleNotFoundError as missing:
    if missing.name != "dbos":
        raise
    raise missing_extra("holdfast.integrations.dbos", "dbos", library="dbos") from missing

from holdfast._integrations.dbos import ask_agent

__all__ = ["ask_agent"]

__getattr__, __dir__ = publish(__name__)
