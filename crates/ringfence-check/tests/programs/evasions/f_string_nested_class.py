# refused: strict
f"{().__class__.__base__!r:{''.__class__}}"
