"""The direction of imports (DESIGN section 3), read from the sources, and what generating may load."""

import ast
import graphlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers import ROOT
from travlr.start import container_cores

OURS = ("travlr", "render", "splits", "train", "analysis", "conf")
SOURCES = sorted(p for package in ("travlr", "render", "splits") for p in (ROOT / package).rglob("*.py"))
ALL = sorted(p for package in OURS for p in (ROOT / package).rglob("*.py"))
# Of each room (a folder), the other rooms of `train` and `analysis` that it may import.
ROOMS = {
    "train.results": set(),
    "train.regions": set(),
    "train.data": {"train.regions"},
    "train.models": {"train.data", "train.results"},
    "train.learning": {"train.data", "train.models", "train.regions", "train.results"},
    "train": {"train.data", "train.learning", "train.models", "train.regions", "train.results"},
    "analysis.tables": {"analysis", "train.results"},
    "analysis.figures": {"analysis", "train.results"},
    "analysis": {"analysis.figures", "analysis.tables", "train.results"},
}
EVERYWHERE = {"train.config", "train.cache"}  # on the floor of `train`, but import no room
LIGHT_ROOMS = ("train.results", "analysis", "analysis.figures", "analysis.tables")  # read saved runs, without a model
HEAVY = {"torch", "lightning", "transformers", "sklearn", "wandb", "pandas"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def imports(path: Path) -> set[str]:
    """Full names of all modules that a file imports anywhere, names from packages included."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found.add(str(node.module))
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def ours(path: Path) -> set[str]:
    return {name for name in imports(path) if name.split(".")[0] in OURS}


@pytest.mark.parametrize("path", SOURCES, ids=module_of)
def test_nothing_here_needs_a_deep_learning_stack(path: Path) -> None:
    allowed = {"sklearn"} if module_of(path) == "travlr.baselines" else set()  # when it fits rules
    assert not {name.split(".")[0] for name in imports(path)} & HEAVY - allowed


def test_leaves_import_nothing_of_ours() -> None:
    for leaf in ("travlr/scene.py", "splits/__init__.py"):
        assert not ours(ROOT / leaf)


def test_render_imports_scenes_alone() -> None:
    for path in (ROOT / "render").rglob("*.py"):
        assert all(name.startswith(("travlr.scene", "render")) for name in ours(path)), path


def test_only_generate_sees_tasks_splits_and_pictures() -> None:
    for path in SOURCES:
        if any(name.startswith("travlr.sampler") for name in ours(path)):
            assert module_of(path) == "travlr.generate"


@pytest.mark.parametrize("path", sorted((ROOT / "travlr" / "tasks").glob("[a-z]*.py")), ids=module_of)
def test_a_task_imports_only_what_tasks_are_made_of(path: Path) -> None:
    allowed = (
        "travlr.scene",
        "travlr.tasks.base",
        "travlr.tasks.exchange",
        "travlr.config",
        "travlr.streams",
        "splits",
        "render.text",
    )
    for name in ours(path):
        assert name in allowed or name.startswith(tuple(f"{a}." for a in allowed)) or name == "travlr", name


def room_of(name: str) -> str:
    """The folder of a module: `train.data` of `train.data.text`."""
    path = ROOT / name.replace(".", "/")
    return name if path.is_dir() else name.rpartition(".")[0]


def modules(path: Path) -> set[str]:
    """Modules of ours that a file imports anywhere, inside functions too; a package stands for its `__init__`."""
    files = {module_of(other) for other in ALL}
    return {name for name in ours(path) if name in files} - {module_of(path)}


def test_no_circles() -> None:
    graph = {module_of(path): modules(path) for path in ALL}
    for name, imported in graph.items():
        if (ROOT / name.replace(".", "/")).is_dir():  # a package offers names of its own modules
            graph[name] = {other for other in imported if not other.startswith(f"{name}.")}
    assert list(graphlib.TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


@pytest.mark.parametrize("path", [p for p in ALL if room_of(module_of(p)) in ROOMS], ids=module_of)
def test_rooms_import_in_one_direction(path: Path) -> None:
    room = room_of(module_of(path))
    imported = {name for name in modules(path) if name.startswith(("train", "analysis"))} - EVERYWHERE
    assert {room_of(name) for name in imported} - {room} <= ROOMS[room]


@pytest.mark.parametrize("path", [p for p in ALL if room_of(module_of(p)) in LIGHT_ROOMS], ids=module_of)
def test_results_are_read_without_a_model(path: Path) -> None:
    assert not {name.split(".")[0] for name in imports(path)} & {"torch", "lightning", "transformers"}


TRAINER = sorted((ROOT / "train").rglob("*.py"))
LIGHT = ("train.command", "train.settings", "train.sweep", "train.config")  # what answers a wrong setting


def test_the_trainer_imports_no_analysis() -> None:
    assert len(TRAINER) > 10
    for path in TRAINER:
        allowed = ("travlr", "render", "splits", "train")
        assert {name.split(".")[0] for name in ours(path)} <= set(allowed), path


@pytest.mark.parametrize("name", LIGHT)
def test_what_reads_settings_loads_nothing_heavy(name: str) -> None:
    heavy = HEAVY | {"pyarrow", "scipy", "PIL"}
    program = f"import sys, {name}; print(sorted(set(sys.modules) & {heavy}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_generating_loads_nothing_heavy() -> None:
    program = (
        "import sys\n"
        "from travlr.generate import main\n"
        "main(['task=spatiality', 'out=' + sys.argv[1], 'count.train=10', 'count.validation=0', "
        "'count.test_ind=0', 'count.test_ood=0'])\n"
        f"print(sorted(set(sys.modules) & {HEAVY | {'PIL', 'datasets', 'ray'}}))"
    )
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run([sys.executable, "-c", program, f"{folder}/d"], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.splitlines()[-1:] == ["[]"], done.stdout + done.stderr


def test_the_package_offers_its_names() -> None:
    import travlr

    for name in travlr.__all__:
        assert getattr(travlr, name) is not None
    with pytest.raises(AttributeError, match="nonsense"):
        travlr.nonsense  # noqa: B018


def test_type_checkers_see_the_types_of_the_packages() -> None:
    packages = [name for name in OURS if (ROOT / name / "__init__.py").is_file()]
    assert len(packages) == 5 and all((ROOT / name / "py.typed").is_file() for name in packages)
    tree = ast.parse((ROOT / "travlr" / "__init__.py").read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    shown = {alias.asname for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names} - {None}
    import travlr

    assert shown == set(travlr.__all__)


def test_importing_the_package_imports_no_parts() -> None:
    program = "import sys, travlr; print([m for m in sys.modules if m.startswith(('travlr.', 'render', 'numpy'))])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("given", "due"), [({}, "PASSIVE"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE"), ({"GOMP_SPINCOUNT": "1000"}, None)]
)
def test_waiting_threads_of_openmp_do_not_spin_unless_the_user_says_so(given: dict[str, str], due: str | None) -> None:
    code = (
        "import os, sys, types; main = types.ModuleType('main'); "
        "main.main = lambda arguments: print(os.environ.get('OMP_WAIT_POLICY')) or 0; sys.modules['main'] = main; "
        "from travlr.start import start_command; assert 'torch' not in sys.modules; start_command('main', 'main')"
    )
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names} | given
    result = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.stdout.strip() == str(due), result.stderr


@pytest.mark.parametrize(
    ("text", "cores"),
    [("150000 100000", 1), ("400000 100000", 4), ("50000 100000", 1), ("max 100000", None), ("", None)],
)
def test_a_container_limits_the_cores(text: str, cores: int | None, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert container_cores(str(tmp_path / "cpu.max")) == cores
    assert container_cores(str(tmp_path / "none")) is None
