"""A network whose reads do not end when they are cancelled."""

import asyncio

from holdfast.testing import FakeNetwork

__all__ = ["StubbornNetwork"]


class StubbornNetwork(FakeNetwork):
    """A network whose streams end a cancelled read only once they are released."""

    def __init__(self, agent):
        super().__init__(agent)
        self.released = asyncio.Event()

    def stream(self, request):
        return StubbornStream(super().stream(request), self.released)


class StubbornStream:
    """One of them."""

    def __init__(self, inner, released):
        self.inner, self.released = inner, released

    async def __aenter__(self):
        self.stream = await self.inner.__aenter__()
        self.status, self.headers = self.stream.status, self.stream.headers
        self.read = self.stream.read
        return self

    async def __aexit__(self, *error):
        await self.inner.__aexit__(*error)

    async def chunks(self):
        try:
            async for chunk in self.stream.chunks():
                yield chunk
        except asyncio.CancelledError:
            await self.released.wait()
            raise
