# refused: strict, basic
import xml
xml.etree
