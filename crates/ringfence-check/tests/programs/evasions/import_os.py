# refused: strict, basic
import os
os.system("id")
