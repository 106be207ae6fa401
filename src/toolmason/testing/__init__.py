"""For the tests of applications: models and servers that follow a script or misbehave, and runs that are recorded."""

from toolmason.models.scripted import ScriptedModel
from toolmason.testing.faulty import FAULTS, FaultyModel
from toolmason.testing.recording import Recording
from toolmason.testing.servers import MCP_FAULTS, FakeMcpServer

__all__ = ["FAULTS", "MCP_FAULTS", "FakeMcpServer", "FaultyModel", "Recording", "ScriptedModel"]
