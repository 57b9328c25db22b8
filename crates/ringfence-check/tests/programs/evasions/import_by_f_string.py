# refused: strict, basic
x = "o"
__import__(f"{x}s").system("id")
