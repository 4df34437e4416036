"""Packs what pip has installed: pack.py FOLDER. Each run of a suite gets a copy, so the files should be few:
packages of Python alone become bytecode in packages.zip; agentdojo and native code remain as they are."""
import compileall
import shutil
import sys
import zipfile
from pathlib import Path

root = Path(sys.argv[1])
UNUSED = ["bin", "yaml/_yaml*.so"]  # YAML is read without C
for pattern in UNUSED:
    for path in root.glob(pattern):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
for cache in list(root.rglob("__pycache__")):
    shutil.rmtree(cache)
compileall.compile_dir(root, quiet=1, legacy=True, optimize=0)
for source in root.rglob("*.py"):
    source.unlink()
with zipfile.ZipFile(root / "packages.zip", "w") as packed:
    for top in sorted(root.iterdir()):
        if top.name in ("agentdojo", "pydantic_core", "packages.zip"):
            continue
        for path in [top] if top.is_file() else sorted(top.rglob("*")):
            packed.write(path, path.relative_to(root))
        shutil.rmtree(top) if top.is_dir() else top.unlink()
for unused in root.glob("*.dist-info"):
    shutil.rmtree(unused)
