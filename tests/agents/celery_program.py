"""Celery for the tests: a worker of a module ``tasks``, or a program that calls its tasks.

The module is in the working directory; the package comes from ``--holdfast DIRECTORY``. The worker
reaches the agent at ``--agent URL``, whatever address the module names, and holds leases of half a
second, so that no test waits for long. Celery's own variables of the environment name the Redis
server.

The caller says ``{"ready": true}``. Each line of its standard input is ``["call", TASK, ID, TEXT,
OPTIONS]``, or ``["state", ID]``; it answers with the state and what is known of it. It ends with
exit code 0 when its standard input ends.
"""

import argparse
import functools
import json
import sys
from importlib import import_module
from pathlib import Path

LEASE_S = 0.5
VISIBILITY_S = 0.1


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("does", choices=["work", "call"])
    parser.add_argument("--holdfast", required=True)
    parser.add_argument("--agent")
    given = parser.parse_args()
    sys.path[:0] = [str(Path.cwd()), given.holdfast]
    if given.does == "work":
        work(given.agent)
    else:
        call()


def work(agent):
    import holdfast
    import holdfast.sync

    resilience = holdfast.Resilience(
        retry=holdfast.RetryPolicy(max_retries=0),  # tasks retry
        reconnect=holdfast.ReconnectPolicy(backoff=0.02, max_backoff=0.1),
        reconcile=holdfast.ReconcilePolicy(timeout=0.2, backoff=0.05, max_backoff=0.1),
    )

    def connect(_url, *, journal, connect=holdfast.sync.connect):
        is_file = not journal.startswith("postgresql:")
        kind = holdfast.SqliteJournal if is_file else holdfast.PostgresJournal
        return connect(agent, journal=kind(journal, lease=LEASE_S), resilience=resilience)

    holdfast.sync.connect = connect
    app = import_module("tasks").app

    app.conf.task_track_started = True  # with the pid
    app.conf.broker_transport_options = {"visibility_timeout": VISIBILITY_S}
    for task in app.tasks.values():
        task.default_retry_delay = 0.1
    quiet = ("--without-gossip", "--without-mingle", "--without-heartbeat")
    app.worker_main(["worker", "--concurrency", "2", "--loglevel", "info", *quiet])


def call():
    app = import_module("tasks").app

    say = functools.partial(print, flush=True)
    say(json.dumps({"ready": True}))
    for line in sys.stdin:
        match json.loads(line):
            case ["call", task, task_id, text, options]:
                app.AsyncResult(task_id).forget()
                app.tasks[f"tasks.{task}"].apply_async((text,), task_id=task_id, **options)
                say(json.dumps([]))
            case ["state", task_id]:
                meta = app.backend.get_task_meta(task_id, cache=False)
                say(json.dumps([meta["status"], meta["result"]], default=repr))


if __name__ == "__main__":
    main()
