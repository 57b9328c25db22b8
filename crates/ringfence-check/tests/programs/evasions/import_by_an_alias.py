# refused: strict
load = __import__
load("o" "s").system("id")
