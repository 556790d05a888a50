"""A network on which a function answers what is posted to an agent."""

import json

from holdfast.extend import HttpReply
from holdfast.testing import FakeAgent, FakeNetwork


class Answering(FakeNetwork):
    """Answers every POST with what a function makes of it; the card is the fake agent's."""

    def __init__(self, answer, agent=None):
        super().__init__(agent or FakeAgent())
        self.answer = answer

    async def request(self, request):
        if request.method == "GET":
            return await super().request(request)
        request.progress.sent = True
        return self.answer(request)


def rpc(request, **members):
    document = {"jsonrpc": "2.0", "id": json.loads(request.body)["id"], **members}
    return HttpReply(status=200, body=json.dumps(document).encode())
