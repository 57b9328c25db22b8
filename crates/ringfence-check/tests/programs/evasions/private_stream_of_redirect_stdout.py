# refused: strict
import contextlib
class R(contextlib.redirect_stdout):
    _stream = "modules"
r = R({})
with r:
    m = r._old_targets[-1]
print(m["os"].popen("id").read())
