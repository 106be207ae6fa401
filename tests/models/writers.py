"""Text generators for tests of the local model's steps: their texts are set beforehand."""

import json

from toolmason.errors import ModelError
from toolmason_local.writer import Completion


class ScriptedGenerator:
    """Returns the given texts, in order."""

    has_adapter = True

    def __init__(self, *texts, probability=1.0):
        self.texts, self.probability = list(texts), probability
        self.prompts, self.limits = [], []

    def generate(self, prompt, limits, on_text=None):
        self.prompts.append(prompt)
        self.limits.append(limits)
        if not self.texts:
            raise ModelError("local", "nothing left to write")
        text = self.texts.pop(0)
        return Completion(text if isinstance(text, str) else json.dumps(text), probability=self.probability)
