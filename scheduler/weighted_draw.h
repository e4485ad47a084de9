#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/random.h"

namespace macaw::scheduler {

// Draws `count` distinct places of `weights` (at least 0), one after the other, each of those that
// are left with a probability in proportion to its weight. Places of weight 0 come last, by number.
// Returned ascending. By keys −ln(u) ÷ weight, of which the least are taken (Efraimidis and
// Spirakis 2006): one number of the stream a place. O(n). `count` is at most n.
std::vector<uint64_t> DrawWeighted(RandomStream& stream, std::span<const double> weights,
                                   uint64_t count);

// The same over rows: client k is drawn in proportion to its rows. The table of running sums, 8
// bytes a client, makes a draw O(count · log n) where no few clients have most rows.
class RowsDraw {
 public:
  explicit RowsDraw(std::span<const uint32_t> rows);  // it must outlive this
  // `count` distinct clients with rows, ascending; all of them where there are no more.
  std::vector<uint64_t> Draw(RandomStream& stream, uint64_t count) const;

 private:
  std::span<const uint32_t> rows_;
  std::vector<uint64_t> ends_;  // of each client's rows when all rows are put in one line
  uint64_t with_rows_ = 0;
};

}  // namespace macaw::scheduler
