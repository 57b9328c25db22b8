# profiles: basic, data_science, network, filesystem, strict
from contextlib import ExitStack, contextmanager, suppress


class Tag:
    def __init__(self, name):
        self.name = name

    def __enter__(self):
        print(f"<{self.name}>")
        return self

    def __exit__(self, kind, error, traceback):
        print(f"</{self.name}>")
        return kind is KeyError


@contextmanager
def section(title):
    print("begin", title)
    try:
        yield title.upper()
    finally:
        print("end", title)


with Tag("b"), section("s") as s:
    print(s)
    raise KeyError("swallowed")
with suppress(ZeroDivisionError):
    1 / 0
with ExitStack() as stack:
    stack.enter_context(Tag("i"))
