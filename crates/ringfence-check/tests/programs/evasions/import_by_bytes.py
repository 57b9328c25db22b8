# refused: strict, basic
__import__(bytes([111, 115]).decode()).system("id")
