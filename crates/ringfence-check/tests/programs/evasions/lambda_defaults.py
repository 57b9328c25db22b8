# refused: strict
(lambda run=exec, code="print(1)": run(code))()
