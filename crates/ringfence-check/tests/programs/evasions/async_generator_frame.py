# refused: strict
async def f():
    yield 1


f().ag_frame.f_globals
