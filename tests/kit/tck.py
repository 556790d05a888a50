"""A stand-in for the conformance kit of the protocol (TCK), in its newer and its older form."""

import textwrap

RUNNER = """
    import argparse, os, subprocess, sys
    from pathlib import Path

    parser = argparse.ArgumentParser()
    {arguments}
    args = parser.parse_args()
    if not Path("{tests}").exists():
        sys.exit(1)
    Path("command.txt").write_text(" ".join(sys.argv))
    command = [sys.executable, "-m", "pytest", "{tests}/", "--tb=short", "-q", {flags}]
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.exit(subprocess.run(command, check=False).returncode)
"""


NEWER = RUNNER.format(
    tests="tests/compatibility",
    arguments="""
    parser.add_argument("--sut-host", required=True)
    parser.add_argument("--transport", default=None)
    parser.add_argument("--level", choices=["must", "should", "may"], default=None)
    parser.add_argument("pytest_args", nargs="*")
    """,
    flags='f"--sut={args.sut_host}", *(["-m", args.level] if args.level else []), '
    '"--junitxml=reports/junitreport.xml", *args.pytest_args',
)


OLDER = RUNNER.format(
    tests="tests/mandatory",
    arguments="""
    parser.add_argument("--sut-url")
    parser.add_argument("--category", choices=["mandatory", "capabilities", "all"])
    parser.add_argument("--transports", default="jsonrpc")
    """,
    flags='f"--sut={args.sut_url}"',
)


CONFTEST = """
    import json, urllib.request
    import pytest

    def pytest_addoption(parser):
        parser.addoption("--sut")

    def pytest_configure(config):
        for level in ("must", "should"):
            config.addinivalue_line("markers", level)

    @pytest.fixture
    def card(request):
        url = request.config.getoption("--sut") + "/.well-known/agent-card.json"
        with urllib.request.urlopen(url, timeout=10) as reply:
            return json.load(reply)
"""


TESTS = """
    import json, os
    import pytest

    @pytest.mark.must
    def test_CARD_MUST_001(card):
        assert card["name"] == "{name}", "the name is " + card["name"]

    @pytest.mark.must
    def test_environment():
        with open("environment.json", "w") as file:
            json.dump(dict(os.environ), file)

    @pytest.mark.must
    def test_optional():
        pytest.skip("not declared")

    @pytest.mark.should
    @pytest.mark.xfail
    def test_CARD_SHOULD_001():
        assert False
"""


def kit_at(directory, *, older=False, name="Fake agent", tests=None):
    """A stand-in for the TCK."""
    place = directory / "tests" / ("mandatory" if older else "compatibility")
    place.mkdir(parents=True)
    written = {
        directory / "run_tck.py": OLDER if older else NEWER,
        directory / "pytest.ini": "[pytest]\n",
        place / "conftest.py": CONFTEST,
        place / "test_requirements.py": (TESTS if tests is None else tests).replace(
            "{name}", name
        ),
    }
    for path, content in written.items():
        path.write_text(textwrap.dedent(content))
    return directory
