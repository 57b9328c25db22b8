# profiles: basic, data_science, network, filesystem, strict
import functools
import time


def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        started = time.perf_counter()
        result = function(*args, **kwargs)
        wrapper.seconds = time.perf_counter() - started
        return result

    return wrapper


def repeat(times):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return [function(*args) for _ in range(times)]

        return wrapper

    return decorate


@timed
@repeat(times=2)
def greet(name):
    """Says hello."""
    return f"hello {name}"


print(greet("you"), greet.__name__, greet.__doc__, greet.seconds >= 0, greet.__wrapped__ is not None)
