"""The schedulers of tasks: their decisions are those of plain Python, their errors are exceptions.

SPDX-License-Identifier: MIT
"""

import unittest

import apiary
import numpy as np
from compare_with_plain_python import compare
from plain_python import PlainBestFit, PlainFgd


def two_nodes():
    return apiary.NodeTable(cpu_milli=32_000, memory_mib=0, gpus=[2, 2])


def halves_and_wholes():
    tasks = apiary.TaskTable(cpu_milli=[4000, 8000], gpus=1, gpu_milli=[500, 1000])
    return apiary.TaskMix(tasks, [6, 4])


class Decisions(unittest.TestCase):
    def test_program_of_readme(self):
        """The six jobs of README.md go where they go in C++."""
        scheduler = apiary.Fgd(two_nodes(), halves_and_wholes())
        decided = []
        for job in range(6):
            task = apiary.Task(job=job, cpu_milli=4000, gpus=1, gpu_milli=500 if job % 2 == 0 else 1000)
            plan = scheduler.propose(task)
            if plan.result == "bind":
                scheduler.commit(task, plan)
            decided.append((plan.where.node, plan.where.gpus) if plan.where else plan.result)
        self.assertEqual(decided, [(0, [0]), (0, [1]), (0, [0]), (1, [0]), (1, [1]), "wait"])
        self.assertEqual(scheduler.num_running, 5)

    def test_plain_python_decides_the_same(self):
        for seed in range(3):
            nodes, tasks = apiary.generate_openb(seed=seed, nodes=40)
            mix = apiary.TaskMix.from_history(tasks)
            for plain, fast in (
                (PlainFgd(nodes, mix), apiary.Fgd(nodes, mix)),
                (PlainBestFit(nodes), apiary.BestFit(nodes)),
            ):
                node, gpu_mask = fast.place(tasks)
                expected_node, expected_mask = plain.place(tasks)
                self.assertEqual(node.tolist(), expected_node)
                self.assertEqual(gpu_mask.tolist(), expected_mask)
                self.assertIn(-1, expected_node)  # the cluster was full at the end

    def test_the_comparison_notices_a_difference(self):
        nodes, tasks = apiary.generate_openb(nodes=10)
        score = PlainBestFit.score
        try:
            PlainBestFit.score = lambda self, *task: (1, score(self, *task)[1])
            faster = compare(nodes, tasks, report=lambda line: None)
        finally:
            PlainBestFit.score = score
        self.assertGreater(faster["FGD"], 0.0)
        self.assertEqual(faster["best fit"], 0.0)

    def test_arrays_show_what_is_left(self):
        scheduler = apiary.BestFit(two_nodes())
        tasks = apiary.TaskTable(cpu_milli=[1000, 2000], gpus=1, gpu_milli=[300, 1000], job=[7, 9])
        node, gpu_mask = scheduler.place(tasks)
        self.assertEqual((node.dtype, gpu_mask.dtype), (np.int32, np.uint32))
        nodes = scheduler.nodes
        self.assertEqual(nodes.cpu_left.tolist(), [29_000, 32_000])
        self.assertEqual(nodes.gpu_left[0, :3].tolist(), [700, 0, 0])
        self.assertEqual(nodes.gpu_left.shape, (2, apiary.MAX_GPUS_PER_NODE))
        self.assertEqual(scheduler.find(9), apiary.Placement(0, 0b10))
        self.assertIsNone(scheduler.find(8))
        nodes.cpu_left[0] = 0  # a copy
        self.assertEqual(scheduler.nodes.cpu_left[0], 29_000)

    def test_bad_nodes_and_copies(self):
        scheduler = apiary.BestFit(two_nodes())
        scheduler.mark_bad(0)
        self.assertEqual(scheduler.nodes.healthy.tolist(), [False, True])
        task = apiary.Task(job=1, gpus=2)
        self.assertEqual(scheduler.propose(task).where.node, 1)
        before = scheduler.copy()
        scheduler.recover(task, apiary.Placement(0, 0b11))
        self.assertEqual((before.num_running, scheduler.num_running), (0, 1))
        scheduler.mark_bad(1)
        plan = before.propose(task)
        self.assertEqual(scheduler.propose(task).reason, "it would fit if all nodes and GPUs were healthy")
        scheduler.mark_healthy(1)
        scheduler.finish(1)
        scheduler.commit(task, plan)
        self.assertEqual(scheduler.find(1).node, 1)

    def test_fragmentation(self):
        nodes = two_nodes()
        scheduler = apiary.Fgd(nodes, halves_and_wholes())
        scheduler.commit(apiary.Task(job=1, gpus=1, gpu_milli=600), apiary.Placement(0, 0b1))
        # 400 thousandths are left, too few for both kinds
        self.assertEqual(scheduler.nodes.fragmentation(halves_and_wholes()).tolist(), [400.0, 0.0])


class Errors(unittest.TestCase):
    def error(self, kind, call, *arguments, **named):
        with self.assertRaises(kind) as raised:
            call(*arguments, **named)
        self.assertIsInstance(raised.exception, apiary.Error)
        return str(raised.exception)

    def test_texts_of_the_library(self):
        scheduler = apiary.BestFit(two_nodes())
        task = apiary.Task(job=3, gpus=2)
        plan = scheduler.propose(task)
        scheduler.commit(task, plan)
        self.assertEqual(self.error(apiary.NotFoundError, scheduler.finish, 4), "job 4 does not run")
        self.error(LookupError, scheduler.mark_bad, 2)
        self.error(apiary.AlreadyExistsError, scheduler.commit, task, plan)
        other = apiary.Task(job=4, gpus=2)
        self.error(apiary.AbortedError, scheduler.commit, other, plan)
        self.error(apiary.InvalidArgumentError, scheduler.commit, apiary.Task(gpus=1), apiary.Placement(1, 1))
        self.error(ValueError, apiary.BestFit, apiary.NodeTable(cpu_milli=[], memory_mib=[], gpus=[]))
        scheduler.mark_bad(1)
        self.error(apiary.InvalidArgumentError, scheduler.commit, other, scheduler.propose(other))
        self.assertIn("GPU", scheduler.explain(apiary.Task(gpus=3)))

    def test_wrong_tables(self):
        def nodes(**columns):
            return self.error(
                ValueError, apiary.NodeTable, **{"cpu_milli": 1, "memory_mib": 1, "gpus": 1, **columns}
            )

        self.assertEqual(nodes(gpus=[8, 17]), "gpus is 17 in row 1; it must be from 0 to 16")
        self.assertEqual(nodes(cpu_milli=[-1]), "cpu_milli is -1 in row 0; it must be from 0 to 4294967295")
        self.assertEqual(nodes(model=64), "model is 64 in row 0; it must be from 0 to 63")
        self.assertEqual(nodes(gpus=[1, 2], model=[0, 1, 2]), "model has 3 values, gpus has 2")
        for wrong in (0.5, [0.5], [[1]], "4", None, [None]):
            self.assertIn("gpus is not one integer", nodes(gpus=wrong))
        self.assertIn("gpus is neither a number nor a list", nodes(gpus=[[1], [1, 2]]))

        def tasks(**columns):
            return self.error(ValueError, apiary.TaskTable, **{"cpu_milli": 1, "gpus": 1, **columns})

        self.assertIn("row 1: 2 GPUs with 500/1000", tasks(gpus=[1, 2], gpu_milli=500))
        self.assertIn("gpu_milli is 1001", tasks(gpu_milli=1001))
        self.error(ValueError, apiary.Task, gpus=1, gpu_milli=0)

    def test_numbers_out_of_range(self):
        def refused(name, number, most, call, *arguments, **named):
            text = f"{name} is {number}; it must be from 0 to {most}"
            self.assertEqual(self.error(ValueError, call, *arguments, **named), text)

        for name, most in (
            ("job", 2**32 - 2),  # the highest number is no id
            ("cpu_milli", 2**32 - 1),
            ("memory_mib", 2**32 - 1),
            ("gpus", 2**32 - 1),
            ("gpu_milli", 1000),
            ("models", 2**64 - 1),
        ):
            for number in (-1, most + 1, 10**30):
                refused(name, number, most, apiary.Task, **{name: number})
            self.assertEqual(getattr(apiary.Task(**{name: most}), name), most)
            for wrong in (1.0, "1", [1], np.array([1, 2])) + ((None,) if name != "job" else ()):
                with self.assertRaises(TypeError):
                    apiary.Task(**{name: wrong})
        with self.assertRaisesRegex(TypeError, "^gpus is of type float; it must be an integer$"):
            apiary.Task(gpus=0.5)
        self.assertEqual(apiary.Task(job=np.int64(3)).job, 3)

        most = 2**32 - 1
        refused("node", most, most - 1, apiary.Placement, most, 1)
        refused("gpu_mask", 2**32, most, apiary.Placement, 0, 2**32)
        scheduler = apiary.BestFit(two_nodes())
        for call in (scheduler.finish, scheduler.find):
            refused("job", -1, most - 1, call, -1)
        for call in (scheduler.mark_bad, scheduler.mark_healthy):
            refused("node", -1, most - 1, call, -1)
        tasks = apiary.TaskTable(cpu_milli=1, gpus=[1, 2])
        refused("coverage_percent", 101, 100, apiary.TaskMix.from_history, tasks, 101)
        refused("rows", -1, 2**64 - 1, tasks.head, -1)
        refused("seed", -1, 2**64 - 1, apiary.generate_openb, seed=-1)
        refused("nodes", -1, most, apiary.generate_openb, nodes=-1)
        refused("load_percent", -1, most, apiary.generate_openb, load_percent=-1)
        for row in (-1, 2):
            with self.assertRaisesRegex(IndexError, f"^row is {row}; the table has 2 rows$"):
                tasks[row]
        self.assertEqual(
            self.error(ValueError, apiary.TaskTable, cpu_milli=[0, 2**64], gpus=1),
            f"cpu_milli is {2**64} in row 1; it must be from 0 to {2**64 - 1}",
        )

    def test_weights_are_a_sequence(self):
        tasks = apiary.TaskTable(cpu_milli=1, gpus=[1, 2])
        for wrong in (1, np.int64(1), None, 0.5):
            with self.assertRaisesRegex(TypeError, "^weights is of type .*; it must be a sequence"):
                apiary.TaskMix(tasks, wrong)
        for right in ([1, 2], (1, 2), range(1, 3), np.array([1, 2])):
            self.assertEqual(apiary.TaskMix(tasks, right).weight.tolist(), [1, 2])

    def test_a_refused_table_changes_nothing(self):
        scheduler = apiary.BestFit(two_nodes())
        scheduler.place(apiary.TaskTable(cpu_milli=0, gpus=[1], job=[5]))
        again = apiary.TaskTable(cpu_milli=0, gpus=1, job=[1, 5])
        self.assertEqual(
            self.error(apiary.AlreadyExistsError, scheduler.place, again), "row 1: job 5 runs already"
        )
        twice = apiary.TaskTable(cpu_milli=0, gpus=1, job=[1, 2, 1])
        self.assertEqual(
            self.error(apiary.AlreadyExistsError, scheduler.place, twice), "row 2: job 1 is in row 0, too"
        )
        self.assertEqual(scheduler.num_running, 1)

    def test_wrong_mixes_and_files(self):
        tasks = apiary.TaskTable(cpu_milli=1, gpus=[1, 2])
        self.assertIn("3 values", self.error(ValueError, apiary.TaskMix, tasks, [1, 2, 3]))
        self.assertIn("sum", self.error(ValueError, apiary.TaskMix, tasks, [2**32 - 1, 1]))
        self.error(apiary.NotFoundError, apiary.read_openb, "/no/such/file", "/no/such/file")
        self.error(ValueError, apiary.generate_openb, nodes=0)


if __name__ == "__main__":
    unittest.main()
