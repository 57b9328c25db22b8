# refused: strict, basic
class A:
    import pty
    pty.spawn("/bin/sh")
