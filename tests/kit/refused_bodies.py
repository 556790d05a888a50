"""Bodies around which a status may mean that nothing ran: who wrote them?"""

__all__ = ["OF_AN_AGENT", "OF_SOMEBODY_BEFORE_IT"]

OF_AN_AGENT = {
    "an error": b'{"jsonrpc": "2.0", "id": "1", "error": {"code": -32603, "message": "no"}}',
    "an error of another kind": b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 12}}',
    "an error without id": b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32603}}',
    "an error without code": b'{"jsonrpc": "2.0", "id": 1, "error": {"message": "no"}}',
    "an error in words": b'{"jsonrpc": "2.0", "id": 1, "error": "no"}',
    "a result": b'{"jsonrpc": "2.0", "id": "1", "result": {}}',
    "a result that is null": b'{"jsonrpc": "2.0", "id": "1", "result": null}',
    "a result alone": b'{"result": "done"}',
    "neither": b'{"jsonrpc": "2.0", "id": 1}',
    "a batch": b'[{"jsonrpc": "2.0", "id": 1, "result": {"task": {"id": "t-1"}}}]',
    "a batch with something else": b'["no", {"jsonrpc": "2.0", "error": {"code": -32603}}]',
    "an outcome": b'{"task": {"id": "t-1"}, "authentication": {"scheme": "Bearer"}}',
    "a message": b'{"message": {"messageId": "m-1", "parts": []}}',
    "a task": b'{"id": "t-1", "status": {"state": "TASK_STATE_WORKING"}}',
    "outcomes": b'[{"task": {"id": "t-1"}}]',
    "a status": b'{"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "message": "no"}}',
    "a problem": b'{"type": "https://a2a-protocol.org/errors/task-not-found", "title": "no"}',
    "too much to look through": b"[" * 200 + b"]" * 200,
}

OF_SOMEBODY_BEFORE_IT = {
    "nothing": b"",
    "words": b"busy",
    "a page": b"<html>Too many requests</html>",
    "a string": b'"busy"',
    "a list": b"[]",
    "a list of words": b'["busy"]',
    "an object": b"{}",
    "of a proxy": b'{"message": "too many requests", "status": 429}',
    "of a gateway": b'{"error": "slow down"}',
    "of another gateway": b'{"error": {"message": "slow down"}}',
    "cut off": b'{"jsonrpc": "2.0", ',
}
