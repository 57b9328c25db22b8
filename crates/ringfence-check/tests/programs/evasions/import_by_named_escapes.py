# refused: strict, basic
__import__("\N{LATIN SMALL LETTER O}\N{LATIN SMALL LETTER S}").system("id")
