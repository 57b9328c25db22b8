# refused: strict, basic
from os import *
system("id")
