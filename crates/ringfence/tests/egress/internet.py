"""The test internet: DNS, HTTP and TLS on addresses of this network namespace only. Every contact is printed as a line
of JSON on standard output, with the request and the address that received it."""
import hashlib
import json
import random
import socket
import socketserver
import ssl
import struct
import subprocess
import sys
import threading
from pathlib import Path

ZONE = {
    "good.test": "93.184.216.34",
    "other.test": "93.184.216.35",
    "sneaky.test": "10.7.7.7",
    "metadata.test": "169.254.169.254",
    "api.test": "93.184.216.50",
    "read.test": "93.184.216.50",
    "wrong.test": "93.184.216.50",
    "pages.test": "93.184.216.60",
}
# Every name below this domain exists too.
PAGES = ".pages.test"
# The address on which another program listens.
API = "93.184.216.50"
ADDRESSES = sorted(set(ZONE.values()))
#: The DNS server, and the source address of connections that only wait until all earlier contacts are printed.
NAMES, WAITER = ("127.0.0.1", 5353), "127.0.0.9"
SERVERS = []
LOCK = threading.Lock()
#: What `npm view hello` asks for.
PACKAGE = {
    "name": "hello",
    "dist-tags": {"latest": "1.0.0"},
    "versions": {"1.0.0": {"name": "hello", "version": "1.0.0", "description": "hello from good.test", "dist": {}}},
}


def report(**contact):
    with LOCK:
        print(json.dumps(contact), flush=True)


def answer(query):
    labels, at = [], 12
    while query[at]:
        labels.append(query[at + 1 : at + 1 + query[at]].decode())
        at += query[at] + 1
    name, (kind,) = ".".join(labels).lower(), struct.unpack(">H", query[at + 1 : at + 3])
    report(dns=name, kind=kind)
    question, known = query[12 : at + 5], ZONE.get(PAGES[1:] if name.endswith(PAGES) else name)
    found = known is not None and kind == 1
    flags = 0x8180 if known else 0x8183
    head = query[:2] + struct.pack(">HHHHH", flags, 1, int(found), 0, 0)
    record = b"\xc0\x0c" + struct.pack(">HHIH", 1, 1, 0, 4) + socket.inet_aton(known) if found else b""
    return head + question + record


def names():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(NAMES)
    while True:
        query, client = sock.recvfrom(4096)
        sock.sendto(answer(query) if query else b"", client)


class Web(socketserver.BaseRequestHandler):
    def handle(self):
        own = self.request.getsockname()
        head = b""
        while b"\r\n\r\n" not in head:
            more = self.request.recv(4096)
            if not more:
                return
            head += more
        head, _, body = head.partition(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        host = next((line[5:].strip() for line in lines if line.lower().startswith("host:")), "")
        report(request=lines[0], host=host, on=own[0])
        path = lines[0].split()[1].partition("?")[0]
        # A complete response that the test has written.
        page = Path(self.server.directory, "pages", host.partition(":")[0], path.strip("/") or "index")
        if page.is_file():
            self.request.sendall(page.read_bytes())
            return
        if path == "/digest":
            status, body = "200 OK", self.digest(lines, body)
        else:
            status, body = self.answer(path, host, "\n".join(lines))
        head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        self.request.sendall(head.encode() + body)

    def digest(self, lines, body):
        """Returns the digest of the request body, read as it arrives."""
        length = next(int(line.split(":")[1]) for line in lines if line.lower().startswith("content-length:"))
        digest, left = hashlib.sha256(body), length - len(body)
        while left > 0:
            more = self.request.recv(min(left, 1 << 20))
            if not more:
                raise OSError("the connection ended before the body")
            digest.update(more)
            left -= len(more)
        return digest.hexdigest().encode()

    def answer(self, path, host, head):
        if path == "/content":
            return "200 OK", random.Random(7).randbytes(64 << 20)
        if path == "/echo":
            return "200 OK", head.encode("latin-1")
        if path == "/hello":
            return "200 OK", json.dumps(PACKAGE).encode()
        if not path.startswith("/repo.git/"):
            return "200 OK", f"hello from {host}\n".encode()
        try:
            return "200 OK", Path(self.server.directory + path).read_bytes()
        except OSError:
            return "404 Not Found", b""


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True
    context = None
    directory = None

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.reached = threading.Event()

    def wait_for_earlier(self):
        """Waits until all earlier connections are printed: connections are accepted in order."""
        self.reached.clear()
        socket.create_connection(self.server_address, 10, (WAITER, 0)).close()
        self.reached.wait(10)

    def get_request(self):
        sock, client = super().get_request()
        if client[0] == WAITER:
            sock.close()
            self.reached.set()
            raise OSError("this connection only waits for earlier ones")
        own = sock.getsockname()
        report(tcp=own[0], port=own[1])
        return (self.context.wrap_socket(sock, server_side=True) if self.context else sock), client

    def handle_error(self, request, client_address):
        report(broken=str(sys.exc_info()[1]))


def repository(directory):
    """Makes the repository for `git clone`, served as plain files."""
    work, bare = f"{directory}/repo", f"{directory}/repo.git"
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@good.test", "-c", "init.defaultBranch=main", "-c", "commit.gpgsign=false"]
    subprocess.run([*git, "init", "-q", work], check=True)
    Path(work, "README").write_text("hello from good.test\n")
    subprocess.run([*git, "-C", work, "add", "."], check=True)
    subprocess.run([*git, "-C", work, "commit", "-q", "-m", "hello"], check=True)
    subprocess.run([*git, "clone", "-q", "--bare", work, bare], check=True)
    subprocess.run([*git, "-C", bare, "update-server-info"], check=True)


def serve(address, port, context, directory):
    server = Server((address, port), Web)
    server.context, server.directory = context, directory
    SERVERS.append(server)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def main(directory):
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    for address in ADDRESSES:
        subprocess.run(["ip", "address", "replace", f"{address}/32", "dev", "lo"], check=True)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-keyout", f"{directory}/key.pem", "-out", f"{directory}/cert.pem", "-subj", "/CN=good.test",
         "-addext", "subjectAltName=DNS:good.test,DNS:other.test"],
        check=True, stderr=subprocess.DEVNULL)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(f"{directory}/cert.pem", f"{directory}/key.pem")
    for address in ADDRESSES:
        serve(address, 80, None, directory)
        serve(address, 8080, None, directory)
        if address != API:
            serve(address, 443, context, directory)
    repository(directory)
    threading.Thread(target=names, daemon=True).start()
    report(mark=True)
    for _ in sys.stdin:
        for server in SERVERS:
            server.wait_for_earlier()
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
            asking.settimeout(10)
            asking.sendto(b"", NAMES)
            asking.recv(1)
        report(mark=True)


main(sys.argv[1])
