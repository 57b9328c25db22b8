# refused: strict
exec("import os; os.system('id')")
