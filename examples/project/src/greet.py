"""Says hello."""


def greet(name):
    return "hello, " + name
