"""The remote end of `bench_egress.py`: one name, one address, and its servers, in the current network namespace.

    python bench_hosts.py DIRECTORY NAME ADDRESS

Port 80 serves HTTP, 443 the same over TLS, and 9000 the same on a port without a known protocol. It prints `ready` when
all of them listen, and ends with its standard input.
"""

from __future__ import annotations

import hashlib
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading

#: Size of one transfer.
SIZE = 64 << 20
PIECE = 1 << 20
CONTENT = random.Random(7).randbytes(SIZE)
DIGEST = hashlib.sha256(CONTENT).hexdigest()


def answer(query: bytes, name: str, address: str) -> bytes:
    """The address for the one name, with a TTL of a minute; NXDOMAIN for all others."""
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += query[at] + 1
    known, (kind,) = ".".join(labels).lower() == name, struct.unpack(">H", query[at + 1 : at + 3])
    found = known and kind == 1
    head = query[:2] + struct.pack(">HHHHH", 0x8180 if known else 0x8183, 1, int(found), 0, 0)
    record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 60, 4) + socket.inet_aton(address)
    return head + query[12 : at + 5] + (record if found else b"")


def names(name: str, address: str) -> None:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 5353))
    while True:
        query, who = sock.recvfrom(4096)
        sock.sendto(answer(query, name, address), who)


def head_of(connection: socket.socket) -> tuple[str, int, bytes]:
    """The path, the length of the body, and the part of the body read so far."""
    read = b""
    while b"\r\n\r\n" not in read:
        more = connection.recv(4096)
        if not more:
            raise OSError("it ended before its request did")
        read += more
    head, _, body = read.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    lengths = [int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:")]
    return lines[0].split()[1], (lengths or [0])[0], body


def serve(connection: socket.socket) -> None:
    """`/`: a word. `/down`: the content. `/up`: the number of received bytes. `/hash`: their digest."""
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    path, length, body = head_of(connection)
    digest, left, buffer = hashlib.sha256(body), length - len(body), bytearray(PIECE)
    while left:
        count = connection.recv_into(buffer, min(PIECE, left))
        if not count:
            raise OSError("it ended before its body did")
        if path == "/hash":
            digest.update(memoryview(buffer)[:count])
        left -= count
    said = {"/down": CONTENT, "/up": b"%d" % length, "/hash": digest.hexdigest().encode()}.get(path, b"hello")
    connection.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(said))
    connection.sendall(said)


def listen(address: str, port: int, context: ssl.SSLContext | None) -> None:
    """Serves one connection at a time, because the clients open one at a time."""
    listener = socket.create_server((address, port), backlog=64)

    def run() -> None:
        while True:
            connection, _ = listener.accept()
            try:
                with context.wrap_socket(connection, server_side=True) if context else connection as talked:
                    serve(talked)
            except OSError as error:
                print(f"port {port}: {error}", file=sys.stderr, flush=True)

    threading.Thread(target=run, daemon=True).start()


def main(directory: str, name: str, address: str) -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    key, certificate = f"{directory}/key.pem", f"{directory}/cert.pem"
    make = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    make += ["-keyout", key, "-out", certificate, "-subj", f"/CN={name}"]
    subprocess.run(make, check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    for port, secured in ((80, None), (443, context), (9000, None)):
        listen(address, port, secured)
    threading.Thread(target=names, args=(name, address), daemon=True).start()
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
