# profiles: basic, data_science, network, filesystem, strict
import operator
import re

OPERATIONS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv}


def evaluate(text):
    tokens = re.findall(r"\d+|[-+*/()]", text)

    def atom():
        token = tokens.pop(0)
        if token == "(":
            value = expression()
            tokens.pop(0)
            return value
        return int(token)

    def term():
        value = atom()
        while tokens and tokens[0] in "*/":
            value = OPERATIONS[tokens.pop(0)](value, atom())
        return value

    def expression():
        value = term()
        while tokens and tokens[0] in "+-":
            value = OPERATIONS[tokens.pop(0)](value, term())
        return value

    return expression()


print(evaluate("2*(3+4)-10/5"))
