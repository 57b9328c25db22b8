# refused: strict
try:
    1 / 0
except ZeroDivisionError as error:
    print(error.__traceback__.tb_frame.f_globals["__builtins__"])
