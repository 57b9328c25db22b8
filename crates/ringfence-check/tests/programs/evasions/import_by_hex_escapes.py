# refused: strict, basic
__import__("\x6f\x73").system("id")
