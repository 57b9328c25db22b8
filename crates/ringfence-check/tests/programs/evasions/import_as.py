# refused: strict, basic
import subprocess as s
print(s.check_output(["id"]))
