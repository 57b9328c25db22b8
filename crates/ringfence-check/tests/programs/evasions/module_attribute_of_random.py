# refused: strict, basic
import random
random._os.system("id")
