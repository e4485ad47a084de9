#include "core/passed_bytes.h"

#include "core/file_blocks.h"
#include "core/shared_memory.h"

namespace macaw {

void PassedBytes::Until(size_t until) {
  constexpr size_t kStep = size_t{16} << 20;
  if (until < left_ + kStep && until < bytes_.size()) return;
  LeaveToCache(bytes_.subspan(left_, until - left_));
  left_ = until / RoundUpToPage(1) * RoundUpToPage(1);
}

}  // namespace macaw
