"""FGD and best fit in plain Python, as a prototype has them: a loop over all nodes for each task.

The decisions are those of apiary.Fgd and apiary.BestFit. compare_with_plain_python.py measures both.

SPDX-License-Identifier: MIT
"""

import bisect
import functools
import math

WHOLE_GPU = 1000


class Node:
    """What is left on a node."""

    def __init__(self, cpu, memory, gpus, model):
        self.cpu = cpu
        self.memory = memory
        self.gpus = (WHOLE_GPU,) * gpus  # thousandths left of each GPU
        self.model = model


class PlainScheduler:
    """Places each task on the node with the highest score; the lowest id among equals."""

    def __init__(self, nodes):
        self.nodes = [
            Node(*row)
            for row in zip(
                nodes.cpu_milli.tolist(), nodes.memory_mib.tolist(), nodes.gpus.tolist(), nodes.model.tolist()
            )
        ]

    def place(self, tasks):
        """The node of each task, or -1, and its GPUs as bits."""
        rows = zip(
            tasks.cpu_milli.tolist(),
            tasks.memory_mib.tolist(),
            tasks.gpus.tolist(),
            tasks.gpu_milli.tolist(),
            tasks.models.tolist(),
        )
        placed = [self.place_one(*row) for row in rows]
        return [node for node, _ in placed], [mask for _, mask in placed]

    def place_one(self, cpu, memory, gpus, milli, models):
        best = None
        best_score = -1
        for n, node in enumerate(self.nodes):
            if node.cpu < cpu or node.memory < memory or not self.gpus_fit(node, gpus, milli, models):
                continue
            score, chosen = self.score(node, cpu, gpus, milli)
            if score > best_score:
                best, best_score, best_gpus = n, score, chosen
        if best is None:
            return -1, 0
        node = self.nodes[best]
        node.cpu -= cpu
        node.memory -= memory
        node.gpus = take(node.gpus, best_gpus, milli)
        return best, sum(1 << gpu for gpu in best_gpus)

    @staticmethod
    def gpus_fit(node, gpus, milli, models):
        if gpus == 0:
            return True
        if not node.gpus or not models >> node.model & 1:
            return False
        if gpus == 1:
            return max(node.gpus) >= milli
        return node.gpus.count(WHOLE_GPU) >= gpus


def take(left, gpus, milli):
    """What is left of each GPU after a task has taken so much of some."""
    return tuple(have - milli if i in gpus else have for i, have in enumerate(left))


def first_free(left, count):
    return [i for i, have in enumerate(left) if have == WHOLE_GPU][:count]


class PlainBestFit(PlainScheduler):
    """The node with the least CPU and GPU left."""

    def score(self, node, cpu, gpus, milli):
        if gpus == 1 and milli < WHOLE_GPU:
            chosen = [min((have, i) for i, have in enumerate(node.gpus) if have >= milli)[1]]
        else:
            chosen = first_free(node.gpus, gpus)
        left = node.cpu - cpu + 16 * (sum(node.gpus) - (gpus * milli if gpus else 0))
        return max((256000 - left) // 2560, 0), chosen


class PlainFgd(PlainScheduler):
    """The node where a task adds least to the fragmentation: GPUs that typical tasks cannot use."""

    def __init__(self, nodes, mix):
        super().__init__(nodes)
        self.kinds = list(
            zip(
                mix.cpu_milli.tolist(),
                mix.gpus.tolist(),
                mix.gpu_milli.tolist(),
                mix.models.tolist(),
                mix.weight.tolist(),
            )
        )
        self.weight = sum(kind[4] for kind in self.kinds)
        # Score s needs a gain of 1000 * log(s / (100 - s)): the inverse of a sigmoid.
        self.gains = [
            math.ceil(1000.0 * self.weight * math.log(s / (100.0 - s))) for s in range(1, 100)
        ]
        # Equal nodes are computed once: without this, the program takes hours.
        self.usable = functools.lru_cache(maxsize=None)(self._usable)

    def _usable(self, model, cpu, left):
        """What the typical task can use of the GPUs, times the sum of the weights."""
        sum_of_kinds = 0
        free = left.count(WHOLE_GPU)
        for kind_cpu, gpus, milli, models, weight in self.kinds:
            if gpus == 0 or cpu < kind_cpu or not models >> model & 1:
                continue
            if gpus == 1:
                sum_of_kinds += weight * sum(have for have in left if have >= milli)
            elif gpus <= free:
                sum_of_kinds += weight * WHOLE_GPU * free
        return sum_of_kinds

    def score(self, node, cpu, gpus, milli):
        if gpus == 1 and milli < WHOLE_GPU:
            choices = [[i] for i, have in enumerate(node.gpus) if have >= milli]
        else:
            choices = [first_free(node.gpus, gpus)]
        before = self.usable(node.model, node.cpu, node.gpus)
        best = None
        best_score = -1
        for chosen in choices:
            after = self.usable(node.model, node.cpu - cpu, take(node.gpus, chosen, milli))
            gain = self.weight * len(chosen) * milli + after - before
            score = bisect.bisect_right(self.gains, gain)
            if score > best_score:
                best, best_score = chosen, score
        return best_score, best
