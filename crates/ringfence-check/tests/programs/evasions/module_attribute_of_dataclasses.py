# refused: strict, basic
import dataclasses
dataclasses.inspect.os.system("id")
