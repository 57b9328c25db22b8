# profiles: basic, data_science, network, filesystem, strict
import html
import xml.etree.ElementTree as ET
from html.parser import HTMLParser


class Links(HTMLParser):
    def __init__(self):
        super().__init__()
        self.found = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name == "href"]


parser = Links()
parser.feed('<p><a href="/x">x</a></p>')
root = ET.fromstring("<r><i k='1'>a</i><i>b</i></r>")
print(parser.found, html.escape("<&>"), [i.text for i in root.iter("i")], root.find("i").attrib)
