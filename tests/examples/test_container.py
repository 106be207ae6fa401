"""The files of the container: what a linter and `docker compose` would refuse, and a health check that runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from house.source import ROOT
from openapi.apis import running
from toolmason import Toolbox, asgi_app
from toolmason.mcp import token_is

FOLDER = ROOT / "examples" / "container"
INSTRUCTIONS = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "USER", "EXPOSE", "STOPSIGNAL", "HEALTHCHECK", "ENTRYPOINT"}


@pytest.fixture
def instructions():
    text = (FOLDER / "Dockerfile").read_text("utf-8").replace("\\\n", " ")
    return [line.split(None, 1) for line in text.splitlines() if line.strip() and not line.startswith("#")]


def test_the_dockerfile_has_known_instructions_and_copies_files_that_exist(instructions):
    assert instructions[0][0] == "FROM"
    assert {name for name, _ in instructions} == INSTRUCTIONS
    copied = next(value for name, value in instructions if name == "COPY").split()[:-1]
    assert [name for name in copied if not (FOLDER / name).is_file()] == []


def lint(dockerfile):
    done = subprocess.run([Path(sys.executable).with_name("hadolint"), dockerfile], capture_output=True, check=False)
    return done.stdout.decode()


def test_the_linter_finds_nothing(tmp_path):
    text = (FOLDER / "Dockerfile").read_text("utf-8")
    (tmp_path / "Dockerfile").write_text(text.replace("python:3.13-slim", "python"), "utf-8")

    assert lint(FOLDER / "Dockerfile") == ""
    assert "DL3006" in lint(tmp_path / "Dockerfile")


def test_the_image_is_pinned_and_does_not_run_as_root(instructions):
    values = dict(instructions)

    assert re.fullmatch(r"python:3\.\d+-slim", values["FROM"])
    assert values["USER"].isdecimal()
    assert int(values["USER"]) > 0
    assert "--no-cache-dir" in values["RUN"]


def test_the_compose_file_checks_health_and_needs_a_token():
    service = yaml.safe_load((FOLDER / "compose.yaml").read_text("utf-8"))["services"]["tools"]

    assert service["healthcheck"]["test"] == ["CMD", "python", "health.py"]
    assert service["environment"]["TOOLMASON_TOKEN"].startswith("${TOOLMASON_TOKEN:?")
    assert (service["read_only"], service["cap_drop"]) == (True, ["ALL"])


def check_health(url):
    # A program of its own, as the container runs it.
    variables = {**os.environ, "PORT": url.rpartition(":")[2], "ALLOWED_HOST": "tools.example.com"}
    done = subprocess.run([sys.executable, FOLDER / "health.py"], env=variables, check=False, capture_output=True)
    return done.returncode


def test_the_health_check_succeeds_only_if_the_server_checks_tokens():
    guarded = asgi_app(Toolbox(), allowed_hosts=["tools.example.com"], auth=token_is("a-token-of-16-characters"))
    with running(guarded, lifespan="on") as url:
        assert check_health(url) == 0
    with running(asgi_app(Toolbox(), allowed_hosts=["tools.example.com"]), lifespan="on") as url:
        assert check_health(url) == 1
    assert check_health("http://127.0.0.1:9") == 1
