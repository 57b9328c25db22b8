# refused: strict, basic
from json.tool import *
print(sys.modules)
