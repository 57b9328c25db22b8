# refused: strict, basic
import uuid
uuid.__dict__["os"].system("id")
