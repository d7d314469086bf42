# Copyright 2026 the flashrt_ros authors. SPDX-License-Identifier: Apache-2.0
"""A pytest plugin that runs tests with their guards switched off, for `python -m test.guards`.

A test runs once for each of its guards, with nothing shared between two runs: the guard is off before the
first fixture is made and on again after the last one is gone. Reported is the guard: passed where its test
failed.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from test.guards.guard import switched_off
from test.guards.table import GUARDS

PATIENCE_S = 5.0
"""What a test waits for something that should come soon: with its guard off it mostly waits in vain."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--guards", help="indices in GUARDS, separated by commas")
    parser.addoption("--control", action="store_true", help="switch nothing off: every test must pass")


def chosen(config: pytest.Config) -> list[int]:
    """Indices of the guards of this run."""
    return [int(index) for index in config.getoption("--guards").split(",")]


def guards_of(item: pytest.Item) -> list[int]:
    """The guards of a test: those of this case of its parameters, and those of all cases."""
    names = (item.nodeid, item.nodeid.partition("[")[0])
    return [index for index in chosen(item.config) if GUARDS[index].test in names]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """An item for each guard in the place of the tests."""
    items[:] = [without(index, item) for item in items for index in guards_of(item)]


def without(index: int, item: pytest.Item) -> pytest.Item:
    """The test as an item of its own, with an id that names the guard."""
    assert isinstance(item, pytest.Function)
    clone: pytest.Function = pytest.Function.from_parent(
        item.parent,
        name=f"{item.originalname} without {GUARDS[index].name}",
        callobj=item.obj,
        callspec=getattr(item, "callspec", None),
        fixtureinfo=item._fixtureinfo,
    )
    clone.user_properties = [("guard", index)]
    return clone


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool:
    """In the place of pytest's own: what is reported is the guard."""
    ((_, index),) = item.user_properties
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    item.ihook.pytest_runtest_logreport(report=verdict(item, int(str(index))))
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def verdict(item: pytest.Item, index: int) -> pytest.TestReport:
    """A report that passed where the test failed as it should."""
    control = item.config.getoption("--control")
    try:
        reports = run(item, index, nullcontext() if control else switched_off(GUARDS[index]))
    except (AttributeError, ImportError, LookupError, SyntaxError) as error:
        problem = f"{GUARDS[index].target} cannot be switched off: {type(error).__name__}: {error}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", problem, "call")
        report.user_properties = item.user_properties
        return report
    report = next((report for report in reports if report.when == "call"), reports[0])
    problem = (problem_of_control if control else problem_of)(report)
    report.when = "call"  # what counts
    report.outcome, report.longrepr = ("failed", problem) if problem else ("passed", None)
    return report


def run(item: pytest.Item, index: int, off: AbstractContextManager[None]) -> list[pytest.TestReport]:
    """Set up, call and tear down the test and all its fixtures."""
    from test.ros import support  # late: imports rclpy, whose domain test/conftest.py sets

    with pytest.MonkeyPatch.context() as patched, off:
        patched.setattr(support, "SOON_S", PATIENCE_S)
        if not item.config.getoption("--control"):
            patched.setattr(support, "RUN_MODULE", ("-m", "test.guards.process", str(index)))
        # No next item: fixtures of modules are torn down, too, and made anew for the next guard.
        return runtestprotocol(item, log=False, nextitem=None)


def problem_of(report: Any) -> str:
    """What is wrong with a test whose guard is off; nothing when it failed as it should."""
    if report.when != "call" or report.outcome == "skipped":
        return f"its test did not run ({report.when} {report.outcome}):\n{report.longreprtext}"
    if report.outcome == "passed":
        return "its test passes although the guard is off"
    if not report.asserted:
        return f"its test fails by an error and not by what it asserts:\n{report.longreprtext}"
    return ""


def problem_of_control(report: Any) -> str:
    """What is wrong with a test whose guard is on."""
    return "" if report.outcome == "passed" else f"its test does not pass:\n{report.longreprtext}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> Any:
    """Tell what a test asserts from what breaks in it."""
    report = yield
    kinds = (AssertionError, pytest.fail.Exception)
    report.asserted = call.excinfo is not None and isinstance(call.excinfo.value, kinds)
    return report


def reported(config: pytest.Config) -> dict[int, list[str]]:
    """Outcomes of each guard of this run: one for each case of its test, none where there is no such test."""
    found: dict[int, list[str]] = {index: [] for index in chosen(config)}
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    for outcome in ("passed", "failed"):
        for report in reporter.stats.get(outcome, ()):
            for _, index in (pair for pair in report.user_properties if pair[0] == "guard"):
                found[index].append(outcome)
    return found


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if not hasattr(session.config, "workerinput") and not all(reported(session.config).values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """A line for each row."""
    rows: dict[str, list[str]] = defaultdict(list)
    for index, outcomes in reported(config).items():
        rows[GUARDS[index].row] += outcomes or ["missing"]
        if not outcomes:
            terminalreporter.write_line(f"no such test: {GUARDS[index].test} ({GUARDS[index].name})")
    what = "tests pass with all guards on" if config.getoption("--control") else "tests notice"
    terminalreporter.section("guards")
    for row, outcomes in sorted(rows.items(), key=lambda pair: int(pair[0].removeprefix("R"))):
        good = outcomes.count("passed")
        mark = "" if good == len(outcomes) else "   <- NOT ALL"
        terminalreporter.write_line(f"{row:>4}  {good} of {len(outcomes)} {what}{mark}")
