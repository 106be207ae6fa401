"""`pytest --toolmason-check`: a test for each tool, and nothing at all where it is not asked for."""

import ast
import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

GOOD = "from toolmason import tool\n@tool\ndef quote() -> int:\n    'Quote a price.'\n    return 5\n"
BAD = "from toolmason import tool\n@tool\ndef order(sku): 'Order it.'\n@tool\ndef pay(): ...\n"


@pytest.fixture
def run(pytester):
    pytester.makepyfile(
        **{"shop/__init__": "", "shop/good": GOOD, "shop/bad": BAD, "test_own": "def test_own(): ...\n"}
    )

    def call(*words, how="inprocess"):
        return getattr(pytester, f"runpytest_{how}")("-p", "no:cacheprovider", "-v", *words)

    return call


@pytest.mark.parametrize("how", ["inprocess", "subprocess"])
def test_each_tool_is_a_test_and_fails_with_its_findings(run, how):
    result = run("--toolmason-check", "shop", how=how)

    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["*shop/bad.py::order FAILED*", "*shop/good.py::quote PASSED*"])
    result.stdout.fnmatch_lines(["shop/bad.py:3:11: TM103 parameter 'sku' has no type"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_warnings_fail_a_strict_run(run):
    result = run("--toolmason-check", "shop", "--toolmason-strict")

    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["shop/bad.py:5:5: TM102 tool 'pay' has no description"])


def test_what_is_wrong_beside_the_tools_is_a_test_of_the_file(run, pytester):
    pytester.makepyfile(**{"shop/broken": "def f(:\n"})

    result = run("--toolmason-check", "shop/broken.py", "--toolmason-check", "shop/good.py")

    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(["*shop/broken.py FAILED*"])


def test_tests_of_a_check_can_be_run_without_others(run):
    result = run("--toolmason-check", "shop", "--ignore", "test_own.py", "--ignore", "shop")

    result.assert_outcomes(passed=2, failed=1)


def test_the_configuration_of_the_project_holds(run, pytester):
    pytester.makepyprojecttoml('[tool.toolmason.check]\nignore = ["TM103"]\n')

    run("--toolmason-check", "shop").assert_outcomes(passed=4)


def test_a_target_that_is_not_there_is_a_usage_error(run):
    result = run("--toolmason-check", "nothing")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--toolmason-check: 'nothing': no Python source found*"])


def test_a_run_without_the_option_is_as_it_was(run):
    run().assert_outcomes(passed=1)


def test_the_plugin_loads_nothing_but_itself_until_it_is_asked():
    code = (
        "import pytest, sys; before = set(sys.modules); import toolmason.build.check.pytest_hooks;"
        "print(sorted(set(sys.modules) - before))"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert ast.literal_eval(done.stdout) == [
        "toolmason",
        "toolmason._lazy",
        "toolmason.build",
        "toolmason.build.check",
        "toolmason.build.check.pytest_hooks",
    ]
