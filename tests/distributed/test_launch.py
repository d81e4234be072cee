"""mica launch and torchrun: what processes are told, what happens to their output, how they end."""

import json
import os
import signal
import sysconfig
from pathlib import Path

import pytest
from launching import Program

# The variables that torchrun of torch 2.13 sets for `torchrun --nproc-per-node 2`, without those that differ from run
# to run.
VARIABLES = {
    "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "OMP_NUM_THREADS": "1",
    "ROLE_NAME": "default", "ROLE_WORLD_SIZE": "2", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RESTART_COUNT": "0",
    "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT", "TORCHELASTIC_USE_AGENT_STORE": "True",
    "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1", "WORLD_SIZE": "2",
}  # fmt: skip
BY_RANK = ("RANK", "LOCAL_RANK", "ROLE_RANK")
OTHERS = ("MASTER_PORT", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_RUN_ID")

SHOW = """
import torch
names = [n for n in os.environ if n.startswith(("TORCH", "OMP_")) or n in sys.argv[1].split(",")]
say(json.dumps([{n: os.environ[n] for n in names}, torch.__version__, sys.argv[2:]]))
"""


def test_processes_are_told_what_torchrun_tells_them(tmp_path):
    names = ",".join([*VARIABLES, *BY_RANK, *OTHERS])
    done = Program(tmp_path, SHOW).run("--nproc-per-node=2", arguments=[names, "--epochs", "3"])
    said = sorted((json.loads(line) for line in done.stdout_text.splitlines()), key=lambda each: each[0]["RANK"])
    assert done.returncode == 0 and len(said) == 2, done.stderr_text
    for rank, (variables, version, arguments) in enumerate(said):
        assert "mica" in version and arguments == ["--epochs", "3"]
        assert {name: variables[name] for name in BY_RANK} == dict.fromkeys(BY_RANK, str(rank))
        assert variables["TORCHELASTIC_ERROR_FILE"].endswith(f"attempt_0/{rank}/error.json")
        assert (
            not Path(variables["TORCHELASTIC_ERROR_FILE"]).parents[3].exists()
        )  # nothing is left in the folder for temporary files
        assert int(variables["MASTER_PORT"]) > 0
        told = {name: value for name, value in variables.items() if name in VARIABLES or os.environ.get(name) != value}
        rest = {name: value for name, value in told.items() if name not in (*BY_RANK, *OTHERS)}
        assert rest == VARIABLES
    assert len({each[0]["TORCHELASTIC_RUN_ID"] for each in said}) == 1


def test_a_failure_names_the_rank_that_failed_first_and_shows_its_traceback(tmp_path):
    program = Program(
        tmp_path,
        "import torch.distributed\n"
        "if rank == 1: raise ValueError('no such thing')\n"
        "time.sleep(60)\n",
    )  # fmt: skip
    done = program.run("--nproc-per-node=3", "--log-dir", str(tmp_path / "logs"))
    assert done.returncode == 1
    root = done.stderr_text.partition("Root Cause (first observed failure):")[2]
    assert "rank      : 1 (local_rank: 1)" in root and "ValueError: no such thing" in root and "program.py" in root
    assert "program.py FAILED" in done.stderr_text and "launcher/api.py" not in done.stderr_text
    (error,) = (tmp_path / "logs").glob("*/attempt_0/1/error.json")
    message = json.loads(error.read_text())["message"]
    assert message["message"] == "ValueError: no such thing" and int(message["extraInfo"]["timestamp"])


def test_all_processes_start_again_after_one_has_failed(tmp_path):
    program = Program(
        tmp_path,
        "say(rank, attempt, os.environ['TORCHELASTIC_MAX_RESTARTS'])\n"
        "if attempt < 2 and rank == 1: os.kill(os.getpid(), signal.SIGKILL)\n"
        "time.sleep(60 if attempt < 2 else 0)\n",
    )  # fmt: skip
    done = program.run("--nproc-per-node=2", "--max-restarts=3")
    assert done.returncode == 0, done.stderr_text
    assert {"0 2 3", "1 2 3"} <= set(done.stdout_text.splitlines())
    assert "rank 1" in done.stderr_text and "Signal 9 (SIGKILL)" in done.stderr_text
    assert "2/3 attempts left" in done.stderr_text and "1/3 attempts left" not in done.stderr_text


def test_no_more_restarts_than_asked_for(tmp_path):
    done = Program(tmp_path, "sys.exit(7)\n").run("--nproc-per-node=1", "--max-restarts=1")
    assert done.returncode == 1 and "exitcode  : 7" in done.stderr_text and done.stderr_text.count("attempts left") == 1


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_passed_on(tmp_path, sent):
    program = Program(
        tmp_path,
        "def tell(number, frame):\n"
        "    open(f'told_{rank}_{number}', 'w').close(); sys.exit(0)\n"
        f"signal.signal({int(sent)}, tell)\n"
        "open(f'ready_{rank}', 'w').close()\n"
        "time.sleep(60)\n",
    )  # fmt: skip
    process = program.start("--nproc-per-node=2")
    try:
        program.wait_for(2)
        while len(list(tmp_path.glob("ready_*"))) < 2:
            pass
        process.send_signal(sent)
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert process.returncode == 1 and program.left_behind() == []
    assert sorted(each.name for each in tmp_path.glob("told_*")) == [f"told_0_{int(sent)}", f"told_1_{int(sent)}"]


def test_processes_that_do_not_listen_are_killed_after_a_time(tmp_path):
    program = Program(tmp_path, "signal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen('ready', 'w')\ntime.sleep(60)\n")
    process = program.start("--shutdown-timeout=1")
    try:
        while not (tmp_path / "ready").exists():
            pass
        process.terminate()
        process.communicate(timeout=20)
    finally:
        process.kill()
    assert program.left_behind() == []


def test_processes_end_with_a_launcher_that_is_killed(tmp_path):
    program = Program(tmp_path, "time.sleep(60)\n")
    process = program.start("--nproc-per-node=2")
    try:
        program.wait_for(2)
    finally:
        process.kill()
        process.communicate(timeout=20)
    assert program.left_behind() == []


def test_what_a_failed_process_has_started_ends_with_it(tmp_path):
    program = Program(
        tmp_path,
        "if os.fork() == 0:\n"
        "    open(f'pid_{os.getpid()}', 'w').close(); time.sleep(60)\n"
        "while len(os.listdir('.')) < 3: time.sleep(0.01)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n",
    )  # fmt: skip
    done = program.run()
    assert done.returncode == 1 and len(program.pids()) == 2


# ---- output


def test_output_of_ranks_goes_where_it_is_told_to(tmp_path):
    program = Program(
        tmp_path,
        "print(f'out {rank}')\nprint('an apple')\nprint(f'err {rank}', file=sys.stderr)\nprint('end', end='')\n",
    )
    logs = tmp_path / "logs"
    done = program.run(
        "--nproc-per-node=2", "-r", "0:3", "-t", "1:1", "--log-dir", str(logs), "--duplicate-stdout-filters=apple"
    )
    (folder,) = logs.glob("*/attempt_0")
    assert (folder / "0/stdout.log").read_text() == "out 0\nan apple\nend"
    assert (folder / "0/stderr.log").read_text() == "err 0\n"
    assert (folder / "1/stdout.log").read_text() == "out 1\nan apple\nend"
    assert not (folder / "1/stderr.log").exists() and "err 1" in done.stderr_text
    assert done.stdout_text.splitlines() == ["[default1]:out 1", "[default1]:an apple", "[default1]:end"]
    assert (folder / "filtered_stdout.log").read_text() == "[default1]:an apple\n"


def test_only_some_ranks_are_shown(tmp_path):
    done = Program(tmp_path, "print(f'out {rank}')\n").run("--nproc-per-node=2", "--local-ranks-filter=1")
    assert done.stdout_text == "out 1\n"


# ---- forms of the command


def test_modules_commands_and_forks(tmp_path):
    program = Program(tmp_path, "print('as', __name__, sys.argv[1:])\n")
    assert program.run("-m", "program", "x").stdout_text.startswith("as __main__ ['x'")
    assert program.run("--no-python", "/bin/echo", "here").stdout_text.startswith("here ")
    assert program.run("--run-path", arguments=["y"]).stdout_text == "as __main__ ['y']\n"


def test_options_come_from_the_environment_too(tmp_path):
    done = Program(tmp_path, "say(rank)\n").run(PET_NPROC_PER_NODE="2", PET_MAX_RESTARTS="1")
    assert sorted(done.stdout_text.split()) == ["0", "1"]


def test_the_launcher_of_old_passes_the_local_rank(tmp_path):
    program = Program(tmp_path, "print(sys.argv[1:])\n")
    old = ("mica", "run", "-m", "torch.distributed.launch")
    assert program.run("--nproc_per_node=1", command=old, arguments=["z"]).stdout_text == "['--local-rank=0', 'z']\n"
    assert program.run("--use_env", command=old, arguments=["z"]).stdout_text == "['z']\n"


def test_torchrun_by_its_module_starts_processes_whose_torch_is_mica(tmp_path):
    program = Program(tmp_path, "import torch\nprint(torch.__version__, torch.__name__)\n")
    done = program.run("--standalone", command=("mica", "run", "-m", "torch.distributed.run"))
    assert "mica" in done.stdout_text and done.returncode == 0, done.stderr_text


def test_bad_options_are_refused(tmp_path):
    from mica.distributed import run

    for options, text in [
        (["--nnodes", "1:2:3"], 'is not in "MIN:MAX" format'),
        (["--nnodes", "2:1"], "min_nodes must be > 0 and <= max_nodes"),
        (["--max-restarts", "-1"], "max_restarts must be >= 0"),
        (["--nproc-per-node", "many"], "Unsupported nproc_per_node value: many"),
        (["--redirects", "5"], "does not match"),
        (["--local-ranks-filter", "a"], "comma-separated list of integers"),
        (["--rdzv-conf", "a"], "must have a value specified"),
        (["--rdzv-backend", "pigeon"], "is not registered"),
        (["--rdzv-backend", "etcd"], "not in Mica"),
        (["--no-python", "-m"], "Don't use both"),
        (["--numa-binding", "node"], "not in Mica yet"),
    ]:
        with pytest.raises((RuntimeError, AssertionError, ValueError), match=text):
            run.main(["--log-dir", str(tmp_path), *options, "program.py"])
    with pytest.raises(SystemExit):
        run.main(["--no-such"])


def test_the_alias_brings_torchrun_and_takes_it_away(tmp_path, monkeypatch):
    from mica._cli import alias

    paths = {"purelib": tmp_path / "site", "platlib": tmp_path / "site", "scripts": tmp_path / "bin"}
    for path in set(paths.values()):
        path.mkdir()
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(paths[name]))
    alias.turn_on(str(paths["purelib"]))
    torchrun = tmp_path / "bin" / "torchrun"
    assert os.access(torchrun, os.X_OK) and "mica.distributed.run" in torchrun.read_text()
    assert "bin/torchrun" in next(paths["purelib"].glob("torch-*/RECORD")).read_text()
    alias.turn_off(str(paths["purelib"]))
    assert not torchrun.exists()
    torchrun.write_text("of somebody else")
    alias.turn_on(str(paths["purelib"]))
    alias.turn_off(str(paths["purelib"]))
    assert torchrun.read_text() == "of somebody else"


def test_the_command_explains_itself(capsys):
    from mica import cli

    for words in (["launch", "--help"], ["help", "launch"]):
        cli.main(words)
        assert capsys.readouterr().out.startswith("usage: mica launch [options] script.py")
    cli.main(["launch", "--help-options"])
    shown = capsys.readouterr().out
    assert all(
        f"--{name}" in shown for name in ("nnodes", "rdzv-endpoint", "max-restarts", "tee", "virtual-local-rank")
    )
    with pytest.raises(SystemExit) as caught:
        cli.main(["launch"])
    assert caught.value.code == 2 and "usage: mica launch" in capsys.readouterr().err
