# refused: strict
async def f():
    pass


c = f()
c.cr_frame.f_builtins
