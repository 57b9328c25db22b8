# refused: strict, basic
import sys
sys.addaudithook(print)
