"""_apiary.pyi has the names, parameters and properties of the module, and each has a docstring.

SPDX-License-Identifier: MIT
"""

import ast
import importlib.metadata
import inspect
import pathlib
import re
import unittest

import apiary
from apiary import _apiary

SPECIAL = {"__init__", "__len__", "__getitem__", "__eq__"}  # that a class may define


def split(parameters):
    """The parameters of a signature, at the commas outside of brackets."""
    found, depth = [""], 0
    for c in parameters:
        depth += (c in "[({") - (c in "])}")
        if c == "," and depth == 0:
            found.append("")
        else:
            found[-1] += c
    return [p.strip() for p in found if p.strip()]


def documented(name, doc):
    """The names of the parameters of each overload, from a docstring of pybind11."""
    signatures = re.findall(rf"^(?:\d+\. )?{name}\((.*)\) -> ", doc, re.MULTILINE)
    return [[re.split(r"[:=]", p)[0].strip() for p in split(s) if p != "*"] for s in signatures]


def declared(function):
    """The names of the parameters in the type file."""
    arguments = function.args
    return [a.arg for a in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]


class TypeFile(unittest.TestCase):
    def setUp(self):
        type_file = pathlib.Path(_apiary.__file__).parent / "_apiary.pyi"
        self.tree = ast.parse(type_file.read_text()).body
        self.classes = {node.name: node for node in self.tree if isinstance(node, ast.ClassDef)}

    def members(self, name):
        """name -> declarations of a class in the type file, those of its bases included."""
        found = {}
        for base in self.classes[name].bases:
            if isinstance(base, ast.Name) and base.id in self.classes:
                found |= self.members(base.id)
        own = {}
        for node in self.classes[name].body:
            if isinstance(node, ast.FunctionDef):
                own.setdefault(node.name, []).append(node)
        return found | own

    def test_same_names(self):
        declared_names = {node.name for node in self.tree if hasattr(node, "name")}
        declared_names |= {node.target.id for node in self.tree if isinstance(node, ast.AnnAssign)}
        public = {name for name in declared_names if not name.startswith("_")}
        self.assertEqual(public, {name for name in vars(_apiary) if not name.startswith("_")})
        self.assertEqual(public, {n for n in vars(apiary) if not n.startswith("_")})

    def test_same_members_with_docstrings(self):
        compared = 0
        for name, node in self.classes.items():
            if name.startswith("_") or issubclass(getattr(apiary, name), Exception):
                continue
            real = getattr(apiary, name)
            self.assertTrue(real.__doc__, name)
            members = self.members(name)
            own = {m for m in vars(real) if not m.startswith("_") or (m in SPECIAL and m in members)}
            self.assertEqual(own, set(members), name)
            for member, functions in members.items():
                value = inspect.getattr_static(real, member)
                where = f"{name}.{member}"
                doc = value.__doc__ or ""
                if isinstance(value, property):
                    self.assertTrue(doc, where)
                    continue
                if isinstance(value, staticmethod):
                    doc = getattr(real, member).__doc__
                self.assertEqual(
                    documented(re.escape(member), doc), [declared(f) for f in functions], where
                )
                if member not in SPECIAL:
                    self.assertGreater(len(doc.splitlines()), 1, where)
                compared += 1
        self.assertGreater(compared, 10)

    def test_same_functions(self):
        for node in self.tree:
            if isinstance(node, ast.FunctionDef):
                doc = getattr(apiary, node.name).__doc__
                self.assertEqual(documented(node.name, doc), [declared(node)], node.name)
                self.assertGreater(len(doc.splitlines()), 1, node.name)

    def test_same_version(self):
        self.assertEqual(importlib.metadata.version("apiary"), apiary.__version__)


if __name__ == "__main__":
    unittest.main()
