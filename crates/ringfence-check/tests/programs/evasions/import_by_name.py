# refused: strict, basic
__import__("os").system("id")
