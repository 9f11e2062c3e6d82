"""Nobody goes round the doors: files are opened, written and shown in the few modules that guard that."""

import ast
from pathlib import Path

import pytest

import a2c

ROOT = Path(a2c.__file__).parent
DOORS = {"reading.py", "run/files.py", "config/yaml_loader.py"}
# calls that open, write, move or remove files, by their last word
ALWAYS = {
    *("open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "makedirs", "rmdir"),
    *("rename", "renames", "touch", "symlink_to", "hardlink_to", "symlink", "link", "truncate", "rmtree", "savefig"),
    *("copyfile", "copy2", "copytree", "move", "tofile", "fromfile", "memmap", "loadtxt", "savetxt", "save_weights"),
    *("FileIO", "NamedTemporaryFile", "TemporaryFile", "mkstemp", "mkfifo", "chmod", "imwrite", "imread", "load_model"),
}
# and those of a module
OF_MODULE = {
    **dict.fromkeys(["yaml.load", "yaml.safe_load", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"], "yaml"),
    **dict.fromkeys(["yaml.compose", "yaml.parse", "yaml.scan", "yaml.safe_load_all", "json.load"], "parse"),
    **dict.fromkeys(["np.load", "np.save", "np.savez", "np.savez_compressed", "os.replace", "os.remove"], "numpy, os"),
}
OF_DOORS = {"read_text", "read_bytes", "rename"}  # as functions, not as methods
# where they are none of a run's files; the reason beside each
ALLOWED = {
    ("envs/games.py", "read_text"): "the package's own tables",
    ("quiet.py", "open"): "/dev/null",
    ("show/page.py", "read_text"): "the package's own style",
    ("cli/console.py", "open"): "/dev/null",
    ("cli/options.py", "TemporaryFile"): "asks whether the user's own folder can be written to",
    ("execution/machine.py", "read_text"): "/proc and /sys",
    ("analysis/bench.py", "read_text"): "/proc",
    ("analysis/checks.py", "TemporaryFile"): "asks whether the user's own folder can be written to",
    ("analysis/ray_jobs.py", "NamedTemporaryFile"): "a new file with a random name, in a comparison's folder",
    ("analysis/numerics.py", "np.load"): "of a file that the door opened",
    ("analysis/numerics.py", "np.savez_compressed"): "into a file that the door opened",
    ("execution/replicas.py", "np.load"): "of bytes in memory",
    ("execution/replicas.py", "np.savez"): "into memory",
    ("show/style.py", "savefig"): "into memory",
    ("run/lock.py", "truncate"): "of a file that the door opened",
    ("run/archive.py", "open"): "of a member of an archive that the door opened",
}


def ways_round(source: str) -> set[str]:
    """The calls in a module that open or change files by themselves."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        last = name.rpartition(".")[2]
        if name in OF_MODULE:
            found.add(name)
        elif last in ALWAYS and (isinstance(node.func, ast.Attribute) or last not in OF_DOORS):
            found.add(last)
        elif last == "replace" and isinstance(node.func, ast.Attribute) and len(node.args) == 1 and not node.keywords:
            found.add("Path.replace")
    return found


def test_files_are_opened_and_written_in_the_doors_alone():
    found = {
        (str(file.relative_to(ROOT)), call)
        for file in ROOT.rglob("*.py")
        if str(file.relative_to(ROOT)) not in DOORS
        for call in ways_round(file.read_text())
    }
    assert found == ALLOWED.keys()


@pytest.mark.parametrize(
    "code",
    [
        "open('x')",
        "path.open('wb')",
        "Path(x).write_text('')",
        "(a / b).read_bytes()",
        "os.open(p, 0)",
        "yaml.load(text, Loader)",
        "np.load(path)",
        "figure.savefig(path)",
        "a.replace(b)",
        "shutil.rmtree(x)",
    ],
)
def test_what_goes_round_them_is_found(code):
    assert ways_round(code)


def test_no_test_is_needed_for_texts():
    assert not ways_round("text.replace('a', 'b'); model.replace(seed=1); dict.get('open'); replace(run, seed=1)")


def test_only_the_consoles_print():
    """Text of files and names passes `Terminal.render`; `print` and `sys.stdout.write` go round it."""
    allowed = {
        "run/files.py": "a result that the user sends to /dev/stdout",
        "cli/examining.py": "YAML, which escapes what is not printable",
        "analysis/doctor.py": "to the process that asked",
        "execution/replicas.py": "from a process that is about to end",
    }
    found = set()
    for file in ROOT.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                *("print", "typer.echo", "rich.print", "sys.stdout.write", "sys.stderr.write"),
                "sys.stdout.buffer.write",
            ):
                found.add(str(file.relative_to(ROOT)))
    assert found == allowed.keys()
