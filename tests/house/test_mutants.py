"""Each entry of `tests/judges/mutants.toml` fits the source. `make mutants` itself takes minutes."""

import tomllib
from pathlib import Path

import pytest

from judges.mutants import MUTANTS, ROOT, Mutant

ENTRIES = [Mutant(**entry) for entry in tomllib.loads(MUTANTS.read_text("utf-8"))["mutant"]]


@pytest.mark.parametrize("mutant", ENTRIES, ids=lambda mutant: mutant.name)
def test_a_mutant_changes_the_source(mutant):
    source = Path(ROOT, mutant.file).read_text("utf-8")

    assert mutant.apply(source) != source
