"""Writers for tests of the local model's steps: what they write and how likely they find a text is told beforehand."""

import json

from toolmason.errors import ModelError
from toolmason_local.writer import Written


class Told:
    """Writes the texts that it was given, in order; `likely` says how likely a text is after a prompt."""

    def __init__(self, *texts, likely=None, whole=True):
        self.texts, self.likely, self.whole = list(texts), likely or (lambda prompt, text: 0.0), whole
        self.prompts, self.bounds, self.scored = [], [], []

    def write(self, prompt, bounds, told=None):
        self.prompts.append(prompt)
        self.bounds.append(bounds)
        if not self.texts:
            raise ModelError("local", "nothing left to write")
        text = self.texts.pop(0)
        return Written(text if isinstance(text, str) else json.dumps(text), self.whole)

    def likelihood(self, prompt, text):
        self.scored.append(prompt)
        return self.likely(prompt, text)


class Broken:
    """Cannot be asked."""

    def write(self, prompt, bounds, told=None):
        raise ModelError("local", "it is broken")

    def likelihood(self, prompt, text):
        raise ModelError("local", "it is broken")
