# refused: strict, basic
import uuid
uuid.ｏｓ.system("id")
