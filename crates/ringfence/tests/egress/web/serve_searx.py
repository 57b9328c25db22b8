"""SearXNG as Debian has it, whose engine is a host of the test's internet: that name is looked up here."""
import socket

real = socket.getaddrinfo


def resolved(host, *arguments, **words):
    return real("93.184.216.34" if host in ("good.test", b"good.test") else host, *arguments, **words)


socket.getaddrinfo = resolved

from searx import webapp  # noqa: E402

webapp.app.run(host="127.0.0.1", port=8888, threaded=True)
