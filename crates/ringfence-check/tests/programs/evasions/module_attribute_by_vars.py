# refused: strict, basic
import uuid
vars(uuid)["os"].system("id")
