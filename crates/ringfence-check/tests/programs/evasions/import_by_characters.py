# refused: strict, basic
__import__(chr(111) + chr(115)).system("id")
