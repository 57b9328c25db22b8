# refused: strict, basic
import uuid
uuid.os.popen("id").read()
