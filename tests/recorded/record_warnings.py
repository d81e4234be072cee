"""Records the warnings that torch gives for the cases of warning_cases.py in warnings.json.

Run with a Python that has torch and numpy: `python tests/recorded/record_warnings.py`.
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).parent


def main():
    done = subprocess.run(
        [sys.executable, HERE / "warning_cases.py", "torch"], stdout=subprocess.PIPE, text=True, check=True
    )
    runs = json.loads(done.stdout)
    failed = {name: first for name, (first, _) in runs.items() if first and first[0][0] == "error"}
    assert not failed, failed
    # Holds only cases with a warning; a case that is not named here has none.
    said = {name: {"first": first, "again": again} for name, (first, again) in runs.items() if first or again}
    (HERE / "warnings.json").write_text(json.dumps(said, indent=1) + "\n")


if __name__ == "__main__":
    main()
