"""How much faster is apiary than a prototype in plain Python? Both run the same tasks and decide the same.

python3 compare_with_plain_python.py                          a generated trace like openb
python3 compare_with_plain_python.py --openb FOLDER           Alibaba's openb trace, in its published order
python3 compare_with_plain_python.py --tasks 2000             only the first 2,000 tasks

SPDX-License-Identifier: MIT
"""

import argparse
import pathlib
import time

import apiary
from plain_python import PlainBestFit, PlainFgd


def measure(scheduler, tasks):
    """The decisions, and the seconds of CPU time that they took."""
    start = time.process_time()
    node, gpu_mask = scheduler.place(tasks)
    seconds = time.process_time() - start
    return list(node), list(gpu_mask), seconds


def compare(nodes, tasks, report=print):
    """Prints a row for each policy. Returns how much faster each is, by name, if it decides the same."""
    mix = apiary.TaskMix.from_history(tasks)
    policies = {
        "FGD": (PlainFgd(nodes, mix), apiary.Fgd(nodes, mix)),
        "best fit": (PlainBestFit(nodes), apiary.BestFit(nodes)),
    }
    report(f"{len(tasks)} tasks, {len(nodes)} nodes, {int(nodes.gpus.sum())} GPUs")
    report(f"{'policy':10} {'plain Python':>13} {'apiary':>10} {'faster':>9}  decisions")
    faster = {}
    for name, (plain, fast) in policies.items():
        *expected, slow_seconds = measure(plain, tasks)
        *decided, seconds = measure(fast, tasks)
        same = sum(a == b for a, b in zip(zip(*expected), zip(*decided)))
        ratio = slow_seconds / seconds
        report(f"{name:10} {slow_seconds:11.2f} s {seconds:8.4f} s {ratio:7.0f} x  {same} of {len(tasks)} equal")
        faster[name] = ratio if same == len(tasks) else 0.0
    return faster


def main():
    arguments = argparse.ArgumentParser(description="Compares apiary with plain Python.")
    arguments.add_argument("--openb", type=pathlib.Path, help="the folder of the openb trace")
    arguments.add_argument("--tasks", type=int, help="take only so many tasks")
    chosen = arguments.parse_args()
    if chosen.openb is None:
        nodes, tasks = apiary.generate_openb()
    else:
        nodes, tasks = apiary.read_openb(
            str(chosen.openb / "openb_node_list_gpu_node.csv"),
            str(chosen.openb / "openb_pod_list_default.csv"),
            str(chosen.openb / "arrivals/default_42_nodes.txt"),
            str(chosen.openb / "arrivals/default_42_pods.txt"),
        )
    compare(nodes, tasks if chosen.tasks is None else tasks.head(chosen.tasks))


if __name__ == "__main__":
    main()
