# refused: strict, basic
import codecs
__import__(codecs.decode("bf", "rot13")).system("id")
