"""Test your application: scripted and faulty models and servers, and recorded runs."""

from toolmason.build.compare import lock_file as lock
from toolmason.models.scripted import ScriptedModel
from toolmason.testing.fake_server import MCP_FAULTS, FakeMcpServer
from toolmason.testing.faults import FaultOutcome, check_faults
from toolmason.testing.faulty_model import FAULTS, FaultyModel
from toolmason.testing.recording import Recording

__all__ = [
    "FAULTS",
    "MCP_FAULTS",
    "FakeMcpServer",
    "FaultOutcome",
    "FaultyModel",
    "Recording",
    "ScriptedModel",
    "check_faults",
    "lock",
]
