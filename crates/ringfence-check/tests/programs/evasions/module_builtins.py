# refused: strict
import math, random
random.__builtins__["eval"]("1+1")
