"""The hosts that a test calls the internet: names, HTTP and TLS on addresses of this network namespace alone. Every contact
is a line of JSON on standard output: what was asked for, and by whom it was heard."""
import json
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading

ZONE = {
    "good.test": "93.184.216.34",
    "other.test": "93.184.216.35",
    "sneaky.test": "10.7.7.7",
    "metadata.test": "169.254.169.254",
    "api.test": "93.184.216.50",
    "read.test": "93.184.216.50",
    "wrong.test": "93.184.216.50",
}
# Where another program listens.
API = "93.184.216.50"
ADDRESSES = sorted(set(ZONE.values()))
LOCK = threading.Lock()


def tell(**heard):
    with LOCK:
        print(json.dumps(heard), flush=True)


def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += query[at] + 1
    name, (kind,) = ".".join(labels).lower(), struct.unpack(">H", query[at + 1 : at + 3])
    tell(dns=name, kind=kind)
    question, known = query[12 : at + 5], ZONE.get(name)
    found = known is not None and kind == 1
    flags = 0x8180 if known else 0x8183
    head = query[:2] + struct.pack(">HHHHH", flags, 1, int(found), 0, 0)
    record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(known) if found else b""
    return head + question + record


def names():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 5353))
    while True:
        query, who = sock.recvfrom(4096)
        sock.sendto(answer(query), who)


class Web(socketserver.BaseRequestHandler):
    def handle(self):
        own = self.request.getsockname()
        tell(tcp=own[0], port=own[1])
        head = b""
        while b"\r\n\r\n" not in head:
            more = self.request.recv(4096)
            if not more:
                return
            head += more
        lines = head.decode("latin-1").split("\r\n")
        host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "")
        tell(request=lines[0], host=host, on=own[0])
        body = f"hello from {host}\n".encode()
        self.request.sendall(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    context = None

    def get_request(self):
        sock, who = super().get_request()
        return (self.context.wrap_socket(sock, server_side=True) if self.context else sock), who

    def handle_error(self, request, client_address):
        tell(broken=str(sys.exc_info()[1]))


def serve(address, port, context):
    server = Server((address, port), Web)
    server.context = context
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main(directory):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", f"{directory}/key.pem", "-out", f"{directory}/cert.pem", "-subj", "/CN=good.test",
         "-addext", "subjectAltName=DNS:good.test,DNS:other.test"],
        check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{directory}/cert.pem", f"{directory}/key.pem")
    for address in ADDRESSES:
        serve(address, 80, None)
        serve(address, 8080, None)
        if address != API:
            serve(address, 443, context)
    threading.Thread(target=names, daemon=True).start()
    tell(ready=True)
    sys.stdin.read()


main(sys.argv[1])
