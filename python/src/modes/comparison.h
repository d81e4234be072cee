// Records of what a replayed function has read, and their comparison with what is there now (comparison.cpp).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "object.h"

namespace mica::python {

// Whether two values are the same object, or equal numbers or texts. It runs no code of the program's.
bool is_same_value(PyObject* now, PyObject* before);

// A record in its parts. The snapshot keeps its tuple. What it is about is numbered as in
// mica/_dynamo/replay/records.py.
struct Record {
  enum Kind : long {
    kDict,
    kSequence,
    kCell,
    kTensor,
    kEntry,
    kClass,
    kSet,
    kFunction,
    kWeak,
    kForm,
    kType,
    kPrefix,
    kOrder,
    kBases,
    kSetting,
    kPairs
  };
  Kind kind;
  PyObject *object, *before, *last;
};

// The dict that an object's attributes are in, or null. A program may assign another one to __dict__.
PyObject* dict_of_attributes(PyObject* object);

// A function's code, its defaults, those by name, and its attributes: None in the place of what there is not.
PyObject* function_state(PyObject* function);

// False where a record is malformed.
bool take_apart(PyObject* record, Record& r);

// The records in the order in which they are compared. Most are of dicts, each somewhere else in memory, and the
// program has used the caches for other things since the last comparison. So dicts go by their addresses, and each
// object is asked for some steps before it is looked at.
class Comparison {
 public:
  explicit Comparison(std::vector<Record> records);
  // The number of the first record that no longer holds, or -1.
  Py_ssize_t first_difference();
  Py_ssize_t find_difference();  // the number of any record that no longer holds, or -1
  void clear();

 private:
  struct Watched {
    PyObject* dict;
    uint64_t version;       // when its entries were last found to be the same
    uint32_t begin, count;  // its records, in order_
  };
  struct Facts {
    PyObject* tensor;
    uint32_t number;        // of the record
    uint32_t begin, bytes;  // in facts_
    bool is_form;
    bool has_attributes;  // whether the program has hung something on it
  };
  struct Typed {
    PyObject* object;
    const PyTypeObject* type;
    const PyObject* dict;  // of its attributes, or null
  };
  struct Set {
    PyObject* set;
    uint32_t number;                // of the record
    std::vector<setentry> entries;  // as they lie in the set's table
  };
  static constexpr size_t kAhead = 12;

  std::vector<Record> records_;
  std::vector<Watched> watched_;
  std::vector<uint32_t> order_;  // the numbers of all records of dicts, by dict
  std::vector<Facts> tensors_;
  std::vector<char> facts_;
  std::vector<Typed> types_;
  std::vector<uint32_t> typed_;  // the numbers of records of types, by the objects' addresses
  std::vector<Set> sets_;
  std::vector<uint32_t> others_;
};

}  // namespace mica::python
