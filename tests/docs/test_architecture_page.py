"""CONTRIBUTING.md names what is there: packages in their order, layers, and files."""

import re
import tomllib

from tests.kit.pages import ROOT, Page

PAGE = Page("CONTRIBUTING.md")
SOURCE = ROOT / "src" / "holdfast"


def test_each_file_and_folder_is_there():
    paths = re.findall(r"\b((?:_[a-z]\w*|tests|benchmarks)/[\w/]*(?:\.\w+)?)", PAGE.text)

    assert len(paths) > 50
    assert [p for p in paths if not any((base / p).exists() for base in (SOURCE, ROOT))] == []


def test_the_picture_has_each_package_on_its_row():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    [layers] = [c["layers"] for c in contracts["contracts"] if c["type"] == "layers"]
    row = {name: row for row, names in enumerate(layers) for name in re.split(r" [:|] ", names)}
    picture = PAGE.text.split("```text", 2)[1].split("```")[0]

    shown = [re.findall(r"(?<![\w.])_[a-z]+\b", line) for line in picture.splitlines()]
    rows = [{row[name] for name in names} for names in shown if names]

    packages = {path.parent.name for path in SOURCE.glob("_*/__init__.py")}
    assert {name for names in shown for name in names} == packages | {"_arguments", "_asgi"}
    assert all(len(row) == 1 for row in rows)
    assert rows == sorted(rows, key=max)


def test_the_layers_are_those_of_the_pipeline_in_their_order():
    order = (SOURCE / "_pipeline" / "order.py").read_text()
    call, attempt = (
        order.split(f"\n        {name} = [\n")[1].split("\n        ]\n")[0]
        for name in ("call", "attempt")
    )
    made_by = {"_admission": "AdmissionLayer", "_hedge": "HedgeLayer", "chosen": "OlderFilesLayer"}
    names = re.findall(rf"\b([A-Z]\w+Layer|{'|'.join(made_by)})\b", call + attempt)

    assert re.findall(r"^([A-Z]\w+Layer) ", PAGE.text, flags=re.MULTILINE) == [
        made_by.get(name, name) for name in names
    ]


def test_every_link_leads_somewhere():
    PAGE.check_links()
