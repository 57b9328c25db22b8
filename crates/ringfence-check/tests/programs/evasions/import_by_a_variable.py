# refused: strict, basic
first = "o"
name = first + "s"
__import__(name).system("id")
