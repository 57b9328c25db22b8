# refused: strict, basic
from os import system as s
s("id")
