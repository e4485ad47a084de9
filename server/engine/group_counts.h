#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "training/api/class_counts.h"

namespace macaw::server {

// The counts of classes over the rows of each group of clients. They are whole numbers, so they are
// added in any order. One thread.
class GroupCounts {
 public:
  // `size`: of the counts of a run (ClassCounts::size), which those of `more` index.
  void Add(uint32_t group, const training::SparseCounts& more, size_t size) {
    if (group >= counts_.size()) counts_.resize(group + 1);
    std::vector<double>& total = counts_[group];
    total.resize(size);
    for (size_t i = 0; i < more.at.size(); ++i) total[more.at[i]] += more.count[i];
  }

  // By group; groups behind the last one that was counted are not there.
  std::vector<training::SparseCounts> Report() const {
    std::vector<training::SparseCounts> counts;
    counts.reserve(counts_.size());
    for (const std::vector<double>& total : counts_)
      counts.push_back(training::SparseCounts::Of(total));
    return counts;
  }

 private:
  std::vector<std::vector<double>> counts_;
};

}  // namespace macaw::server
