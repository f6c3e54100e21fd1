"""The simulator with a policy in Python, which makes the same run as the same policy of the library.

SPDX-License-Identifier: MIT
"""

import os
import pathlib
import runpy
import sys
import tempfile
import unittest

import apiary
import numpy as np

EXAMPLE = pathlib.Path(os.environ["APIARY_SOURCE_DIR"]) / "examples/hosts/python/plot_two_policies.py"


class Fifo:
    """First come, first served; the first job that does not fit blocks all others."""

    def __init__(self, servers):
        self.servers = servers
        self.total_gpus = servers.total_gpus
        self.waiting = []
        self.running = {}
        self.calls = 0

    def submit(self, job, now):
        self.waiting.append(job)

    def finish(self, job, now):
        self.servers.finish(job)
        del self.running[job]

    def decide(self, now):
        self.calls += 1
        actions = []
        while self.waiting:
            job = self.waiting[0]
            where = self.servers.propose(job)
            if where is None:
                break
            self.servers.commit(job, where)
            self.running[job.job] = self.waiting.pop(0)
            actions.append(apiary.Action.start(job.job, where))
        return actions

    def mark_bad(self, server, now):
        self.servers.mark_bad(server)
        stopped = self.servers.jobs_on(server)
        for job in reversed(stopped):
            self.waiting.insert(0, self.running.pop(job))
            self.servers.finish(job)
        return stopped

    def mark_healthy(self, server, now):
        self.servers.mark_healthy(server)


def some_jobs(seed=1, n=300):
    generator = np.random.default_rng(seed)
    return apiary.JobTable(
        arrival=np.sort(generator.integers(0, 3_600_000, n)),
        duration=generator.integers(1000, 400_000, n),
        gpus=generator.choice([1, 2, 4, 8, 16], n),
    )


class Simulator(unittest.TestCase):
    def test_same_run_as_the_queue_of_the_library(self):
        for seed in range(5):
            jobs = some_jobs(seed)
            servers = apiary.Servers([8] * 6)
            expected = apiary.simulate(apiary.BatchQueue(servers, rule="fifo"), jobs)
            policy = Fifo(servers.copy())
            made = apiary.simulate(policy, jobs)
            self.assertEqual(made.digest, expected.digest)
            np.testing.assert_array_equal(made.started, expected.started)
            np.testing.assert_array_equal(made.ended, expected.ended)
            np.testing.assert_array_equal(made.waited, expected.waited)
            np.testing.assert_array_equal(made.waited, made.started - jobs.arrival)
            self.assertEqual(made.utilization, expected.utilization)
            self.assertEqual(made.mean_wait, made.waited.mean())
            self.assertGreater(made.mean_wait, 0)
            self.assertEqual(servers.idle_gpus, 48)  # the simulator has a copy of the queue
            self.assertGreater(policy.calls, len(jobs))

    def test_other_rules_make_other_runs(self):
        jobs = some_jobs()
        servers = apiary.Servers([8] * 6)
        runs = {
            (rule, order): apiary.simulate(apiary.BatchQueue(servers, rule=rule, order=order), jobs)
            for rule in ("fifo", "backfill", "easy")
            for order in ("arrival", "gpu_time")
        }
        self.assertEqual(len({run.digest for run in runs.values()}), 6)
        self.assertLess(runs["easy", "arrival"].mean_wait, runs["fifo", "arrival"].mean_wait)

    def test_failures(self):
        jobs = apiary.JobTable(arrival=[0, 0], duration=10_000, gpus=8)
        failing = [(0, 4000, 6000)]
        result = apiary.simulate(Fifo(apiary.Servers([8, 8])), jobs, outages=failing)
        self.assertEqual(result.ended.tolist(), [16_000, 10_000])
        self.assertEqual(result.waited.tolist(), [2000, 0])
        again = apiary.simulate(
            apiary.BatchQueue(apiary.Servers([8, 8]), rule="fifo"), jobs, outages=failing
        )
        self.assertEqual(again.digest, result.digest)

    def test_suspension_and_wake(self):
        class TimeSlices(Fifo):
            """Two jobs on one server, each for 3 s at a time."""

            slice_end = None

            def decide(self, now):
                actions = []
                if self.running and self.slice_end is not None and now >= self.slice_end and self.waiting:
                    (job, record), = self.running.items()
                    actions.append(apiary.Action.suspend(job))
                    self.finish(job, now)
                    self.waiting.append(record)
                started = super().decide(now)
                if started:
                    self.slice_end = now + 3000
                elif not self.waiting:
                    self.slice_end = None
                self.now = now
                return actions + started

            def wake(self):
                return self.slice_end if self.waiting and self.running else None

        jobs = apiary.JobTable(arrival=[0, 0], duration=[5000, 4000], gpus=8)
        result = apiary.simulate(TimeSlices(apiary.Servers([8])), jobs)
        self.assertEqual(result.ended.tolist(), [8000, 9000])
        self.assertEqual(result.suspended.tolist(), [1, 1])
        self.assertEqual(result.waited.tolist(), [3000, 5000])

    def test_limits_of_a_run(self):
        jobs = apiary.JobTable(arrival=[0, 0], duration=10_000, gpus=8)
        result = apiary.simulate(Fifo(apiary.Servers([8])), jobs, until=12_000, start_cost=1000)
        self.assertEqual(result.started.tolist(), [0, 11_000])
        self.assertEqual(result.ended.tolist(), [11_000, -1])

    def test_wrong_policies(self):
        jobs = some_jobs(n=3)

        class Raises(Fifo):
            def decide(self, now):
                raise RuntimeError("no idea")

        class NoList(Fifo):
            def decide(self, now):
                return ["start"]

        class StartsTwice(Fifo):
            def decide(self, now):
                return super().decide(now) * 2

        class Sleeps(Fifo):
            def wake(self):
                return 0

        def run(policy):
            return apiary.simulate(policy(apiary.Servers([8] * 2)), jobs)

        with self.assertRaisesRegex(RuntimeError, "no idea"):
            run(Raises)
        with self.assertRaisesRegex(TypeError, "a list with a str"):
            run(NoList)
        with self.assertRaises(apiary.Error):
            run(StartsTwice)
        with self.assertRaises(apiary.Error):
            run(Sleeps)
        with self.assertRaises(AttributeError):
            apiary.simulate(object(), jobs)

    def test_wrong_jobs_and_servers(self):
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "sort the jobs by arrival"):
            apiary.JobTable(arrival=[1, 0], duration=1, gpus=1)
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "duration is -1 in row 0"):
            apiary.JobTable(arrival=[0], duration=[-1], gpus=1)
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "the limit is 16"):
            apiary.Servers([17])
        with self.assertRaisesRegex(apiary.InvalidArgumentError, 'rule is "lifo"'):
            apiary.BatchQueue(apiary.Servers([8]), rule="lifo")
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "order is"):
            apiary.BatchQueue(apiary.Servers([8]), order="size")
        with self.assertRaises(apiary.NotFoundError):
            apiary.Servers([8]).finish(1)


class Plot(unittest.TestCase):
    def test_script(self):
        """The script draws both policies, the same ones each time."""
        with tempfile.TemporaryDirectory() as folder:
            pictures = []
            for name in ("a.svg", "b.svg"):
                file = pathlib.Path(folder) / name
                arguments = sys.argv
                sys.argv = [str(EXAMPLE), str(file)]
                try:
                    runpy.run_path(str(EXAMPLE), run_name="__main__")
                finally:
                    sys.argv = arguments
                pictures.append(file.read_text())
        self.assertEqual(pictures[0], pictures[1])
        self.assertEqual(pictures[0].count("<polyline"), 2)
        self.assertIn("EASY", pictures[0])


if __name__ == "__main__":
    unittest.main()
