"""For the tests of applications: models and servers that follow a script or misbehave, and runs that are recorded."""

from toolmason.build.compare import lock_file as lock
from toolmason.models.scripted import ScriptedModel
from toolmason.testing.fake_server import MCP_FAULTS, FakeMcpServer
from toolmason.testing.faulty_model import FAULTS, FaultyModel
from toolmason.testing.recording import Recording

__all__ = ["FAULTS", "MCP_FAULTS", "FakeMcpServer", "FaultyModel", "Recording", "ScriptedModel", "lock"]
