#pragma once

#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/file_blocks.h"
#include "core/vector.h"

namespace macaw::algorithms {

// Scratch vectors of one slot, reused from client to client so that a turn allocates nothing. One
// thread. A vector is valid until Reset. Its contents are arbitrary unless Zero is used.
class Workspace {
 public:
  VectorView Vector(const LayoutPtr& layout) { return Take(layout, {}, &Zeroed); }
  // The same for a caller that writes every byte, from the beginning to the end, and takes each
  // piece's space before (core/file_blocks.h).
  VectorView InPieces(const LayoutPtr& layout) { return Take(layout, {}, &WithoutSpace); }
  // The turn's vector of that name and layout: what a hook leaves there, Conclude finds. The first
  // call takes one.
  VectorView Named(absl::string_view name, const LayoutPtr& layout) {
    for (Entry& entry : entries_) {
      if (entry.taken && entry.name == name && entry.vector.layout() == layout)
        return entry.vector.view();
    }
    return Take(layout, name, &Zeroed);
  }
  // Gives away the memory of a vector that was taken: the view is valid as long as that lives. An
  // empty vector: the view is of something else.
  FlatVector Give(ConstVectorView view) {
    for (Entry& entry : entries_) {
      if (entry.vector.empty() || entry.vector.view().bytes.data() != view.bytes.data()) continue;
      return std::exchange(entry.vector, FlatVector());
    }
    return {};
  }
  void Reset() {
    for (Entry& entry : entries_) entry.taken = false;
  }

 private:
  struct Entry {
    FlatVector vector;
    bool taken = false;
    std::string name = {};
  };

  static FlatVector Zeroed(const LayoutPtr& layout) { return FlatVector(layout); }
  static FlatVector WithoutSpace(const LayoutPtr& layout) {
    return FlatVector::In(UnsetWithoutSpace(layout->bytes()), layout);
  }

  VectorView Take(const LayoutPtr& layout, absl::string_view name,
                  FlatVector (*make)(const LayoutPtr& layout)) {
    for (Entry& entry : entries_) {
      if (!entry.taken && entry.vector.layout() == layout) {
        entry.taken = true;
        entry.name.assign(name.data(), name.size());
        return entry.vector.view();
      }
    }
    for (Entry& entry : entries_) {
      if (!entry.vector.empty()) continue;  // that of another was given away
      entry = {make(layout), true, std::string(name)};
      return entry.vector.view();
    }
    entries_.push_back({make(layout), true, std::string(name)});
    return entries_.back().vector.view();
  }

  std::deque<Entry> entries_;  // a deque keeps views valid while it grows
};

}  // namespace macaw::algorithms
