# profiles: basic, data_science, network, filesystem, strict
def compile(source):
    return source.split()


vars = {"a": 1}
input = "3 4"
eval = lambda text: sum(map(int, compile(text)))
print(eval(input), vars["a"])


class Shell:
    def open(self, path):
        return f"open {path}"

    def system(self, command):
        return command

    def exec(self, code):
        return len(code)


shell = Shell()
print(shell.open("door"), shell.system("x"), shell.exec("y"))
