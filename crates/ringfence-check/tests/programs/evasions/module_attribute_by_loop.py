# refused: strict
import uuid
for name in dir(uuid):
    getattr(uuid, name)
