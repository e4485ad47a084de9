#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/buffer.h"

namespace macaw::fleet {

constexpr uint64_t kLongestClientName = 128;  // bytes

// Refuses names that no table has: empty ones, those of more than kLongestClientName bytes or with
// control characters, and those that occur twice. The error says which and what is wrong with it.
absl::Status CheckNames(const std::vector<std::string>& names);

// What a node reports about its clients. Index k is the client with place k.
struct ClientTable {
  std::vector<uint32_t> rows;      // training rows of each
  std::vector<uint32_t> tokens;    // tokens of each; empty: the data is not sequences
  std::vector<std::string> names;  // empty: client k is named "k"
  // Test and validation rows of each; empty: no client has any.
  std::vector<uint32_t> test_rows, validation_rows;

  uint64_t clients() const { return rows.size(); }
  std::string NameOf(uint64_t place) const;

  // Bytes of an encoded table: its flags, and of each client at least its rows, and at most four
  // columns and its name with the line's end.
  static constexpr uint64_t kFlagBytes = 8, kLeastClientBytes = 4,
                            kMostClientBytes = 4 * kLeastClientBytes + kLongestClientName + 1;
  // Equal tables give equal bytes.
  AlignedBuffer Encode() const;
  // Refuses bytes that Encode cannot have made for this number of clients, and what CheckNames
  // refuses.
  static absl::StatusOr<ClientTable> Decode(std::span<const std::byte> bytes, uint64_t clients);

  friend bool operator==(const ClientTable&, const ClientTable&) = default;
};

}  // namespace macaw::fleet
