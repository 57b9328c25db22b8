# refused: strict
import random
random.random.__self__.__class__
random.Random.__init__.__globals__["_os"].system("id")
