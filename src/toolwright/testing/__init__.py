"""For the tests of applications: models that follow a script, and models that misbehave."""

from toolwright.models.scripted import ScriptedModel
from toolwright.testing.faulty import FAULTS, FaultyModel

__all__ = ["FAULTS", "FaultyModel", "ScriptedModel"]
