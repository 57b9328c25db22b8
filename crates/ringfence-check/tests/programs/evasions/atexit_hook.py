# refused: strict, basic
import atexit
atexit.register(print, "later")
