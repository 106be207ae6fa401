"""Turns with a real server that others wrote, llama.cpp's, over a model with random weights: real tokens, grammars."""

import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from live.test_simulator import turn
from providers.samples import get_weather
from toolmason import Toolbox, model
from toolmason.errors import ModelError
from toolmason.models import ModelRequest

pytestmark = pytest.mark.live
PACKAGES = Path(__file__).parents[2] / ".venv" / "judges" / "llama"
BASES = {"openai": "/v1", "openai-chat": "/v1", "anthropic": ""}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    assert PACKAGES.is_dir(), "xllamacpp is not here; run make test-providers"
    file = tmp_path_factory.mktemp("llama") / "random.gguf"
    command = [sys.executable, str(Path(__file__).with_name("llama.py")), str(file)]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGES)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        yield next(line.strip() for line in process.stdout if line.startswith("http"))
        process.kill()


@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("streaming", [False, True], ids=["plain", "stream"])
async def test_real_tokens_are_read(kind, streaming, server):
    options = {"max_tokens": 40}
    async with model(f"{kind}:m", base_url=server + BASES[kind], api_key="k", options=options) as made:
        reply = await turn(made, ModelRequest("Weather in Oslo?", Toolbox(get_weather)), streaming=streaming)

    assert reply.message.role == "assistant"
    assert reply.text or reply.calls
    assert reply.usage.output_tokens > 0


async def test_a_server_without_tools_is_held_to_the_schema_by_its_grammar(server):
    box = Toolbox(get_weather)
    schema = box["get_weather"].definition.input_schema
    url, options = f"{server}/v1", {"max_tokens": 400}
    found = []
    async with model("openai-chat:m", base_url=url, tool_mode="json_schema", max_retries=0, options=options) as made:
        for _ in range(60):  # noise: most answers are cut by the token limit
            if len(found) == 3:
                break
            try:
                reply = await made.respond(ModelRequest("Weather in Oslo?", box, "required", {"parallel": False}))
            except ModelError as refused:
                # The server itself fails on some noise that the token limit has cut.
                if refused.status != 500:
                    raise
                continue
            found += [reply] if reply.finish == "calls" else []

    assert found
    for reply in found:
        given = {key: value for key, value in reply.calls[0].arguments.items() if value is not None}
        jsonschema.validate(given, schema)
        assert reply.calls[0].name == "get_weather"
