"""The data that all requests of one call of the caller's have in common."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import msgspec

from holdfast._pipeline.listeners import Consumer
from holdfast._pipeline.transport import CallGroup, ClientCallContext
from holdfast._policy.deadline import Deadline
from holdfast._policy.reconcile import OnUnknown
from holdfast._wire.http import Timeouts
from holdfast.errors import A2AError

if TYPE_CHECKING:
    from collections.abc import Generator

    from holdfast._client.keyed_calls import KeyedCall  # noqa: TC004  it imports this module
    from holdfast._pipeline.caller_operation import CallerOperation
    from holdfast._wire.redaction import Secrets

__all__ = ["CallScope"]


class CallScope(msgspec.Struct, frozen=True, kw_only=True):
    """A call of the caller's: its deadline, and what each of its requests carries.

    Attributes:
        deadline: The deadline of the whole call.
        headers: Checked, names in lower case.
        extensions: URIs for ``A2A-Extensions``.
        context: For credential services, interceptors and layers.
        tenant: The tenant in place of the interface's; None for the interface's.
        timeouts: Limits of each attempt; None for the client's.
        consumers: Called with the tasks and messages that the call receives.
        call_group: The state that its requests share.
        on_unknown: What to do about a message whose reply was lost.
        keyed: The call of the key that the caller gave; None without a key.
    """

    deadline: Deadline
    headers: dict[str, str] = {}
    extensions: tuple[str, ...] = ()
    context: ClientCallContext | None = None
    tenant: str | None = None
    timeouts: Timeouts | None = None
    consumers: tuple[Consumer, ...] = ()
    call_group: CallGroup = msgspec.field(default_factory=CallGroup)
    on_unknown: OnUnknown = "reconcile"
    keyed: KeyedCall | None = None

    @property
    def secrets(self) -> Secrets:
        """The secrets that its requests carry."""
        return self.call_group.secrets

    @property
    def operation(self) -> CallerOperation:
        """The operation of the caller, which lasts as long as a ``with`` block of it."""
        operation = self.call_group.operation
        if operation is None:
            message = "the scope has no operation"
            raise RuntimeError(message)
        return operation

    def within(self, deadline: Deadline) -> CallScope:
        """Return the same call with another deadline, for a part of it."""
        return msgspec.structs.replace(self, deadline=deadline)

    def follow_up(self, deadline: Deadline) -> CallScope:
        """Return the scope of a call of its own that carries the same, after an abandoned call."""
        group = self.call_group
        call_group = CallGroup(
            secrets=group.secrets,
            operation=group.operation,
            is_abandoned=True,
            loop=group.loop,
        )
        return msgspec.structs.replace(
            self, deadline=deadline, call_group=call_group, consumers=()
        )

    @contextlib.contextmanager
    def hiding_secrets(self) -> Generator[None]:
        """Hide secrets in errors made from an agent's words outside of the stack of layers."""
        try:
            yield
        except A2AError as error:
            self.secrets.hide_in(error)
            raise
