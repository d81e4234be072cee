"""A graph of names with facts about each."""


class DiGraph:
    def __init__(self):
        self.nodes = {}
        self._after, self._before = {}, {}

    def __contains__(self, name):
        return name in self.nodes

    def __iter__(self):
        return iter(self.nodes)

    def add_node(self, name, **facts):
        self.nodes.setdefault(name, {}).update(facts)
        self._after.setdefault(name, {})
        self._before.setdefault(name, {})

    def add_edge(self, name, other):
        for each in (name, other):
            self.add_node(each)
        self._after[name][other] = self._before[other][name] = True

    @property
    def edges(self):
        return [(name, other) for name, others in self._after.items() for other in others]

    def successors(self, name):
        return list(self._after[name])

    def predecessors(self, name):
        return list(self._before.get(name, ()))

    def first_path(self, name):
        """Names from one that nothing leads to, down to this one."""
        path = [name]
        while fresh := [each for each in self._before[path[0]] if each not in path]:
            path.insert(0, fresh[0])
        return path

    def _reached(self, start, edges):
        seen, rest = set(), [start]
        while rest:
            name = rest.pop()
            if name not in seen:
                seen.add(name)
                rest += edges.get(name, ())
        return seen

    def all_paths(self, src, dst):
        """The part of the graph between two names, in the language of graphviz."""
        between = self._reached(src, self._after) & self._reached(dst, self._before)
        part = DiGraph()
        for name, other in self.edges:
            if name in between and other in between:
                part.add_edge(name, other)
        return part.to_dot()

    def to_dot(self):
        lines = "\n".join(f'"{name}" -> "{other}";' for name, other in self.edges)
        return f"digraph G {{\nrankdir = LR;\nnode [shape=box];\n{lines}\n}}\n"
