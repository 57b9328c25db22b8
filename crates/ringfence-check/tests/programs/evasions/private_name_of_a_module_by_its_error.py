# refused: strict
import random
try:
    random.nope
except AttributeError as e:
    print(e.obj._os.popen("id").read())
