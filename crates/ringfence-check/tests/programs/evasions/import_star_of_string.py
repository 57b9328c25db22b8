# refused: strict
from string import *
import random
Formatter().get_field("0.__glo" + "bals__[_os]", [random.Random.seed], {})[0].system("id")
