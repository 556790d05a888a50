"""Parsing of ``WWW-Authenticate``: the examples of the specifications, and garbage."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast._wire.challenges import bearer_challenge, read_challenges


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ("", []),
        ("Bearer", [("bearer", {})]),
        ('Bearer realm="example"', [("bearer", {"realm": "example"})]),
        (
            'Bearer realm="a, b", error="invalid_token", error_description="It \\"expired\\""',
            [
                (
                    "bearer",
                    {
                        "realm": "a, b",
                        "error": "invalid_token",
                        "error_description": 'It "expired"',
                    },
                )
            ],
        ),
        (
            'Basic realm="simple", Bearer scope="a b",error=insufficient_scope',
            [
                ("basic", {"realm": "simple"}),
                ("bearer", {"scope": "a b", "error": "insufficient_scope"}),
            ],
        ),
        ("Negotiate YWJj==, Bearer", [("negotiate", {}), ("bearer", {})]),
        ("Basic, Bearer", [("basic", {}), ("bearer", {})]),
        ('Bearer Scope = "x" , SCOPE=y', [("bearer", {"scope": "x"})]),
        ("=, what", []),
    ],
)
def test_challenges_are_parsed(header, expected):
    challenges = [
        (challenge.scheme, dict(challenge.parameters)) for challenge in read_challenges(header)
    ]

    assert challenges == expected


def test_bearer_challenge_is_found_among_others():
    headers = {"www-authenticate": 'Basic realm="x", Bearer error="invalid_token", scope="a b a"'}
    challenge = bearer_challenge(headers)

    assert challenge is not None
    assert (challenge.error, challenge.scopes) == ("invalid_token", ("a", "b"))
    assert bearer_challenge({}) is None


@given(st.text(max_size=80) | st.text('Beare =",\\ab', max_size=60))
def test_any_header_is_parsed_up_to_its_first_fault(header):
    for challenge in read_challenges(header):
        assert challenge.scheme == challenge.scheme.lower()
        assert all(name == name.lower() for name in challenge.parameters)


def test_a_long_header_is_parsed_in_linear_time():
    assert len(read_challenges("a" * 10**6)) <= 1
    assert read_challenges('Bearer a="' + "\\" * 10**6)
