"""Debian's SearXNG with a host of the test internet as its engine; the name of that host is resolved here."""
import socket

real = socket.getaddrinfo


def resolved(host, *arguments, **words):
    return real("93.184.216.34" if host in ("good.test", b"good.test") else host, *arguments, **words)


socket.getaddrinfo = resolved

from searx import webapp  # noqa: E402

webapp.app.run(host="127.0.0.1", port=8888, threaded=True)
