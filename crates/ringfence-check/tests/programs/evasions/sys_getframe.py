# refused: strict, basic
import sys
sys._getframe(0).f_globals
