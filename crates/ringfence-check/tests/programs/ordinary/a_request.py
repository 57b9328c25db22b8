# profiles: network
import json
import urllib.error
import urllib.parse
import urllib.request


def fetch(url):
    request = urllib.request.Request(url, headers={"Accept": "application/json"})
    with urllib.request.urlopen(request, timeout=5) as response:
        return json.load(response)


def address(base, **query):
    return base + "?" + urllib.parse.urlencode(query)


print(address("https://api.example.com/v1", q="a b"))
