"""The canonical form of a signed card (RFC 8785)."""

import json

import pytest

from holdfast._wire.canonical import NoCanonicalFormError, canonical_json, signed_forms


def test_canonical_form_of_the_specifications_example():
    fragment = {
        "name": "Example Agent",
        "description": "",
        "capabilities": {"streaming": False, "pushNotifications": False, "extensions": []},
        "skills": [],
    }
    specified = next(form for form in signed_forms(fragment) if form.name == "specified")
    expected = {
        "capabilities": {"pushNotifications": False, "streaming": False},
        "description": "",
        "name": "Example Agent",
        "skills": [],
    }
    assert expected.items() <= json.loads(specified.payload).items()
    assert specified.document == expected


@pytest.mark.parametrize("value", ["\ud800", 10**400, float("nan")], ids=repr)
def test_values_without_a_canonical_form_are_refused(value):
    with pytest.raises(NoCanonicalFormError):
        canonical_json({"x": value})


def test_a_card_nested_too_deeply_has_no_canonical_form():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(NoCanonicalFormError):
        tuple(signed_forms({"x": deep}))
    while deep:  # which would be freed in as many steps, one within the other
        deep = deep.pop()
