"""Nobody goes round the doors: files are opened, written and shown in the few modules that guard that."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import a2c

ROOT = Path(a2c.__file__).parent
DOORS = {"reading.py", "run/files.py", "config/yaml_loader.py"}
# calls that open, write, move or remove files, by their last word
ALWAYS = {
    *("open", "fdopen", "read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "makedirs", "rmdir"),
    *("rename", "renames", "touch", "symlink_to", "hardlink_to", "symlink", "link", "truncate", "rmtree", "savefig"),
    *("copyfile", "copy2", "copytree", "move", "tofile", "fromfile", "memmap", "loadtxt", "savetxt", "genfromtxt"),
    *("FileIO", "NamedTemporaryFile", "TemporaryFile", "mkstemp", "mkfifo", "mknod", "chmod", "imwrite", "imread"),
    *("ZipFile", "FileHandler", "VideoWriter", "load_model", "save_model", "save_weights", "load_weights"),
    *("write_file", "read_file", "safe_load", "unsafe_load", "full_load", "load_all", "safe_load_all"),
}
# and those of a module
OF_MODULE = {
    *("yaml.load", "yaml.compose", "yaml.parse", "yaml.scan", "json.load", "json.dump", "pickle.load", "pickle.dump"),
    *("np.load", "np.save", "np.savez", "np.savez_compressed", "os.replace", "os.remove", "shutil.copy", "onnx.load"),
    *("onnx.save", "tf.saved_model.save", "tf.saved_model.load"),
}
OF_DOORS = {"read_text", "read_bytes", "rename", "link"}  # as functions, not as methods
# where they are none of a run's files; the reason beside each
ALLOWED = {
    ("games.py", "_rows: read_text"): "the package's own tables",
    ("show/page.py", ": read_text"): "the package's own style",
    ("__main__.py", "main: open"): "/dev/null",
    ("cli/console.py", "drop_output: open"): "/dev/null",
    ("quiet.py", "_silenced_stderr: open"): "/dev/null",
    ("execution/machine.py", "free_memory: read_text"): "/proc",
    ("execution/machine.py", "_cpuinfo: read_text"): "/proc",
    ("execution/machine.py", "_words: read_text"): "/sys",
    ("analysis/bench.py", "_memory: read_text"): "/proc",
    ("analysis/ray_jobs.py", "examine: NamedTemporaryFile"): "a new file with a random name, in a comparison's folder",
    ("analysis/numerics.py", "load_rollouts: np.load"): "of a file that the door opened",
    ("analysis/numerics.py", "save_rollouts: np.savez_compressed"): "into a file that the door opened",
    ("execution/replicas.py", "_from_words: np.load"): "of bytes in memory",
    ("execution/replicas.py", "_to_words: np.savez"): "into memory",
    ("export/export.py", "_load_savedmodel: tf.saved_model.load"): "of a folder that was just written",
    ("export/onnx_writer.py", "write_onnx: onnx.save"): "into a new folder",
    ("show/plot.py", "save: mkdir"): "beside the file that the user named",
    ("show/style.py", "render: savefig"): "into memory",
    ("run/lock.py", "take: truncate"): "of a file that the door opened",
    ("run/archive.py", "write_archive: ZipFile"): "of a file that the door opened",
    ("run/archive.py", "write_archive: open"): "of a member of that archive",
    ("run/archive.py", "read_archive: ZipFile"): "of a file that the door opened",
}


def ways_round(source: str) -> list[str]:
    """The calls in a module that open or change files by themselves, each as `function: call`."""
    return [f"{function}: {name}" for function, node in calls(ast.parse(source)) if (name := way_round(node))]


def calls(tree: ast.AST, function: str = "") -> Iterator[tuple[str, ast.Call]]:
    """Each call, and the innermost function that it stands in."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.Call):
            yield function, node
        inner = node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else function
        yield from calls(node, inner)


def way_round(call: ast.Call) -> str | None:
    name = ast.unparse(call.func)
    last = name.rpartition(".")[2]
    if name in OF_MODULE:
        return name
    if last in ALWAYS and (isinstance(call.func, ast.Attribute) or last not in OF_DOORS):
        return last
    renames = (len(call.args) == 1 and not call.keywords) or [word.arg for word in call.keywords] == ["target"]
    return "Path.replace" if last == "replace" and isinstance(call.func, ast.Attribute) and renames else None


def test_files_are_opened_and_written_in_the_doors_alone():
    found = sorted(
        (str(file.relative_to(ROOT)), way)
        for file in ROOT.rglob("*.py")
        if str(file.relative_to(ROOT)) not in DOORS
        for way in ways_round(file.read_text())
    )
    assert found == sorted(ALLOWED)  # also the number of calls


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
        "analysis/doctor.py": "to the process that asked",
        "execution/replicas.py": "from a process that is about to end",
        "run/trackers.py": "to the log of its process",
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
