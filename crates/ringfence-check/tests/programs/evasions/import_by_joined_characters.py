# refused: strict, basic
__import__("".join(map(chr, [111, 115]))).system("id")
