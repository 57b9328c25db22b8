# refused: strict, basic
import ctypes
ctypes.CDLL(None).system(b"id")
