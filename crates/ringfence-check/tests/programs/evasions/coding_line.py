# refused: strict, basic
# coding: unicode_escape
# \u000aimport os
print("nothing to see")
