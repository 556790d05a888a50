"""Write the page of all error messages: ``python -m tests.error_messages``.

The page is made from the source, without running it; see `tests.kit.source_messages`.
"""

import re

from tests.kit.paths import ROOT
from tests.kit.source_messages import LOG, PARTS, messages

from holdfast import errors

__all__ = ["ADVICE", "PAGE", "page", "public_errors"]

PAGE = ROOT / "docs" / "reference" / "error-messages.md"

COMMAND_LINE = "Command line"
FINDINGS = "Findings of the doctor"
INTRODUCTION = """\
# Error messages

All messages of errors, warnings and log lines, with the facts that each error sets and what to do
when you catch it.

Search this page for the words of a message. `{name}` stands for a value, `[a | b]` for one of
several texts, `[a]` for a text that may be missing. Every `A2AError` may end with notes in
parentheses: the agent's address, the number of attempts, the delay of a Retry-After, the reason
why it was not retried.

The facts are attributes of the error: `executed=False` means that the agent did not execute the
message, `transient=True` that the same call may succeed later. Facts that are not listed are set
by the client where it knows them (`agent`, `attempts`, `request_id`), or have their defaults:
`executed=None` (unknown) and `transient=False`. `…` stands for the facts of another error.

Written by `python -m tests.error_messages` from the source.
"""

ADVICE = {
    "A2AError": "Base class: catch it last, and decide by `executed` and `transient`.",
    "A2AConnectionError": "Check the address and the network if `transient` is False; otherwise "
    "retry later. A message is safe to send again only if `executed` is False.",
    "A2AHTTPError": "Read `http_status` and `excerpt`: a proxy or a gateway may have answered. "
    "Check the interface's URL in the agent card.",
    "A2ATimeoutError": "Raise the timeout named by `phase` in `Timeouts`, or check the agent.",
    "AgentCardResolutionError": "Check the agent's address, or pass the URL of its card.",
    "AgentError": "Read `code`, `data` and `details`: the agent defines their meaning.",
    "AuthenticationError": "Pass credentials with `auth=`; `schemes` and `missing` name what the "
    "card requires. Log in again if a token has expired.",
    "CallEndedError": "Read `outcome`. The key stays used: pass a new one only if executing the "
    "message twice does no harm. `store_messages=True` of the journal keeps later answers.",
    "CancelUnconfirmedError": "The task may still be running: read `task`, and call `wait` or "
    "`cancel_task` again.",
    "CardSignatureError": "Do not call the agent until its card verifies; check the keys of your "
    "`CardVerifier`.",
    "CircuitOpenError": "Call again after `retry_after` seconds, or call another agent.",
    "ClientToolsNotSupportedError": "Call the agent without `tools=`.",
    "ContentTypeNotSupportedError": "Send one of the input modes in the agent card.",
    "CredentialOriginError": "If you trust `origin`, pass it as `credential_origins=`.",
    "DeadlineExceededError": "Resume with `wait` if `task` is set; otherwise pass a longer "
    "`timeout=`. Send a message again only if `executed` is False.",
    "DuplicateTasksError": "Choose one of `tasks` and cancel the others; find out what duplicates "
    "messages.",
    "ExtendedAgentCardNotConfiguredError": "Use the public card.",
    "ExtensionNotSupportedError": "Omit the extensions in `extensions` from `extensions=`.",
    "ExtensionSupportRequiredError": "If your program supports them, pass `extensions=`.",
    "InternalError": "Search the agent's tasks before sending the message again, unless "
    "`executed` is False.",
    "InvalidAgentCardError": "Correct the member named by `field`, or pass the address of the "
    "interface as `url=`.",
    "InvalidAgentResponseError": "Report it to the agent's owner, with `excerpt`; "
    "`holdfast doctor` examines the agent.",
    "InvalidParamsError": "Correct the request; the message names the parameter.",
    "InvalidRequestError": "Correct the request.",
    "JournalError": "Read `reason`: it names the cause. Nothing is sent if the call cannot be "
    "recorded.",
    "LimitExceededError": "If the reply is legitimate, raise the limit named by `which`.",
    "MethodNotFoundError": "Check the agent's protocol version and its capabilities.",
    "NetworkPolicyError": "If you trust the address, pass it as `allowed_networks=`.",
    "NotEnoughResultsError": "Use the results in `results`, or lower `min_results`.",
    "OutcomeUnknownError": "Search the agent's tasks for `message_id`. Send the message again "
    "only if executing it twice does no harm, or set `on_unknown=`.",
    "ParseError": "Report it to the agent's owner: the client sends valid JSON.",
    "PermissionDeniedError": "Use credentials with the required permission or scope.",
    "PushNotificationNotSupportedError": "Use a stream or `wait` instead.",
    "QueueFullError": "Send fewer calls at once, or raise the limit; nothing was sent.",
    "RateLimitedError": "Call again after `retry_after` seconds, or pass a longer `timeout=`.",
    "ReconnectError": "The task continues: call `wait` or "
    "`subscribe_to_task` with the id of `task`.",
    "KeyConflictError": "Pass another key or another `run_id`.",
    "TaskAuthRequiredError": "Complete the authorization that the agent asks for, then `wait`.",
    "TaskCanceledError": "The task was canceled; read `task`.",
    "TaskFailedError": "Read the status message of `task`.",
    "TaskInputRequiredError": "Answer with `ask(…, task_id=error.task.id)`, or use "
    "`conversation(on_input=…)`.",
    "TaskInterruptedError": "Answer the agent with `ask(…, task_id=error.task.id)`.",
    "TaskNotCancelableError": "The task has ended, or cannot be canceled; read it.",
    "TaskNotFoundError": "Check the task id, the tenant and the credentials; "
    "the agent may have deleted the task, or lost it in a restart.",
    "TaskRejectedError": "The agent refused the task; read its status message.",
    "TaskTerminalError": "The task has ended; read `task`.",
    "UnsupportedOperationError": "The agent or the protocol version lacks this operation.",
    "VersionNotSupportedError": "Pass the version in `other_version` as `protocol_version=`.",
    "DeadlockError": "Virtual time: set a timer, or run the test on an ordinary event loop.",
    "FileNotFoundError": "Check the path.",
    "ModuleNotFoundError": "Install the extra that the message names.",
    "OSError": "Check the file or the address that the message names.",
    "OrphanTaskError": "Virtual time: await or cancel the tasks before `main` returns.",
    "RealIOError": "Virtual time: use `FakeNetwork`, or run on an ordinary event loop.",
    "ResourceWarning": "Close the object.",
    "RuntimeError": "Correct the order of the calls: the object is closed, or in use.",
    "RuntimeWarning": "Correct the program; the warning names the object.",
    "TimeoutError": "Check what the message names; the wait is bounded.",
    "TypeError": "Correct the argument: it has the wrong type.",
    "ValueError": "Correct the argument: its value is invalid.",
    "UsageError": "Correct the command; exit code 2.",
    PARTS: "These texts are parts of the messages above, or answers to other programs.",
    COMMAND_LINE: "Hints, and messages for errors as the command line words them.",
    FINDINGS: "What `holdfast doctor` reports of an agent; see the command.",
    "Additions to messages": "Added to the message of an error that was raised elsewhere.",
}
"""What to do when an error of a class is caught."""


def public_errors():
    """The error classes in the order of their source."""
    return [
        name for name, each in vars(errors).items() if name in errors.__all__ and is_error(each)
    ]


def is_error(value):
    return isinstance(value, type) and issubclass(value, Exception)


def heading_of(message):
    """The heading under which a message stands; None if it is not a message to users."""
    if message.kind in ADVICE and message.kind != PARTS:
        return message.kind
    if message.kind.startswith(LOG):
        return LOG
    folder, _, _ = message.module.partition("/")
    if folder == "_cli":
        return COMMAND_LINE if message.module.startswith("_cli/error_") else None
    if folder == "_doctor":
        return FINDINGS
    return None if message.module == "_sync/blocking.py" else PARTS


def code(text):
    """A code span in a cell of a table."""
    escaped = text.replace("|", "\\|")
    return f"`` {escaped} ``" if "`" in text else f"`{escaped}`"


def section(heading, found):
    title = f"`{heading}`" if re.fullmatch(r"\w+", heading) and heading != "Log" else heading
    lines = [f"## {title}", ""]
    if heading in ADVICE:
        lines += [ADVICE[heading], ""]
    by_text = {}
    for each in found:
        notes = [each.kind.removeprefix(f"{LOG} ").strip("()")] if heading == LOG else each.facts
        facts, modules = by_text.setdefault(each.text, ({}, {}))
        facts.update(dict.fromkeys(notes))
        modules[each.module] = None
    middle = "Level" if heading == LOG else "Facts"
    lines += [f"| Message | {middle} | Source |", "| --- | --- | --- |"]
    for text, (facts, modules) in by_text.items():
        cells = [code(text), ", ".join(map(code, facts)), ", ".join(map(code, modules))]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
    return "\n".join(lines) + "\n"


def page():
    """The page with all messages, by class."""
    by_heading = {}
    for each in messages():
        heading = heading_of(each)
        if heading is not None:
            by_heading.setdefault(heading, []).append(each)
    last = [LOG, COMMAND_LINE, FINDINGS, "Additions to messages", PARTS]
    others = sorted(set(by_heading) - set(public_errors()) - set(last))
    order = [name for name in (*public_errors(), *others, *last) if name in by_heading]
    return "\n".join([INTRODUCTION, *(section(name, by_heading[name]) for name in order)])


if __name__ == "__main__":
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page())
