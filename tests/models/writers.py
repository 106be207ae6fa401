"""Text generators for tests of the local model's steps: their texts and scores are set beforehand."""

import json

from toolmason.errors import ModelError
from toolmason_local.writer import Completion


class ScriptedGenerator:
    """Returns the given texts, in order; `likely` scores a text after a prompt."""

    def __init__(self, *texts, likely=None, whole=True):
        self.texts, self.likely, self.whole = list(texts), likely or (lambda prompt, text: 0.0), whole
        self.prompts, self.limits, self.scored = [], [], []

    def generate(self, prompt, limits, on_text=None):
        self.prompts.append(prompt)
        self.limits.append(limits)
        if not self.texts:
            raise ModelError("local", "nothing left to write")
        text = self.texts.pop(0)
        return Completion(text if isinstance(text, str) else json.dumps(text), self.whole)

    def score_text(self, prompt, text):
        self.scored.append(prompt)
        return self.likely(prompt, text)


class BrokenGenerator:
    """Raises an error for every request."""

    def generate(self, prompt, limits, on_text=None):
        raise ModelError("local", "it is broken")

    def score_text(self, prompt, text):
        raise ModelError("local", "it is broken")
