"""Several launchers that meet, as on several machines: by fixed numbers and through a store, with failures."""

import signal
import socket
import time

from launching import Program

WORK = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
ranks = dist.get_world_size()
say("begin", dist.get_rank(), ranks, attempt, os.environ["GROUP_RANK"], os.environ["LOCAL_RANK"])
steps, dies = int(sys.argv[1]), len(sys.argv) > 2 and not os.path.exists("died")
for step in range(steps):
    x = torch.ones(3)
    dist.all_reduce(x)
    assert x[0] == ranks
    if dies and step == 5 and rank == ranks - 1:
        open("died", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.01)
say("end", dist.get_rank(), ranks)
dist.destroy_process_group()
"""


def _free_port():
    with socket.socket() as made:
        made.bind(("localhost", 0))
        return made.getsockname()[1]


def _launch(program, *machines, arguments):
    """Run a launcher for each list of options. Returns their exit codes and the lines of all, sorted."""
    processes = [program.start(*options, arguments=arguments) for options in machines]
    try:
        outputs = [process.communicate(timeout=90) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    assert program.left_behind() == []
    lines = sorted(line for output, _ in outputs for line in output.splitlines())
    return [process.returncode for process in processes], lines, "\n".join(errors for _, errors in outputs)


def test_machines_of_fixed_numbers_start_again_after_a_failure(tmp_path):
    common = ["--nnodes=2", "--max-restarts=2", f"--master-port={_free_port()}", "--master-addr=127.0.0.1"]
    codes, lines, errors = _launch(
        Program(tmp_path, WORK),
        [*common, "--node-rank=0", "--nproc-per-node=2"],
        [*common, "--node-rank=1", "--nproc-per-node=1"],
        arguments=["30", "die"],
    )
    assert codes == [0, 0], errors
    first = ["begin 0 3 0 0 0", "begin 1 3 0 0 1", "begin 2 3 0 1 0"]
    assert lines == sorted(
        [*first, *(line.replace(" 3 0 ", " 3 1 ") for line in first), "end 0 3", "end 1 3", "end 2 3"]
    )
    assert "Signal 9 (SIGKILL)" in errors


def _elastic(port, nodes):
    conf = "keep_alive_interval=1,keep_alive_max_attempt=6,last_call_timeout=1"
    return [
        f"--nnodes={nodes}", "--max-restarts=2", "--rdzv-backend=c10d", f"--rdzv-endpoint=localhost:{port}", "--rdzv-id=run",
        "--rdzv-conf", conf,
    ]  # fmt: skip


def test_machines_that_meet_in_a_store_start_again_after_a_failure(tmp_path):
    options = _elastic(_free_port(), "2")
    codes, lines, errors = _launch(Program(tmp_path, WORK), options, options, arguments=["30", "die"])
    assert codes == [0, 0], errors
    assert [line for line in lines if line.startswith("end")] == ["end 0 2", "end 1 2"]
    # Only the machine whose process died has used up a restart.
    assert sorted(line.split()[3] for line in lines if line.startswith("begin")) == ["0", "0", "0", "1"]


def test_a_run_goes_on_without_a_machine_that_is_lost(tmp_path):
    options, program = _elastic(_free_port(), "1:2"), Program(tmp_path, WORK)
    stays = program.start(*options, arguments=["100"])
    lost = None
    try:
        program.wait_for(0)
        time.sleep(0.5)
        lost = program.start(*options, arguments=["100"])
        lines = []
        while not any(line.startswith("begin 0 2") or line.startswith("begin 1 2") for line in lines):
            lines.append(stays.stdout.readline())
            assert lines[-1], "the machines have not met"
        time.sleep(0.2)
        lost.send_signal(signal.SIGKILL)
        output, errors = stays.communicate(timeout=60)
    finally:
        for process in filter(None, (stays, lost)):
            process.kill()
            process.communicate()
    assert stays.returncode == 0, errors
    assert output.splitlines()[-1] == "end 0 1" and program.left_behind() == []
