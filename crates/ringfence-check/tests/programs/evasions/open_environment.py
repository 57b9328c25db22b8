# refused: strict
open("/proc/self/environ").read()
