"""Every ```python block of the module's page prints the ```text block after it.

SPDX-License-Identifier: MIT
"""

import contextlib
import io
import os
import pathlib
import re
import unittest

PAGE = pathlib.Path(os.environ["APIARY_SOURCE_DIR"]) / "examples/hosts/python/README.md"


class Readme(unittest.TestCase):
    def test_programs(self):
        programs = re.findall(r"```python\n(.*?)```\n+```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
        self.assertEqual(len(programs), PAGE.read_text().count("```python\n"))
        self.assertGreater(len(programs), 0)
        for program, expected in programs:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(program, str(PAGE), "exec"), {})
            self.assertEqual(printed.getvalue(), expected)


if __name__ == "__main__":
    unittest.main()
