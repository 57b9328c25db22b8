# refused: strict, basic
from collections import _sys as s
s.modules["os"]
