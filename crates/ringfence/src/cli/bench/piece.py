import json
import math
from collections import Counter


class Reading:
    """A value with its unit."""

    def __init__(self, value, unit="m"):
        self.value = value
        self.unit = unit

    def scaled(self, factor):
        if factor == 0:
            raise ValueError(f"no {self.unit} is left")
        return Reading(self.value * factor, unit=self.unit)


words = Counter(word.lower() for word in json.dumps([math.pi, Reading(3).scaled(2).value]).split(","))

