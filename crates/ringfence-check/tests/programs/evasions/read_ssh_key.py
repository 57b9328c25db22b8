# refused: strict, basic
import pathlib
(pathlib.Path.home() / ".ssh" / "id_rsa").read_text()
