# refused: strict, basic
import subprocess
subprocess.run("id; cat /etc/passwd", shell=True)
