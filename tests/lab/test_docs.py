"""Documents say what is true: their code runs, their commands exist, every public name is documented."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest
from command_line import run

import sketchbandits
from sketchbandits.policies.base import Policy

ROOT = Path(__file__).parents[2]
PAGES = ["README.md", *(str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")))]
NEEDS_A_SERVICE = "docs/howto/serve.md"  # its code runs in test_client.py


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```", (ROOT / page).read_text(), flags=re.S | re.M)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page != NEEDS_A_SERVICE])
def test_code_on_the_page_runs(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {}
    for block in blocks(page, "python"):
        exec(compile(block, page, "exec"), namespace)


def test_the_readme_gives_the_commands_that_ci_runs():
    install, test = blocks("README.md", "bash")
    assert test.strip() in (ROOT / ".ci/run").read_text()
    assert "pip install ." in install and "sketchbandits reproduce" in install


def test_commands_named_in_documents_exist():
    text = "".join((ROOT / page).read_text() for page in [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"])
    for command in set(re.findall(r"(?:bin/|`)sketchbandits ([a-z]+)\b", text)):
        assert run(command, "--help").returncode == 0, command
    for script in set(re.findall(r"benchmarks/(?:\w+/)?\w+\.py", text)):
        assert (ROOT / script).is_file(), script


def test_links_between_documents_lead_somewhere():
    for page in [*PAGES, "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([\w./-]+)\)", (ROOT / page).read_text()):
            assert ((ROOT / page).parent / target).exists(), f"{page}: {target}"


def modules():
    for info in pkgutil.walk_packages(sketchbandits.__path__, "sketchbandits."):
        if info.name.endswith(("__main__", "_driver")):  # drivers run in the environments of other libraries
            continue
        try:
            yield importlib.import_module(info.name)
        except ModuleNotFoundError as error:
            if error.name != "torch":  # an extra
                raise


def test_every_module_and_public_name_has_a_docstring():
    missing = []
    for module in modules():
        if not module.__doc__:
            missing.append(module.__name__)
        for name, value in vars(module).items():
            own = getattr(value, "__module__", None) == module.__name__
            named = own and not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
            if named and not value.__doc__:
                missing.append(f"{module.__name__}.{name}")
    assert missing == []


def test_every_policy_states_cost_reference_departures_and_guarantee():
    for name in sketchbandits.__all__:
        value = getattr(sketchbandits, name)
        if inspect.isclass(value) and issubclass(value, Policy):
            text = inspect.getmodule(value).__doc__
            for part in ("**Cost**", "**Reference**", "**Departures**", "**Guarantee**"):
                assert part in text, f"{name}: {part}"


def test_every_public_name_is_in_the_readme():
    text = (ROOT / "README.md").read_text()
    for name in set(sketchbandits.__all__) - {"Result"}:
        assert name in text, name


def test_no_page_carries_a_placeholder_or_a_machine():
    for page in [*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"]:
        text = (ROOT / page).read_text()
        assert not re.search(r"\b[A-Z]+_TABLE\b|TODO|FIXME", text), page
        assert not re.search(r"(?<![\w.])/(home|root|work|tmp)/", text), page
