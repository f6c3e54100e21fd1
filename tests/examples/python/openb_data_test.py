"""FGD and best fit on openb: the decisions of plain Python, at least 100 times faster.

SPDX-License-Identifier: MIT
"""

import os
import pathlib
import unittest

import apiary
from compare_with_plain_python import compare

OPENB = pathlib.Path(os.environ.get("APIARY_DATA_DIR", "")) / "openb"
TASKS = 1500  # plain Python takes a minute for all 10,866


@unittest.skipUnless(OPENB.is_dir(), f"no openb trace in {OPENB}")
class Openb(unittest.TestCase):
    def read(self):
        return apiary.read_openb(
            str(OPENB / "openb_node_list_gpu_node.csv"),
            str(OPENB / "openb_pod_list_default.csv"),
            str(OPENB / "arrivals/default_42_nodes.txt"),
            str(OPENB / "arrivals/default_42_pods.txt"),
        )

    def test_100_times_faster(self):
        nodes, tasks = self.read()
        faster = compare(nodes, tasks.head(TASKS))
        self.assertGreater(faster["FGD"], 100)
        self.assertGreater(faster["best fit"], 100)

    def test_published_decisions(self):
        """All but 9 of the 10,866 decisions are the published ones (fgd/README.md says why)."""
        nodes, tasks = self.read()
        _, history = apiary.read_openb(
            str(OPENB / "openb_node_list_gpu_node.csv"), str(OPENB / "openb_pod_list_default.csv")
        )
        node, gpu_mask = apiary.Fgd(nodes, apiary.TaskMix.from_history(history)).place(tasks)
        decided = [
            " ".join([task, nodes.names[n], "-".join(map(str, apiary.Placement(n, mask).gpus))]).rstrip()
            if n >= 0
            else f"{task} -"
            for task, n, mask in zip(tasks.names, node.tolist(), gpu_mask.tolist())
        ]
        published = (OPENB / "expected/decisions_default_FGD_42.txt").read_text().splitlines()
        self.assertEqual(len(decided), len(published))
        self.assertEqual(sum(a != b for a, b in zip(decided, published)), 9)


if __name__ == "__main__":
    unittest.main()
