# refused: strict, basic
__import__("o" + "s").system("id")
