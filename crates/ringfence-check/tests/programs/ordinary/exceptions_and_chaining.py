# profiles: basic, data_science, network, filesystem, strict
class ParseError(ValueError):
    pass


def parse(text):
    try:
        return int(text)
    except ValueError as error:
        raise ParseError(f"{text!r} is no number") from error
    finally:
        print("tried", text)


for text in ("1", "x"):
    try:
        number = parse(text)
    except (ParseError, TypeError) as error:
        print("failed:", error, type(error.__cause__).__name__)
    else:
        print("parsed", number)
try:
    assert 1 > 2, "never"
except AssertionError as error:
    print(error)
