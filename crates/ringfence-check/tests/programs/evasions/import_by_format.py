# refused: strict, basic
__import__("{}{}".format("o", "s")).system("id")
