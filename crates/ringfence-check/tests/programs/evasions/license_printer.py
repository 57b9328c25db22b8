# refused: strict
license._Printer__filenames = ["/etc/passwd"]
license._Printer__lines = None
license()
