"""Plots two policies: EASY backfilling of the library, and a queue in Python that prefers short jobs.

    python plot_two_policies.py [two_policies.svg]

The cells (# %%) are those of a notebook: editors such as VS Code and Spyder run them one by one, and
jupytext makes a notebook of the file.

SPDX-License-Identifier: MIT
"""

# %% 2,000 jobs for twelve servers with eight GPUs each; times are in milliseconds.
import sys

import apiary
import numpy as np

generator = np.random.default_rng(7)
hour = 3_600_000
jobs = apiary.JobTable(
    arrival=np.sort(generator.integers(0, 24 * hour, 2000)),
    duration=generator.lognormal(13.6, 1.2, 2000).astype(np.int64),
    gpus=generator.choice([1, 2, 4, 8, 16], 2000, p=[0.5, 0.15, 0.15, 0.15, 0.05]),
)
servers = apiary.Servers([8] * 12)


# %% A policy in Python: whenever something happens, the shortest waiting jobs that fit start.
class ShortestFirst:
    def __init__(self, servers):
        self.servers = servers
        self.total_gpus = servers.total_gpus
        self.waiting = []

    def submit(self, job, now):
        self.waiting.append(job)

    def finish(self, job, now):
        self.servers.finish(job)

    def decide(self, now):
        actions = []
        for job in sorted(self.waiting, key=lambda job: (job.estimate, job.job)):
            where = self.servers.propose(job)
            if where is not None:
                self.servers.commit(job, where)
                self.waiting.remove(job)
                actions.append(apiary.Action.start(job.job, where))
        return actions


# %% Both run in the simulator.
runs = {
    "EASY": apiary.simulate(apiary.BatchQueue(servers, rule="easy"), jobs),
    "shortest first": apiary.simulate(ShortestFirst(servers.copy()), jobs),
}
for name, run in runs.items():
    waits = np.percentile(run.waited, [50, 95]) / 60_000
    print(f"{name:15}  median wait {waits[0]:6.1f} min  95 % {waits[1]:6.1f} min  GPUs in use {run.utilization:.1%}")


# %% How many jobs wait, over time.
def waiting(run):
    """The number of waiting jobs at each time of the axis."""
    return np.searchsorted(jobs.arrival, axis, "right") - np.searchsorted(np.sort(run.started), axis, "right")


axis = np.linspace(0, max(run.ended.max() for run in runs.values()), 600)
curves = {name: waiting(run) for name, run in runs.items()}

# %% The picture, without any other package.
width, height, left = 800, 300, 50
highest = max(curve.max() for curve in curves.values())
parts = [
    f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + left + 20}" height="{height + 60}"'
    ' font-family="sans-serif" font-size="13">',
    f'<path d="M{left},10 V{height + 10} H{left + width}" fill="none" stroke="black"/>',
    f'<text x="{left + width / 2}" y="{height + 45}" text-anchor="middle">hours</text>',
    f'<text x="15" y="{height / 2}" transform="rotate(-90 15 {height / 2})" text-anchor="middle">waiting jobs</text>',
    f'<text x="{left - 5}" y="20" text-anchor="end">{highest}</text>',
]
for tick in range(0, int(axis[-1] / hour) + 1, 6):
    x = left + width * tick * hour / axis[-1]
    parts.append(f'<text x="{x:.1f}" y="{height + 27}" text-anchor="middle">{tick}</text>')
for (name, curve), colour, y in zip(curves.items(), ("#c0392b", "#2471a3"), (30, 50)):
    points = " ".join(
        f"{left + width * at / axis[-1]:.1f},{10 + height * (1 - count / highest):.1f}" for at, count in zip(axis, curve)
    )
    parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2"/>')
    parts.append(f'<text x="{left + 20}" y="{y}" fill="{colour}">{name}</text>')
target = sys.argv[1] if len(sys.argv) > 1 and sys.argv[1].endswith(".svg") else "two_policies.svg"
with open(target, "w") as file:
    file.write("\n".join([*parts, "</svg>", ""]))
print(f"the picture is in {target}")
