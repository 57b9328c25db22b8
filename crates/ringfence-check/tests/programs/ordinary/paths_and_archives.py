# profiles: filesystem
import glob
import os.path
import shutil
import tarfile
import tempfile
import zipfile
from os import path
from pathlib import Path

with tempfile.TemporaryDirectory() as directory:
    base = Path(directory)
    (base / "a.txt").write_text("hello")
    with zipfile.ZipFile(base / "a.zip", "w") as archive:
        archive.write(base / "a.txt", "a.txt")
    shutil.copy(base / "a.txt", base / "b.txt")
    with tarfile.open(str(base / "c.tar"), "w") as archive:
        archive.add(base / "b.txt", arcname="b.txt")
    print(sorted(os.path.basename(name) for name in glob.glob(directory + "/*")))
    print(path.exists(base / "a.txt"), os.path.join("a", "b"), os.path.splitext("x.py"))
    (base / "a.txt").unlink()
