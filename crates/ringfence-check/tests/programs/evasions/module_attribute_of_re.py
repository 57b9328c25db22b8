# refused: strict, basic
import re
re.enum.sys.modules["os"].system("id")
