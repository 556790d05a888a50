"""The commands about an agent's card: its content, its validity, and its signatures.

Rules: a credential goes to the endpoint of the extended card only if the public card declares a
scheme that takes it (a2a-cli 12.4); a card that is not verified is never shown as if it were; one
that is not signed is not an error (10.1). The document is the protocol's own type: the outcome of
the signature check is shown beside it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from holdfast._cli.commands import execute
from holdfast._cli.errors import AUTH, CommandError, Failure
from holdfast._cli.groups import HelpfulGroup
from holdfast._cli.options.flags import CONTEXT, EVERYWHERE, LINES, with_options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from holdfast._cli.agent.session import Session
    from holdfast._cli.output.base import Output

__all__ = ["card"]

CARD = (
    click.option(
        "--validate",
        is_flag=True,
        help="Check the card against the protocol's schema; a violation ends the command with "
        "an error.",
    ),
    click.option(
        "--extended",
        is_flag=True,
        help="Show the card for authenticated clients. Credentials are sent for it only where "
        "the public card declares a scheme that takes them.",
    ),
)


_MAX_SHOWN_VIOLATIONS = 20
"""Maximum number of faults to report one by one."""


@click.group("card", cls=HelpfulGroup, context_settings=CONTEXT)
@with_options(EVERYWHERE)
def card(**_options: object) -> None:
    """Fetch and validate an agent's card."""


@card.command(
    "get",
    context_settings=CONTEXT,
    examples=(
        "holdfast card get -a https://agent.example.com\n"
        "holdfast card get -a localhost:9999 --validate -o json\n"
    ),
)
@with_options(CARD, LINES, EVERYWHERE)
@click.pass_context
def card_get(ctx: click.Context, /, **options: Any) -> int:
    """Fetch an agent's card and show it.

    The line Transport shows the interface that calls use; the lines Interface show all of them.
    """
    return execute(
        ctx,
        lambda session, output: _get_card(
            session, output, validate=options["validate"], extended=options["extended"]
        ),
        needs_card=True,
    )


async def _get_card(session: Session, output: Output, *, validate: bool, extended: bool) -> None:
    """Show the card, even one without a usable interface.

    Raises:
        A2AError: There is no card, or it is not usable, or its signature is wrong.
        CommandError: It violates the protocol; or no scheme takes the credentials.
    """
    from holdfast._cli.output.base import CardShown

    card = await session.get_card()
    if extended:
        session.adapt_to_card(card)
        _check_credentials(session)
        card = await session.client.get_extended_agent_card(
            timeout=session.seconds_left(), headers=session.svc_params
        )
    verification, document = session.client.card_verification, session.client.card_document
    output.emit(CardShown(card, await session.usable_interface(), verification))
    if validate:
        _validate(document or card.to_dict(), output)  # over gRPC 0.3 there is only the model


def _check_credentials(session: Session) -> None:
    """Check that the card declares a scheme for the given credentials (a2a-cli 12.4)."""
    refused = session.connection.undeclared
    if refused and refused == session.settings.credentials:
        flags = " and ".join(sorted(refused))
        raise CommandError(
            Failure(
                code="A2ACLI_ERR_AUTH_FAILED",
                message=f"the public card declares no security scheme that takes {flags}; nothing "
                "was sent to the extended card's address",
                exit=AUTH,
            )
        )


def _validate(document: Mapping[str, Any], output: Output) -> None:
    from holdfast._cli.output.base import Notice
    from holdfast._wire.card_schema import card_faults

    violations = card_faults(document)
    for fault in violations[:_MAX_SHOWN_VIOLATIONS]:
        output.emit(Notice.warning(fault))
    if violations:
        count = "1 fault" if len(violations) == 1 else f"{len(violations)} faults"
        raise CommandError(
            Failure(
                code="A2ACLI_ERR_CARD_INVALID",
                message=f"the agent card violates the protocol's schema: {count}; {violations[0]}",
            )
        )
    output.emit(Notice("Valid", "the card conforms to the protocol's schema"))
