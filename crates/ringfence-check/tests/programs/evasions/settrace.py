# refused: strict, basic
import sys
sys.settrace(lambda *a: None)
