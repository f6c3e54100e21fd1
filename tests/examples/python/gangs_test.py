"""The schedulers of gangs: decisions, preemption, restarts, errors.

SPDX-License-Identifier: MIT
"""

import random
import unittest

import apiary
import numpy as np


def two_racks():
    return apiary.GangScheduler(gpus=[8] * 4, rack=[0, 0, 1, 1])


def start(scheduler, gang):
    plan = scheduler.propose(gang)
    scheduler.commit(plan)
    return plan


class GangSchedulerTest(unittest.TestCase):
    def test_gang_in_one_rack(self):
        scheduler = two_racks()
        plan = scheduler.propose(apiary.Gang(job=1, tasks=2, gpus=8, required="rack"))
        self.assertEqual(plan.result, "bind")
        self.assertEqual(plan.node.dtype, np.int32)
        self.assertEqual(plan.node.tolist(), [0, 1])
        self.assertEqual(plan.gpu_mask.tolist(), [255, 255])
        self.assertEqual(scheduler.num_gangs, 0)  # propose changes nothing
        scheduler.commit(plan)
        self.assertEqual(scheduler.free_gpus.tolist(), [0, 0, 8, 8])
        self.assertEqual(scheduler.jobs_on(1), [1])
        never = apiary.Gang(job=2, tasks=3, gpus=8, required="rack")
        plan = scheduler.propose(never)
        self.assertEqual((plan.result, plan.node.tolist()), ("wait", []))
        self.assertIn("would not fit even if", plan.reason)
        self.assertIn("rack", scheduler.explain(never))
        self.assertEqual(scheduler.audit(), [])

    def test_task_groups_and_anti_affinity(self):
        scheduler = two_racks()
        plan = start(scheduler, apiary.Gang(job=1, tasks=np.array([1, 2]), gpus=[4, 2]))
        self.assertEqual(len(plan.node), 3)
        spread = start(scheduler, apiary.Gang(job=2, tasks=3, gpus=1, max_per_node=1))
        self.assertEqual(sorted(spread.node.tolist()), [1, 2, 3])
        self.assertEqual(apiary.Gang(job=3, tasks=[1, 2], gpus=8).gpus.tolist(), [8, 8])

    def test_preemption(self):
        scheduler = two_racks()
        start(scheduler, apiary.Gang(job=1, tasks=4, gpus=8, priority=-1))
        owner = apiary.Gang(job=2, tasks=1, gpus=8, priority=5)
        plan = start(scheduler, owner)
        self.assertEqual((plan.result, plan.victims), ("preempt", [1]))
        self.assertEqual(scheduler.jobs_on(int(plan.node[0])), [1, 2])
        self.assertEqual(scheduler.free_gpus.tolist(), [0] * 4)  # both have the same GPUs
        scheduler.finish(1)
        plan = start(scheduler, owner)
        self.assertEqual((plan.result, plan.victims), ("bind", []))
        self.assertEqual(scheduler.audit(), [])

    def test_restart(self):
        """A scheduler that recovers the running gangs decides as the one before."""
        generator = random.Random(1)
        scheduler = two_racks()
        running = {}
        for job in range(60):
            if running and generator.random() < 0.4:
                ended = generator.choice(sorted(running))
                scheduler.finish(ended)
                del running[ended]
            gang = apiary.Gang(job=job, tasks=generator.randint(1, 2), gpus=generator.choice([1, 2, 4, 8]))
            plan = scheduler.propose(gang)
            after = two_racks()
            for other, where in running.values():
                after.recover(other, where.node, where.gpu_mask)
            again = after.propose(gang)
            self.assertEqual(again.result, plan.result)
            self.assertEqual(again.node.tolist(), plan.node.tolist())
            self.assertEqual(again.gpu_mask.tolist(), plan.gpu_mask.tolist())
            if plan.result == "bind":
                scheduler.commit(plan)
                running[job] = (gang, plan)
        self.assertGreater(len(running), 2)

    def test_cluster_of_slurm(self):
        scheduler = apiary.GangScheduler.from_slurm(
            "SwitchName=r0 Nodes=n[0-1]\nSwitchName=r1 Nodes=n[2-3]\n",
            "NodeName=n[0-3] Gres=gpu:h100:8 CPUs=64\n",
        )
        plan = scheduler.propose(
            apiary.Gang(job=1, tasks=2, gpus=8, required="rack", model="h100", cpu_milli=64_000)
        )
        self.assertEqual(plan.node.tolist(), [0, 1])
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "line 1"):
            apiary.GangScheduler.from_slurm("SwitchName=r0 Nodes=n[0-\n", "NodeName=n0 Gres=gpu:8\n")

    def test_bad_hardware_and_copies(self):
        scheduler = two_racks()
        before = scheduler.copy()
        scheduler.mark_bad(0)
        scheduler.mark_bad(1, gpu=3)
        gang = apiary.Gang(job=1, tasks=1, gpus=8)
        self.assertEqual(scheduler.propose(gang).node.tolist(), [2])
        self.assertEqual(before.propose(gang).node.tolist(), [0])
        scheduler.mark_healthy(1, gpu=3)
        self.assertEqual(scheduler.propose(gang).node.tolist(), [1])

    def test_errors(self):
        scheduler = two_racks()
        gang = apiary.Gang(job=1, tasks=1, gpus=8)
        plan = start(scheduler, gang)
        with self.assertRaises(apiary.AlreadyExistsError):
            scheduler.propose(gang)
        with self.assertRaises(apiary.AbortedError):
            scheduler.commit(plan)
        with self.assertRaises(apiary.NotFoundError):
            scheduler.finish(2)
        with self.assertRaises(apiary.NotFoundError):
            scheduler.mark_bad(4)
        with self.assertRaises(apiary.NotFoundError):
            scheduler.propose(apiary.Gang(job=2, tasks=1, gpus=1, required="block"))
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "gpus is -1"):
            apiary.Gang(job=2, tasks=1, gpus=-1)
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "tasks; the limit is 1000000"):
            apiary.Gang(job=2, tasks=[1_000_000, 1], gpus=1)
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "have 1 rows, the gang has 2 tasks"):
            scheduler.recover(apiary.Gang(job=2, tasks=2, gpus=1), [1], [1])
        with self.assertRaises(apiary.FailedPreconditionError):
            scheduler.recover(apiary.Gang(job=2, tasks=1, gpus=1), [0], [1])
        self.assertEqual(scheduler.audit(), [])


CONFIG = {
    "physicalCluster": {
        "cellTypes": {
            "NODE": {"childCellType": "GPU", "childCellNumber": 4, "isNodeLevel": True},
            "RACK": {"childCellType": "NODE", "childCellNumber": 2},
        },
        "physicalCells": [{"cellType": "RACK", "cellChildren": [{"cellAddress": "n0"}, {"cellAddress": "n1"}]}],
    },
    "virtualClusters": {
        "research": {"virtualCells": [{"cellType": "RACK.NODE", "cellNumber": 1}]},
        "product": {"virtualCells": [{"cellType": "RACK.NODE", "cellNumber": 1}]},
    },
}


class HivedTest(unittest.TestCase):
    def test_owner_preempts_guest(self):
        """The program of the module's page."""
        scheduler = apiary.HiveD(CONFIG)
        self.assertEqual(scheduler.tenants, ["research", "product"])
        self.assertEqual(scheduler.node_names, ["n0", "n1"])
        start(scheduler, apiary.Gang(job=1, tenant="product", priority=-1, tasks=2, gpus=4))
        owner = apiary.Gang(job=2, tenant="research", tasks=1, gpus=4)
        plan = start(scheduler, owner)
        self.assertEqual((plan.result, plan.victims), ("preempt", [1]))
        scheduler.finish(1)
        plan = start(scheduler, owner)
        self.assertEqual((plan.result, plan.gpu_mask.tolist()), ("bind", [15]))
        self.assertEqual(plan.gpu_mask.dtype, np.uint64)
        waits = apiary.Gang(job=3, tenant="research", tasks=1, gpus=1)
        plan = scheduler.propose(waits)
        self.assertEqual(plan.reason, "other gangs or tasks use what it needs")
        self.assertTrue(scheduler.explain(waits).startswith(plan.reason))
        self.assertEqual(scheduler.usage("research"), {"owned": 4, "guaranteed": 4, "opportunistic": 0})
        self.assertEqual(scheduler.audit(), [])

    def test_restart(self):
        scheduler = apiary.HiveD(CONFIG)
        start(scheduler, apiary.Gang(job=1, tenant="research", tasks=1, gpus=2))
        stored = scheduler.snapshot()
        after = apiary.HiveD(CONFIG)
        after.restore(stored)
        gang = apiary.Gang(job=2, tenant="research", tasks=1, gpus=2)
        self.assertEqual(after.propose(gang).gpu_mask.tolist(), scheduler.propose(gang).gpu_mask.tolist())
        self.assertEqual(after.snapshot(), stored)
        with self.assertRaises(apiary.Error):
            after.restore(stored[:-3])
        self.assertEqual(after.snapshot(), stored)  # nothing has changed

    def test_constraints_and_bad_hardware(self):
        config = {**CONFIG, "virtualClusters": {"team": {"virtualCells": [{"cellType": "RACK", "cellNumber": 1}]}}}
        scheduler = apiary.HiveD(config)
        gang = apiary.Gang(job=1, tenant="team", tasks=2, gpus=1, max_per_node=1, required="RACK")
        self.assertEqual(sorted(scheduler.propose(gang).node.tolist()), [0, 1])
        before = scheduler.copy()
        scheduler.mark_bad(0)
        self.assertIn("healthy", scheduler.propose(gang).reason)
        self.assertEqual(before.propose(gang).result, "bind")
        scheduler.mark_healthy(0)
        self.assertEqual(scheduler.explain(gang), "")

    def test_errors(self):
        scheduler = apiary.HiveD(CONFIG)
        with self.assertRaisesRegex(apiary.NotFoundError, 'no tenant "x"'):
            scheduler.propose(apiary.Gang(job=1, tenant="x", tasks=1, gpus=1))
        with self.assertRaisesRegex(apiary.NotFoundError, "no cell type BLOCK"):
            scheduler.propose(apiary.Gang(job=1, tenant="research", tasks=1, gpus=1, required="BLOCK"))
        with self.assertRaisesRegex(apiary.NotFoundError, "no GPU model H100"):
            scheduler.propose(apiary.Gang(job=1, tenant="research", tasks=1, gpus=1, model="H100"))
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "no CPU and no memory"):
            scheduler.propose(apiary.Gang(job=1, tenant="research", tasks=1, gpus=1, cpu_milli=1))
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "virtualClusters"):
            apiary.HiveD({**CONFIG, "virtualClusters": {"a": {"virtualCells": [{"cellType": "RACK", "cellNumber": 2}]}}})
        for wrong, text in (
            ({"nodes": 1}, "nodes is not known"),
            ({"virtualClusters": []}, "virtualClusters is of type list; it must be a dict"),
            ({"physicalCluster": {"cellTypes": {"N": {"childCellNumber": -1}}}}, "cellTypes.N.childCellNumber is -1"),
            ({"physicalCluster": {"physicalCells": [{"cellType": None}]}}, r"physicalCells\[0\].cellType is of type"),
            ([], "must be a dict"),
        ):
            with self.assertRaisesRegex(apiary.InvalidArgumentError, text):
                apiary.HiveD(wrong)
        cell = {"cellType": "RACK"}
        cell["cellChildren"] = [cell]  # contains itself
        with self.assertRaisesRegex(apiary.InvalidArgumentError, "nested too deeply"):
            apiary.HiveD({"physicalCluster": {"physicalCells": [cell]}})


if __name__ == "__main__":
    unittest.main()
