#include "core/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace macaw {

uint64_t Checksum(std::span<const std::span<const std::byte>> pieces) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_64bits_reset(&state);
  for (const auto piece : pieces) XXH3_64bits_update(&state, piece.data(), piece.size());
  return XXH3_64bits_digest(&state);
}

}  // namespace macaw
