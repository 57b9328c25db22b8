# refused: strict, basic
def innocent():
    import socket
    return socket.socket()


innocent()
