# profiles: basic, data_science, network, filesystem, strict
class Ready:
    def __init__(self, value):
        self.value = value

    def __await__(self):
        return self.value
        yield


class Numbers:
    def __init__(self, n):
        self.n = n

    def __aiter__(self):
        return self

    async def __anext__(self):
        if self.n == 0:
            raise StopAsyncIteration
        self.n -= 1
        return await Ready(self.n)


class Lock:
    async def __aenter__(self):
        return "locked"

    async def __aexit__(self, *error):
        return False


async def main():
    async with Lock() as lock:
        found = [n async for n in Numbers(3)]
        async for n in Numbers(2):
            found.append(n)
        return lock, found


def run(coroutine):
    try:
        while True:
            coroutine.send(None)
    except StopIteration as done:
        return done.value


print(run(main()))
