# refused: strict, basic
__import__("".join(chr(c ^ 42) for c in [69, 89])).system("id")
