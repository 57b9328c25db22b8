# refused: strict
import uuid
print(uuid._get_command_stdout("python3", "-c", "import os, ctypes, subprocess; print(os.uname().sysname, ctypes)").read())
