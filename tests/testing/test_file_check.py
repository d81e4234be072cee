"""torch.testing.FileCheck. What passes and what is refused is what torch 2.13 does with the same texts."""

import pytest
from mica.testing import FileCheck

TEXT = """a = linear(x, w)
b = relu(a); c = sin(b)
d = linear(c, w)
return d
~~~~~~ <--- HERE
"""

FINE = [
    FileCheck().check("linear").check("relu").check("linear"),
    FileCheck().check("relu").check_same("sin").check_next("linear"),
    FileCheck().check("linear").check_not("cos").check("relu"),
    FileCheck().check("relu").check_not("relu"),
    FileCheck().check_not("tanh"),
    FileCheck().check_count("linear", 2, exactly=True),
    FileCheck().check_count("linear", 1).check("linear"),
    FileCheck().check_count("tanh", 0, exactly=True),
    FileCheck().check_dag("sin").check_dag("relu").check("return"),
    FileCheck().check_regex(r"[a-z] = linear\(c"),
    FileCheck().check_source_highlighted("return"),
]

REFUSED = [
    (FileCheck().check("relu").check("relu"), 'Expected to find "relu" but did not find it'),
    (FileCheck().check("relu").check_same("linear"), "on the same line"),
    (FileCheck().check("linear").check_next("return"), "on the next line"),
    (FileCheck().check("relu").check_next("sin"), "on the next line"),
    (FileCheck().check("linear").check_not("sin").check("return"), 'Expected to not find "sin" but found it'),
    (FileCheck().check_not("linear"), 'Expected to not find "linear"'),
    (FileCheck().check_count("linear", 1, exactly=True), 'Expected to not find "linear"'),
    (FileCheck().check_count("linear", 3), 'Expected to find "linear"'),
    (FileCheck().check_dag("sin").check_dag("relu").check("sin"), 'Expected to find "sin"'),
    (FileCheck().check_regex(r"tan[a-h]"), "regular expression"),
    (FileCheck().check_source_highlighted("linear"), "highlighted"),
    (FileCheck(), "nothing is expected"),
]


@pytest.mark.parametrize("check", FINE)
def test_what_is_there(check):
    check.run(TEXT)


@pytest.mark.parametrize(("check", "words"), REFUSED)
def test_what_is_not_there(check, words):
    with pytest.raises(RuntimeError, match=words):
        check.run(TEXT)


def test_expectations_are_texts():
    with pytest.raises(TypeError, match="expected a text"):
        FileCheck().check(3)
    with pytest.raises(RuntimeError, match="a number above zero"):
        FileCheck().check_count("a", -1)
