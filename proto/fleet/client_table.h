#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/buffer.h"

namespace macaw::fleet {

// What a node says of the clients that it holds, by their place among them.
struct ClientTable {
  std::vector<uint32_t> rows;      // training rows of each
  std::vector<uint32_t> tokens;    // likewise, their tokens; empty: the data is not sequences
  std::vector<std::string> names;  // empty: client k is named "k"

  uint64_t clients() const { return rows.size(); }
  std::string NameOf(uint64_t place) const;

  // Equal tables have equal bytes: 12 bytes a client at most, and its name.
  AlignedBuffer Encode() const;
  // Refuses what Encode cannot have made for so many clients, and names that are empty, longer than
  // 128 bytes, hold control characters, or come twice.
  static absl::StatusOr<ClientTable> Decode(std::span<const std::byte> bytes, uint64_t clients);

  friend bool operator==(const ClientTable&, const ClientTable&) = default;
};

}  // namespace macaw::fleet
