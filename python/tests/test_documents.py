"""The Python code in the documents runs."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "docs/use/python.md", ROOT / "python/README.md"]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: document.name)
def test_the_code_of_a_document_runs(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One block after the other, in one directory."""
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", document.read_text(), re.MULTILINE | re.DOTALL)
    for block in blocks:
        exec(compile(block, str(document), "exec"), {"__name__": "__main__"})
    assert blocks and "b'alice' b'80'" in capsys.readouterr().out
