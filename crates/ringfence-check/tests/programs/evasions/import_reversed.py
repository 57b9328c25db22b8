# refused: strict, basic
__import__("so"[::-1]).system("id")
