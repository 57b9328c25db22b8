# refused: strict, basic
from contextlib import os
os.system("id")
