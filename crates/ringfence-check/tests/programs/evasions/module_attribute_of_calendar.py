# refused: strict, basic
import calendar as c
getattr(c, "sys").modules
