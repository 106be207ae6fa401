"""For the tests of applications: models and servers that follow a script or misbehave, and runs that are recorded."""

from toolwright.models.scripted import ScriptedModel
from toolwright.testing.faulty import FAULTS, FaultyModel
from toolwright.testing.recording import Recording
from toolwright.testing.servers import MCP_FAULTS, FakeMcpServer

__all__ = ["FAULTS", "MCP_FAULTS", "FakeMcpServer", "FaultyModel", "Recording", "ScriptedModel"]
