# refused: strict
import dataclasses
fields = [input() if False else "x: int = print(1)"]
dataclasses.make_dataclass("A", fields)
