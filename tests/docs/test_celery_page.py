"""The module of docs/howto/celery.md runs as it stands, in Celery on a real Redis server.

Processes, sockets and SIGKILL are real. The agent counts what it executes.
"""

import os
from contextlib import closing

import pytest
from tests.kit.celery_processes import Celery, CountingAgent, Redis
from tests.kit.pages import Page
from tests.kit.postgres_server import Postgres

from holdfast.testing import Reset, rate_limited

PAGE = Page("docs/howto/celery.md")
MODULE = PAGE.block('"""tasks.py"""')
BY_CLASS = PAGE.block("autoretry_for=")

WITHOUT_KEY = """
@app.task
def ask_without_key(text):
    return agent.ask(text).text
"""

pytestmark = [
    pytest.mark.celery,
    pytest.mark.skipif(os.name == "nt", reason="signals of POSIX"),
]


@pytest.fixture(scope="module")
def redis():
    with closing(Redis()) as redis:
        yield redis


@pytest.fixture(scope="module")
def agent():
    with closing(CountingAgent()) as agent:
        yield agent


@pytest.fixture(scope="module")
def celery(redis, agent, tmp_path_factory):
    """Celery with a worker of two processes, and a journal in a file."""
    module = MODULE + BY_CLASS + WITHOUT_KEY
    with closing(Celery(module, tmp_path_factory.mktemp("celery"), redis, agent)) as celery:
        yield celery


def text_of(result):
    """The text of an answer: the task of the page returns the question of the agent, too."""
    return result["text"] if isinstance(result, dict) else result


def test_a_killed_process_repeats_the_call_only_without_a_key(celery, agent):
    texts = {"slow with": "ask", "slow without": "ask_without_key"}
    for text, task in texts.items():
        celery.call(text, task)
    for text in texts:
        agent.wait_for(text)
        celery.kill_process_of(text)

    assert [text_of(celery.result(text)) for text in texts] == list(texts)
    assert [agent.executions[text] for text in texts] == [1, 2]


def test_a_task_that_is_delivered_again_returns_the_same_answer(celery, agent):
    for _ in range(2):
        celery.call("again")
        assert text_of(celery.result("again")) == "again"
    assert agent.executions["again"] == 1


def test_the_result_of_a_question_has_the_question_and_its_task(celery):
    celery.call("question")
    result = celery.result("question")

    assert (result["text"], result["question"]) == ("", "Which size?")
    assert result["task_id"].startswith("task-")


@pytest.mark.parametrize("task", ["ask", "ask_again"])
def test_a_refused_call_is_sent_by_the_retry(celery, agent, task):
    agent.fake.inject(rate_limited(retry_after_ms=50), on="SendStreamingMessage")
    celery.call(task, task)

    assert text_of(celery.result(task)) == task
    assert agent.executions[task] == 1
    assert agent.fake.pending_faults == ()


def test_an_unknown_outcome_ends_the_task_and_nothing_is_sent_again(celery, agent):
    agent.fake.inject(Reset(after_execution=True), on="SendStreamingMessage")
    for _ in range(2):
        celery.call("reply lost")
        assert "OutcomeUnknownError" in celery.result("reply lost")
    assert agent.executions["reply lost"] == 1


def test_a_soft_time_limit_in_the_middle_of_a_call_leaves_it_resumable(celery, agent):
    celery.call("slow soft", soft_time_limit=0.4)

    assert text_of(celery.result("slow soft")) == "slow soft"
    assert agent.executions["slow soft"] == 1


def test_a_call_ends_before_a_worker_that_is_stopped(celery, agent):
    celery.call("slow stop")
    agent.wait_for("slow stop")

    assert celery.stop_worker() == 0
    state, result = celery.state("slow stop")
    assert (state, text_of(result)) == ("SUCCESS", "slow stop")
    assert agent.executions["slow stop"] == 1


def test_a_killed_worker_is_replaced_on_another_machine(redis, agent, tmp_path):
    with closing(Postgres()) as postgres:
        module = MODULE.replace('"calls.db"', repr(postgres.dsn))
        with closing(Celery(module, tmp_path, redis, agent)) as celery:
            celery.call("slow killed")
            agent.wait_for("slow killed")
            celery.kill_worker()
            celery.start_worker()

            assert text_of(celery.result("slow killed")) == "slow killed"
    assert agent.executions["slow killed"] == 1


def test_the_page_is_complete():
    PAGE.check_complete('"""tasks.py"""', "autoretry_for=")
    PAGE.check_links()
