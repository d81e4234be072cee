"""No public name is without a sentence: a docstring, or a line in site/sentences.toml for what cannot have one."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "site" / "make"))

import cpp_headers  # noqa: E402
import cpp_pages  # noqa: E402
import python_names  # noqa: E402


def test_every_public_name_has_a_sentence():
    assert len(python_names.public()) > 2500  # the walk found the package
    missing = python_names.without_a_sentence()
    assert not missing, f"give a docstring, or a line in site/sentences.toml, to {missing}"


def test_a_name_without_a_sentence_is_found():
    def undocumented(x):
        return x

    name = python_names.Name("nn", "undocumented", undocumented)
    assert python_names.explanation(name) == ""

    class Child(dict):
        pass

    assert python_names.explanation(python_names.Name("nn", "Child", Child)) == ""  # dict's docstring is not its own
    assert python_names.explanation(python_names.Name("", "some_constant", 3)) == ""  # nor is int's


def test_no_sentence_is_left_over():
    """Every line of site/sentences.toml is of a name that is there and has no docstring."""
    used = set()
    paths = [n.path for n in python_names.public()] + [f"torch.Tensor.{n}" for n in python_names.tensor_names()]
    said = {path: python_names.said_elsewhere(path) for path in paths}
    used = set(said.values())
    left = [key for key, sentence in python_names.sentences().items() if sentence not in used]
    assert not left, left


def test_every_public_name_of_cpp_has_a_sentence():
    assert len(cpp_pages.names()) > 600  # the headers were read
    missing = cpp_pages.without_a_sentence()
    assert not missing, f"give a comment in the header, or a line in site/cpp_sentences.toml, to {missing}"
    assert not cpp_pages.left_over()


def test_comments_of_a_header_go_to_what_they_explain():
    text = """namespace mica {
// Both ways.
float there(int x);
int back(float x);  // and here

template <class T>
requires requires { T::value; }
int alone(T x) {
  return 0;
}
inline int Kind::member() { return 1; }
}  // namespace mica
"""
    found = {d.name: d.comment for d in cpp_headers.declarations(text)}
    assert found == {"there": "Both ways.", "back": "and here", "alone": ""}
