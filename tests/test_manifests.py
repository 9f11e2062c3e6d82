"""The files of docs/cluster: schemas of Kubernetes, what belongs together, and what their commands do."""

import json
import os
import shlex
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from a2c.cli import app
from a2c.config import load_config

pytestmark = pytest.mark.integration

FOLDER = Path(__file__).parents[1] / "docs" / "cluster"
KUBERNETES = ("1.31", "1.37")  # podFailurePolicy is stable since 1.31
CLAIM = "pong-runs"
WORKERS = 4
Manifest = dict[str, Any]


def documents(name: str) -> list[Manifest]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def one(name: str, kind: str, called: str | None = None) -> Manifest:
    (found,) = (d for d in documents(name) if d["kind"] == kind and called in (None, d["metadata"]["name"]))
    return found


def check(manifest: Manifest, version: str) -> None:
    """By the schema of Kubernetes, in which unknown keys are mistakes."""
    import kubernetes_validate  # not above: this file is collected, and left out, where it is not installed

    kubernetes_validate.validate(manifest, version, strict=True)


def pod_of(template: Manifest) -> Manifest:
    """A pod as its controller makes it."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **template}


def container_of(template: Manifest) -> Manifest:
    (container,) = template["spec"]["containers"]
    return container


def claims_of(template: Manifest) -> list[str]:
    volumes = template["spec"].get("volumes", [])
    return [v["persistentVolumeClaim"]["claimName"] for v in volumes if "persistentVolumeClaim" in v]


def paths_of(template: Manifest) -> dict[str, str]:
    """Where a pod has its volumes; every one is mounted."""
    mounts = container_of(template).get("volumeMounts", [])
    assert Counter(m["name"] for m in mounts) == Counter(v["name"] for v in template["spec"].get("volumes", []))
    return {mount["name"]: mount["mountPath"] for mount in mounts}


def check_train(arguments: list[str]) -> dict[str, Any]:
    """The options of `a2c train ARGUMENTS`, read by the command line itself, its settings by the configuration."""
    command, *rest = arguments
    assert command == "train"
    options = typer.main.get_command(app).commands[command].make_context(command, rest).params
    assert options["resume"], "whatever restarts it has no other way to resume"
    assert options["run_dir"] is not None
    load_config(env_id=options["env"], assignments=options["set_"])
    return options


def run_script(script: Path, folder: Path, stubs: dict[str, str], **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a script with bash, where some commands are stubs."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    for name, text in stubs.items():
        (programs / name).write_text(f"#!/bin/bash\n{text}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    environment = {"PATH": f"{programs}:{os.environ['PATH']}", **variables}
    return subprocess.run(["bash", script], env=environment, cwd=folder, capture_output=True, text=True, timeout=300)


# --- plain Kubernetes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("manifest", documents("job.yaml"), ids=lambda d: f"{d['kind']}-{d['metadata']['name']}")
def test_kubernetes_knows_every_key(manifest: Manifest, version: str) -> None:
    check(manifest, version)


@pytest.mark.parametrize(("name", "role"), [("pong-chief", "chief"), ("pong-worker", "worker")])
def test_a_job_and_its_pods(name: str, role: str) -> None:
    spec = one("job.yaml", "Job", name)["spec"]
    template, (service_port,) = spec["template"], one("job.yaml", "Service")["spec"]["ports"]
    others = one("job.yaml", "Job", "pong-worker")["spec"]["completions"]
    container = container_of(template)
    (port,) = container["ports"]
    environment = {entry["name"]: entry["value"] for entry in container["env"]}
    assert spec["completionMode"] == "Indexed"
    assert spec["completions"] == spec["parallelism"] == (1 if role == "chief" else WORKERS - 1)
    assert template["spec"]["subdomain"] == one("job.yaml", "Service")["metadata"]["name"]
    assert one("job.yaml", "Service")["spec"]["selector"].items() <= template["metadata"]["labels"].items()
    assert port["containerPort"] == service_port["port"]
    assert environment == {"ROLE": role, "WORKERS": str(others)}
    assert container["command"] == ["bash", f"{paths_of(template)['cluster']}/run.sh"]
    assert template["spec"]["volumes"][0]["configMap"]["name"] == one("job.yaml", "ConfigMap")["metadata"]["name"]
    # a death counts once in each of the other pods too
    assert spec["backoffLimit"] == 50 * spec["completions"]


@pytest.mark.parametrize("name", ["pong-chief", "pong-worker"])
def test_what_a_job_does_with_exit_codes(name: str) -> None:
    spec = one("job.yaml", "Job", name)["spec"]
    rules = spec["podFailurePolicy"]["rules"]
    assert spec["template"]["spec"]["restartPolicy"] == "Never", "the only one that podFailurePolicy allows"
    codes = {rule["action"]: rule["onExitCodes"]["values"] for rule in rules if "onExitCodes" in rule}
    assert codes == {"FailJob": [2], "Ignore": [143]}  # 1, another worker's death, counts: see backoffLimit
    assert {rule["onExitCodes"]["operator"] for rule in rules if "onExitCodes" in rule} == {"In"}


def test_the_jobs_differ_in_the_volume_alone() -> None:
    chief, worker = (one("job.yaml", "Job", f"pong-{role}")["spec"]["template"] for role in ("chief", "worker"))
    assert claims_of(chief) == [one("job.yaml", "PersistentVolumeClaim")["metadata"]["name"]] == [CLAIM]
    assert claims_of(worker) == []
    for part in ("image", "command", "ports", "resources"):
        assert container_of(chief)[part] == container_of(worker)[part]


@pytest.mark.parametrize("index", range(WORKERS))
def test_the_script_of_a_pod_makes_its_tf_config(index: int, tmp_path: Path) -> None:
    jobs = {d["metadata"]["name"]: d["spec"] for d in documents("job.yaml") if d["kind"] == "Job"}
    pods = [(name, i) for name, spec in sorted(jobs.items()) for i in range(spec["completions"])]
    name, completion = pods[index]
    template, service = jobs[name]["template"], one("job.yaml", "Service")
    environment = {entry["name"]: entry["value"] for entry in container_of(template)["env"]}
    script = tmp_path / "run.sh"
    script.write_text(one("job.yaml", "ConfigMap")["data"]["run.sh"], encoding="utf-8")
    # of the script's own process: it must be replaced, since a shell would keep SIGTERM from it
    stub = 'echo "$PPID $TF_CONFIG"; printf "%s\\n" "$@"'
    done = run_script(script, tmp_path, {"a2c": stub}, JOB_COMPLETION_INDEX=str(completion), **environment)
    assert done.returncode == 0, done.stderr
    first, *arguments = done.stdout.splitlines()
    parent, tf_config = first.split(" ", 1)
    assert int(parent) == os.getpid(), "a2c is not the pod's first process"
    port = service["spec"]["ports"][0]["port"]
    hosts: dict[str, list[str]] = {"chief": [], "worker": []}
    for job, i in pods:
        # the names that an Indexed Job gives, in the domain of the headless service
        hosts[job.removeprefix("pong-")].append(f"{job}-{i}.{service['metadata']['name']}:{port}")
    role = name.removeprefix("pong-")
    assert json.loads(tf_config) == {"cluster": hosts, "task": {"type": role, "index": completion}}
    options = check_train(arguments)
    assert options["strategy"] == "multiworker"
    mounted = paths_of(jobs["pong-chief"]["template"])["runs"]
    assert Path(mounted) in Path(options["run_dir"]).parents


def test_the_script_of_a_pod_stops_where_a_variable_is_missing(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(one("job.yaml", "ConfigMap")["data"]["run.sh"], encoding="utf-8")
    done = run_script(script, tmp_path, {"a2c": "echo started"}, ROLE="chief", WORKERS="3")
    assert done.returncode != 0
    assert "JOB_COMPLETION_INDEX" in done.stderr
    assert "started" not in done.stdout


# --- Kubeflow -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("role", ["Chief", "Worker"])
def test_the_tfjob(role: str, version: str) -> None:
    """Names and keys are those of kubeflow/training-operator 1.9."""
    for manifest in documents("tfjob.yaml"):
        if manifest["kind"] != "TFJob":
            check(manifest, version)
    job = one("tfjob.yaml", "TFJob")
    assert set(job) == {"apiVersion", "kind", "metadata", "spec"}
    assert job["apiVersion"] == "kubeflow.org/v1"
    spec = job["spec"]
    assert set(spec) == {"runPolicy", "tfReplicaSpecs"}
    assert set(spec["runPolicy"]) == {"cleanPodPolicy", "backoffLimit"}
    assert spec["runPolicy"]["cleanPodPolicy"] == "Running"
    assert set(spec["tfReplicaSpecs"]) == {"Chief", "Worker"}
    replica = spec["tfReplicaSpecs"][role]
    assert set(replica) == {"replicas", "restartPolicy", "template"}
    assert replica["replicas"] == (1 if role == "Chief" else WORKERS - 1)
    assert replica["restartPolicy"] == "OnFailure"
    template = replica["template"]
    assert set(template) == {"spec"}
    check(pod_of(template), version)
    container = container_of(template)
    assert container["name"] == "tensorflow"
    assert container["ports"] == [{"name": "tfjob-port", "containerPort": 2222}]
    assert claims_of(template) == ([CLAIM] if role == "Chief" else [])
    assert container["command"] == ["a2c"]
    options = check_train(container["args"])
    assert options["strategy"] == "multiworker"
    mounted = paths_of(spec["tfReplicaSpecs"]["Chief"]["template"])["runs"]
    assert Path(mounted) in Path(options["run_dir"]).parents


def test_every_manifest_trains_the_same_and_gives_time_to_save() -> None:
    jobs = [one("job.yaml", "Job", f"pong-{role}")["spec"]["template"] for role in ("chief", "worker")]
    replicas = one("tfjob.yaml", "TFJob")["spec"]["tfReplicaSpecs"]
    templates = [*jobs, *(replicas[role]["template"] for role in ("Chief", "Worker"))]
    assert {t["spec"]["terminationGracePeriodSeconds"] for t in templates} == {120}
    assert len({container_of(t)["image"] for t in templates}) == 1
    assert len({json.dumps(container_of(t)["resources"]) for t in templates}) == 1
    written = one("job.yaml", "ConfigMap")["data"]["run.sh"].replace("\\\n", " ").splitlines()[-1]
    options = check_train(shlex.split(written)[2:])
    assert options == check_train(container_of(templates[-1])["args"])
    cores = container_of(templates[0])["resources"]["requests"]["cpu"]
    assert {f"env.threads={cores}", f"runtime.threads={cores}"} < set(options["set_"])


# --- SLURM --------------------------------------------------------------------------------------------------

SLURM = FOLDER / "slurm.sh"


def sbatch_options() -> dict[str, str]:
    lines = SLURM.read_text(encoding="utf-8").splitlines()
    own = [line for line in lines if line.startswith("#SBATCH")]
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert own == [line for line in lines[:first] if line.startswith("#SBATCH")], "sbatch reads none after a command"
    pairs = [line.removeprefix("#SBATCH ").partition("=") for line in own]
    return {name: value for name, _, value in pairs}


def test_what_sbatch_is_asked_for() -> None:
    assert SLURM.read_text(encoding="utf-8").startswith("#!/bin/bash\n")
    assert sbatch_options() == {
        "--job-name": "pong",
        "--nodes": str(WORKERS),
        "--ntasks-per-node": "1",
        "--cpus-per-task": "4",
        "--mem": "4G",
        "--time": "04:00:00",
        "--signal": "TERM@300",  # without B: to the tasks
        "--requeue": "",
        "--open-mode": "append",
        "--output": "pong-%j.log",
    }


@pytest.mark.parametrize(
    ("code", "restarts", "again"),
    [(0, "", False), (2, "", False), (1, "", True), (143, "", True), (137, "3", True), (1, "50", False)],
)
def test_the_batch_script(code: int, restarts: str, again: bool, tmp_path: Path) -> None:
    stubs = {"srun": f'printf "%s\\n" "$@"; exit {code}', "scontrol": 'echo "scontrol $*"'}
    variables = {"SLURM_CPUS_PER_TASK": "4", "SLURM_JOB_ID": "17"}
    done = run_script(SLURM, tmp_path, stubs, **variables, **({"SLURM_RESTART_COUNT": restarts} if restarts else {}))
    assert done.stderr == ""
    assert done.returncode == code
    words = done.stdout.splitlines()
    requeued = words[-1] == "scontrol requeue 17"
    assert requeued == again
    begin = words.index("a2c")
    assert words[:begin] == ["--kill-on-bad-exit=0", "--wait=600", "--cpus-per-task=4"]
    options = check_train(words[begin + 1 : len(words) - requeued])
    assert options["strategy"] == "multiworker"
    assert "env.threads=4" in options["set_"]


def test_bash_can_read_the_batch_script() -> None:
    subprocess.run(["bash", "-n", SLURM], check=True, timeout=300)


# --- the image ----------------------------------------------------------------------------------------------


def test_the_image_copies_what_is_there() -> None:
    lines = (FOLDER / "Dockerfile").read_text(encoding="utf-8").splitlines()
    sources = [word for line in lines if line.startswith("COPY ") for word in line.split()[1:-1]]
    root = FOLDER.parents[1]
    assert all((root / source).exists() for source in sources)
    # what pyproject.toml itself reads
    assert {"pyproject.toml", "README.md", "LICENSE", "configs", "a2c"} == set(sources)
