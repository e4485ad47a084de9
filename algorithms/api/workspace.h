#pragma once

#include <deque>
#include <vector>

#include "core/vector.h"

namespace macaw::algorithms {

// Scratch vectors of one slot, reused from client to client so that a turn allocates nothing. One
// thread. A vector is valid until Reset. Its contents are arbitrary unless Zero is used.
class Workspace {
 public:
  VectorView Vector(const LayoutPtr& layout) {
    for (Entry& entry : entries_) {
      if (!entry.taken && entry.vector.layout() == layout) {
        entry.taken = true;
        return entry.vector.view();
      }
    }
    entries_.push_back({FlatVector(layout), true});
    return entries_.back().vector.view();
  }
  void Reset() {
    for (Entry& entry : entries_) entry.taken = false;
  }

 private:
  struct Entry {
    FlatVector vector;
    bool taken = false;
  };
  std::deque<Entry> entries_;  // a deque keeps views valid while it grows
};

}  // namespace macaw::algorithms
