"""What a snapshot records of names: of globals, of builtins, of modules."""

import builtins
import sys
import types

from mica._dynamo.replay import known_classes
from mica._dynamo.replay import records as of
from mica._dynamo.replay.names import asks_by_text, globals_in, imported_by, is_of_python, is_own, names_in
from mica._dynamo.replay.observe import Refused


class ReadNames:
    """The part of a snapshot that follows names. It fills `_records`, and `_queue` with what the names stand for."""

    def _visit_names(self, code, names):
        asked, imported = names_in(code), imported_by(code, names)
        own = is_own(names.get("__name__", ""))
        trusted = own or is_of_python(names.get("__name__"))  # to look for modules that it has imported
        modules = [names[name] for name in asked if isinstance(names.get(name), types.ModuleType)]
        for name in imported:
            modules.append(sys.modules[name])
            if not is_own(name):
                self._records.append((of.ENTRY, sys.modules, name, sys.modules[name]))
        for name in asked:
            if name in names:
                self._record_entry(names, name, shallow=own)
        if not own:
            self._record_builtins(code, names)
        by_text, seen = not own and asks_by_text(code), set()
        while modules:
            module = modules.pop()
            if id(module) in seen:
                continue
            seen.add(id(module))
            if type(module) is not types.ModuleType and is_own(module.__name__):
                self._record_settings(module)
            if by_text and module.__name__.rpartition(".")[2] in asked:
                self._visit_whole_module(module)
            for name in asked:
                if name in vars(module) and not (module is sys and trusted):
                    self._record_entry(vars(module), name, shallow=is_own(module.__name__))
                    if isinstance(vars(module)[name], types.ModuleType):
                        modules.append(vars(module)[name])
            if not own:
                by_name = code.co_exceptiontable or (by_text and is_of_python(module.__name__))
                self._record_absent_names(module, asked if by_name else ())

    def _record_settings(self, module):
        """Record what a module has whose attributes are computed of what it holds, as torch._dynamo.config has."""
        self._record_dict(vars(module))
        for value in vars(module).values():
            if type(value) is dict:
                self._record_dict(value)

    def _record_builtins(self, code, names):
        """Record that globals do not hide the builtins that code looks up, and what these are."""
        known = vars(builtins)
        for name in globals_in(code):
            if name not in names:
                self._records += [(of.ENTRY, names, name, ...), (of.ENTRY, known, name, known.get(name, ...))]
                self._queue.append(known.get(name))

    def _record_entry(self, names, name, shallow=False):
        """Record an entry of globals or of a module. `shallow`: of the object, record what it holds and nothing further."""
        value = names[name]
        if value is sys.modules:
            raise Refused("it looks modules up")
        self._records.append((of.ENTRY, names, name, value))
        if not shallow or isinstance(value, (types.FunctionType, type)):
            self._queue.append(value)
        elif type(value) is dict:
            self._record_dict(value)
        elif type(value) in (list, tuple):
            self._record_sequence(value)
        elif not isinstance(value, types.ModuleType) and type(getattr(value, "__dict__", None)) is dict:
            self._record_dict(vars(value))

    def _visit_module(self, module):
        """Record what code that ran may ask a module for. Which code does is not known."""
        if self._asks_by_text:
            self._visit_whole_module(module)
        self._record_absent_names(module)
        for name in sorted(self._names.intersection(vars(module)) - {"modules"}):
            self._record_entry(vars(module), name, shallow=is_own(module.__name__))

    def _record_absent_names(self, module, asked=()):
        """Record that a module still has not what code asks it for, where the code goes on without."""
        own = vars(module)
        if "__getattr__" in own and not is_own(module.__name__):
            self._record_dict(own)  # it answers for names that it has not
        elif type(module) is types.ModuleType:
            self._records += [(of.ENTRY, own, name, ...) for name in asked if name not in own]

    def _visit_whole_module(self, module):
        """Record all that a module has, since it may be asked for names that are made. Of Mica's and Python's that is what
        the names stand for, not what these objects hold."""
        if module is builtins or is_of_python(module.__name__):
            return
        self._record_dict(vars(module))
        if not is_own(module.__name__):
            self._queue += [
                value
                for name, value in vars(module).items()
                if name not in known_classes.MADE_BY_PYTHON
                and not isinstance(value, types.ModuleType)
                and name != "__builtins__"
            ]
