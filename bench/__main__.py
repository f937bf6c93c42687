"""`python -m bench [--job NAME] [--quick]`: run the benchmarks, write `results.json` and the report from it.

The exit code is 0 even if a contender fails or a target is missed: the report shows both.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from bench import data, machine
from bench.jobs import JOBS, LIMITS
from bench.results import Results, job_result
from bench.run import run_job


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--job", action="append", choices=sorted(JOBS), help="only this job (may be repeated)")
    parser.add_argument("--quick", action="store_true", help="a quarter of the data and fewer rounds")
    parser.add_argument("--render", action="store_true", help="measure nothing, write the report from results.json")
    parser.add_argument("--records", type=int, help="records in a segment, to try the harness itself")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent, help="folder of the report")
    options = parser.parse_args()
    results = Results(options.out, JOBS)
    if options.render:
        results.render()
        return

    records = options.records or (data.QUICK_RECORDS if options.quick else data.RECORDS)
    rounds, passes = (2, 2) if options.quick else (5, 3)
    wanted = [JOBS[name] for name in options.job] if options.job else list(JOBS.values())

    # Compiled once, so that no measured command has to: `startup` measures the time to compile.
    subprocess.run([sys.executable, "-m", "bench.workers.kernels"], stdout=subprocess.DEVNULL, check=False)
    run = {
        "when": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
        "quick": options.quick,
        "records": records,
        "rounds": rounds,
        "machine": machine.describe(),
    }
    run["limits"] = job_result(LIMITS, run_job(LIMITS, rounds=rounds, records=records, passes=passes), {})
    for job in wanted:
        outcomes = run_job(job, rounds=rounds, records=records, passes=passes)
        results.put(job_result(job, outcomes, run))
        # After each job: it is kept if a later one is interrupted.
        results.render()
    print(f"wrote {results.folder / 'RESULTS.md'}", file=sys.stderr)


main()
