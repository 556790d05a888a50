"""The agents of a worker, by name, while workers run."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from temporalio.exceptions import ApplicationError

from holdfast._client.client import journaling_of
from holdfast._journal.guard import journal_timeout, wrap_journal_errors
from holdfast._journal.records import label_of
from holdfast.client import Coordinator
from holdfast.push import TokenUse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from holdfast._journal.writer import Journaling
    from holdfast.client import AgentOrClient, Client, ConnectOptions

__all__ = ["AgentClients", "NamedClient"]

_JOURNAL_ID = b"holdfast.journal-id"
_JOURNAL_ID_LIFETIME_S = 50 * 365 * 86400.0
_MAX_TOKENS = 2**31


class NamedClient:
    """The client of an agent, with queries of its journal.

    Attributes:
        client: The client.
    """

    def __init__(self, client: Client) -> None:
        self.client = client
        self._journaling: Journaling | None = journaling_of(client)
        self._journal_id: str | None = None

    @property
    def has_journal(self) -> bool:
        """Whether the client records its calls."""
        return self._journaling is not None

    async def has_recorded(self, key: str) -> bool:
        """Return whether the journal has a call of a key that may have been sent.

        Raises:
            JournalError: The journal cannot be read.
        """
        if self._journaling is None:
            return False
        record = await self._journaling.find_label(label_of("", key))
        return record is not None and record.outcome != "not_sent"

    async def journal_id(self) -> str | None:
        """Return the id of the journal, the same for all workers that share it.

        The journal stores it as the use of a token that does not expire. None without a journal,
        or if the journal stores no tokens.

        Raises:
            JournalError: The journal cannot be read or written.
        """
        if self._journaling is None or self._journal_id is not None:
            return self._journal_id
        use_token = getattr(self._journaling.journal, "use_token", None)
        if use_token is None:
            return None
        use = await journal_timeout(
            wrap_journal_errors(
                use_token,
                _JOURNAL_ID,
                TokenUse(b"", str(uuid.uuid4())),
                expires_in=_JOURNAL_ID_LIFETIME_S,
                most=_MAX_TOKENS,
            )
        )
        self._journal_id = None if use is None else use.receiver
        return self._journal_id


class AgentClients:
    """The clients of a plugin, open while at least one of its workers runs.

    Args:
        agents: The agents by name, as for `Coordinator`.
        options: Options of `connect`.

    Raises:
        ValueError: An address, a name or an option is not valid.
        TypeError: An argument of another type.
    """

    def __init__(self, agents: Mapping[str, AgentOrClient], options: ConnectOptions) -> None:
        reusable = {  # for the next coordinator, an iterator would be empty
            name: tuple(cast("Iterator[Any]", value)) if isinstance(value, Iterator) else value
            for name, value in options.items()
        }
        self._agents = dict(agents)
        self._options = cast("ConnectOptions", reusable)
        self._coordinator: Coordinator | None = self._new()  # invalid options raise here
        self._named: dict[str, NamedClient] = {}
        self._workers = 0

    def _new(self) -> Coordinator:
        return Coordinator(self._agents, **self._options)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Keep the clients open while a worker runs."""
        self._workers += 1
        try:
            yield
        finally:
            self._workers -= 1
            if self._workers == 0:
                coordinator, self._coordinator = self._coordinator, None
                self._named.clear()
                if coordinator is not None:
                    await coordinator.close()

    def get(self, name: str) -> NamedClient:
        """Return the client of an agent.

        Raises:
            ApplicationError: There is no agent of this name at this worker; another worker, or the
                next version of this one, may have it.
        """
        if name not in self._agents:
            known = ", ".join(map(repr, self._agents)) or "none"
            text = (
                f"this worker has no agent {name!r} (its agents: {known}): pass it to "
                "HoldfastPlugin; nothing was sent"
            )
            raise ApplicationError(text, type="NotFoundError")
        if self._coordinator is None:
            self._coordinator = self._new()
        if name not in self._named:
            self._named[name] = NamedClient(self._coordinator.client(name))
        return self._named[name]
