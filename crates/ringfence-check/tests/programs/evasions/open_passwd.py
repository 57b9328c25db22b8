# refused: strict
print(open("/etc/passwd").read())
