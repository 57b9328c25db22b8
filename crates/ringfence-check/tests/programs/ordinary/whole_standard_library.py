# profiles: unrestricted
import argparse
import os
import subprocess
import sys
import threading

parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, default=3)
options = parser.parse_args([])
worker = threading.Thread(target=lambda: print("thread"))
worker.start()
worker.join()
print(options.n, os.getcwd() is not None, sys.version_info >= (3, 8), subprocess.run(["true"]).returncode)
