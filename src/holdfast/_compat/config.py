"""What the clients of a factory have in common, in the words of the official SDK."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast._arguments import check_configuration, check_hook, check_kind, items, not_empty
from holdfast._net.engine import HttpEngine
from holdfast._net.resolve_engine import engine_of
from holdfast.types import SendMessageConfiguration, TaskPushNotificationConfig

if TYPE_CHECKING:
    import aiohttp
    from grpc import aio

    Engine = HttpEngine | aiohttp.ClientSession
    Channel = aio.Channel
else:
    Engine = HttpEngine  # aiohttp is slow to import
    Channel = Any  # the same, and comes with an extra

__all__ = ["ClientConfig"]


class ClientConfig(msgspec.Struct, frozen=True, kw_only=True):
    """What a `ClientFactory` gives to each client that it makes.

    Attributes:
        streaming: Whether to use streams where the agent offers them; tasks are polled else.
        polling: Whether `Client.send_message` asks the agent to answer at once, and leaves it
            to the caller to watch the task.
        engine: What carries requests: an `HttpEngine` or an `aiohttp.ClientSession`, which are
            used and not closed; None lets each client have its own.
        grpc_channel_factory: Makes the channels of gRPC, which are never closed; see `connect`.
        supported_protocol_bindings: The only bindings that may be used, best first; empty for
            all that the clients speak.
        use_client_preference: Whether the order of these counts; else the card's does.
        accepted_output_modes: Media types that the caller can use; sent with each message.
        push_notification_configs: Where agents send news of the tasks that messages begin; the
            protocol takes one at most.

    Raises:
        ValueError: A value that cannot be right.
        TypeError: A value of another type.
    """

    streaming: bool = True
    polling: bool = False
    engine: Engine | None = None
    grpc_channel_factory: Callable[[str], Channel] | None = None
    supported_protocol_bindings: Sequence[str] = ()
    use_client_preference: bool = False
    accepted_output_modes: Sequence[str] = ()
    push_notification_configs: Sequence[TaskPushNotificationConfig] = ()

    def __post_init__(self) -> None:
        check_kind("streaming", self.streaming, bool)
        check_kind("polling", self.polling, bool)
        check_kind("use_client_preference", self.use_client_preference, bool)
        if self.engine is not None:
            engine_of(self.engine)
        if self.grpc_channel_factory is not None:
            check_hook("grpc_channel_factory", self.grpc_channel_factory)
        name = "supported_protocol_bindings"
        bindings = items(name, self.supported_protocol_bindings)
        for binding in bindings:
            not_empty(f"one of {name}", binding)
        modes = items("accepted_output_modes", self.accepted_output_modes)
        configs = items("push_notification_configs", self.push_notification_configs)
        if len(configs) > 1:
            text = "push_notification_configs has more than the one that the protocol takes"
            raise ValueError(text)
        # What the caller goes on to change must not change this.
        msgspec.structs.force_setattr(self, name, bindings)
        msgspec.structs.force_setattr(self, "accepted_output_modes", modes)
        msgspec.structs.force_setattr(self, "push_notification_configs", configs)
        check_configuration(self.configuration)

    def __repr__(self) -> str:
        # Not all: a push notification's token is secret, and an engine says nothing.
        return (
            f"ClientConfig(streaming={self.streaming}, polling={self.polling}, "
            f"supported_protocol_bindings={self.supported_protocol_bindings}, "
            f"use_client_preference={self.use_client_preference}, "
            f"accepted_output_modes={self.accepted_output_modes})"
        )

    @property
    def configuration(self) -> SendMessageConfiguration:
        """The configuration of each message."""
        return SendMessageConfiguration(
            accepted_output_modes=tuple(self.accepted_output_modes),
            task_push_notification_config=next(iter(self.push_notification_configs), None),
            return_immediately=self.polling,
        )
