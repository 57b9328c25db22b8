# refused: strict
import contextlib
class Decoy:
    _old_targets = None
class R(contextlib.redirect_stdout):
    _stream = "modules"
r = R({})
with r:
    print(r._old_targets[-1]["os"])
