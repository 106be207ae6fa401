"""`--trace`, `--trace-file` and `runs show`: what a run did, in the terminal and as a page."""

import json
import stat
import sys

import click
import pytest

from house.source import ROOT
from toolmason.cli.commands.ask_model.chat import tracing

ASK = (f"{ROOT}/examples/shop.py:box", "What is the price of 3 TEA-01?", "--model", "offline")


def test_a_tree_of_spans_follows_the_answer(run):
    done = run("chat", *ASK, "--trace")

    assert done.stdout.strip() == "quote_price: 13.5"
    names = [line.split("  ")[0].strip() for line in done.stderr.splitlines()]
    assert names == ["invoke_agent", "├─ chat offline", "├─ execute_tool quote_price", "└─ chat offline"]


def test_a_page_of_spans_is_written_for_its_owner_only(run, tmp_path):
    page = tmp_path / "run.html"

    done = run("run", *ASK, "--trace-file", str(page))

    assert f"Wrote {page}." in done.stderr
    assert "execute_tool quote_price" in page.read_text("utf-8")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600


def test_a_page_that_cannot_be_written_is_an_error_of_usage(run, tmp_path):
    done = run("chat", *ASK, "--trace-file", str(tmp_path / "none" / "run.html"))

    assert done.returncode == 2
    assert "Name another file." in done.stderr


def test_a_run_is_shown_by_its_id_with_times(run, tmp_path):
    journal = tmp_path / "runs.db"
    run("run", *ASK, "--durable", str(journal), "--run", "tea")

    shown = run("runs", "show", str(journal), "tea").stdout
    data = json.loads(run("runs", "show", str(journal), "tea", "--json").stdout)
    page = tmp_path / "tea.html"
    run("runs", "show", str(journal), "tea", "--html", str(page))

    assert "1/0/quote_price  done  quote_price" in shown
    assert shown.count(" ms ") == 3
    assert all(effect["ended"] >= effect["at"] for effect in data["effects"])
    assert "execute_tool quote_price" in page.read_text("utf-8")


def test_without_the_sdk_the_command_to_install_it_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)

    with (
        pytest.raises(click.ClickException, match=r"pip install 'toolmason\[otel\]'"),
        tracing({"trace": True, "trace_file": None}),
    ):
        pass


@pytest.mark.parametrize("option", ["--trace", "--trace-file"])
def test_the_help_names_the_options(option, run):
    assert option in run("chat", "--help").stdout
