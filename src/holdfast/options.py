"""What callers pass by keyword: the types of the options of a call.

Programs that hand options on can take them as ``**options: Unpack[CallOptions]`` as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from holdfast.runtime.transport import ClientCallContext

__all__ = ["CallOptions"]


class CallOptions(TypedDict, total=False):
    """What every operation of a `Client` takes besides its own arguments.

    Attributes:
        timeout: Seconds for all of it, with its retries and its waiting; the client's own if
            left out.
        headers: Sent with each request of the call, to trusted origins only.
        extensions: URIs for ``A2A-Extensions``.
        context: For credential services, interceptors and layers; see `ClientCallContext`.
    """

    timeout: float | None
    headers: Mapping[str, str] | None
    extensions: Iterable[str]
    context: ClientCallContext | None
