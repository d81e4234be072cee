// One backward pass: which nodes take part, what has reached them, which may run.
#pragma once

#include <functional>
#include <unordered_map>

#include "autograd/metadata.h"

namespace mica {

struct BackwardOptions {
  bool keep_graph = false;
  bool create_graph = false;
  bool allow_unused = false;
  bool accumulate = true;
};

// A task runs on one thread. Everything that a pass needs is here and not in globals, so that a hook may start another
// pass, and several threads may go through one graph at once.
class GraphTask {
 public:
  GraphTask() = default;
  GraphTask(const GraphTask&) = delete;
  GraphTask& operator=(const GraphTask&) = delete;

  void prepare(ArrayRef<Edge> roots, TensorVec root_grads, ArrayRef<Edge> inputs, const BackwardOptions& options);
  void run();          // until no node is ready; throws what a node threw
  TensorVec finish();  // the captured gradients; checks that each input was reached
  void clear();        // lets go of the graph, also after a failure; the vectors keep their memory

  static GraphTask* current();
  Node* evaluating() const { return evaluating_; }
  int64_t number() const { return number_; }
  static int64_t begun();  // how many passes this thread has begun so far
  bool keeps_graph() const { return options_.keep_graph; }
  bool selective() const { return selective_; }
  bool will_run(const Node& node);             // throws torch's error for a leaf whose gradient is only returned
  std::vector<Node*> execution_order() const;  // the nodes that have yet to run, and the roots
  std::vector<std::function<void()>> callbacks;

 private:
  // What a node waits for and what has arrived. Slots do not move once all nodes are found.
  struct Slot {
    Node* node;
    uint32_t missing = 0;  // edges into the node over which nothing has come yet
    int32_t first_capture = -1;
    bool needed = true;     // is to be evaluated
    bool expanded = false;  // set during the search for needed nodes
    Tensor first;           // the gradient of the node's first input,
    TensorVec others;       // and those of the others
    bool wanted() const { return needed || first_capture >= 0; }
  };
  struct Capture {
    uint32_t input_nr, result;
    int32_t next;
  };
  struct Ready {
    uint64_t sequence;
    uint32_t slot;
    bool operator<(const Ready& o) const { return sequence < o.sequence; }
  };

  uint32_t slot_for(Node* node);  // claims the node
  Slot* find(const Node* node);
  void discover(uint64_t shallowest);
  void mark_needed();
  void add_gradient(Slot& slot, uint32_t input_nr, Tensor&& gradient);
  void push_ready(uint32_t slot);
  void gather(Slot& slot);
  void evaluate(Slot& slot);
  void apply(Node& fn);
  uint64_t unwanted_edges(const Node& fn);
  void call(Node& fn);
  void send(Node& fn);

  BackwardOptions options_;
  bool selective_ = false;  // there are inputs: nodes that do not lead to one are left out
  int64_t number_ = 0;
  Node* evaluating_ = nullptr;
  std::vector<Ref<Node>> roots_;
  std::vector<Slot> slots_;
  std::unordered_map<const Node*, uint32_t> contested_;  // nodes that another task has claimed
  std::vector<Ready> ready_;
  std::vector<Capture> captures_;
  TensorVec captured_;
  TensorVec grads_, out_;  // gradients of the node that is being evaluated
};

}  // namespace mica
