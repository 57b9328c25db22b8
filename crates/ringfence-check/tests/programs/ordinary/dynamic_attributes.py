# profiles: basic, data_science, network, filesystem, strict
class Record:
    def __init__(self, **values):
        self._values = values

    def __getattr__(self, name):
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __call__(self, extra):
        return {**self._values, "extra": extra}

    def __dir__(self):
        return sorted(self._values)


r = Record(a=1, b=2)
print(r.a + r.b, r(3), dir(r), getattr(r, "missing", "default"))
