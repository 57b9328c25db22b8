# refused: strict
import contextlib
out = []
contextlib.setattr = lambda o, n, v: out.append(o)
with contextlib.redirect_stdout(None): pass
print(out[0].modules["os"].popen("id").read())
