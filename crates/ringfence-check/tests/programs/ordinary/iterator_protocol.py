# profiles: basic, data_science, network, filesystem, strict
class Countdown:
    def __init__(self, start):
        self.start = start

    def __iter__(self):
        self.at = self.start
        return self

    def __next__(self):
        if self.at <= 0:
            raise StopIteration
        self.at -= 1
        return self.at + 1

    def __reversed__(self):
        return iter(range(1, self.start + 1))

    def __len__(self):
        return self.start


print(list(Countdown(3)), list(reversed(Countdown(3))), len(Countdown(2)))
for i, (a, b) in enumerate(zip(Countdown(2), "xy"), start=1):
    print(i, a, b)
