"""Replicas: every operation on a task goes to the task's home, and every page is marked."""

import re

import pytest

from holdfast._pipeline.affinity import marked, task_of
from holdfast.protocol import OPERATIONS

ABOUT_A_TASK = [
    operation for operation in OPERATIONS.values() if re.search(r"{(id|task_id)}", operation.path)
]
PAGED = [
    operation
    for operation in OPERATIONS.values()
    if "next_page_token" in operation.response.__struct_fields__
]


@pytest.mark.parametrize("operation", ABOUT_A_TASK, ids=lambda operation: operation.name)
def test_the_task_of_a_request_is_known(operation):
    names = re.findall(r"{(\w+)}", operation.path)
    task = "task_id" if "task_id" in names else "id"
    request = operation.request(**dict.fromkeys(names, "other") | {task: "task-1"})

    assert task_of(request) == "task-1"


@pytest.mark.parametrize("operation", PAGED, ids=lambda operation: operation.name)
def test_the_next_page_is_asked_for_at_the_replica_of_the_page_before(operation):
    assert len(PAGED) == 2
    page = operation.response(next_page_token="page-2")

    assert marked(page, "abcd").next_page_token != "page-2"
