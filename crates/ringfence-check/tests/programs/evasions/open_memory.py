# refused: strict
open("/proc/self/mem", "wb")
