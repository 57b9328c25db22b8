# refused: strict, basic
__import__("%s%s" % ("o", "s")).system("id")
