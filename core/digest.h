#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace macaw {

// BLAKE2b-256: the name of a blob, a layout, a configuration, a model.
struct Digest {
  std::array<uint8_t, 32> bytes{};

  std::string Hex() const;
  static absl::StatusOr<Digest> FromHex(absl::string_view hex);
  bool IsZero() const { return *this == Digest{}; }
  // Combines the digests of a set; the result does not depend on the order.
  Digest& operator^=(const Digest& other) {
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] ^= other.bytes[i];
    return *this;
  }

  friend bool operator==(const Digest&, const Digest&) = default;
  friend auto operator<=>(const Digest&, const Digest&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Digest& d) {
    uint64_t head;
    std::memcpy(&head, d.bytes.data(), sizeof(head));  // already uniformly distributed
    return H::combine(std::move(h), head);
  }
};

Digest DigestOf(std::span<const std::byte> bytes);
Digest DigestOf(absl::string_view text);

// Computes a digest piece by piece. Numbers are added as eight little-endian bytes and texts with
// their length, so that different sequences of fields cannot give the same bytes.
class Digester {
 public:
  Digester();
  ~Digester();
  Digester(Digester&&) noexcept;
  Digester& operator=(Digester&&) noexcept;

  Digester& Add(std::span<const std::byte> bytes);
  Digester& Add(absl::string_view text);  // length-prefixed
  Digester& Add(uint64_t number);
  Digest Finish();  // call once; the digester cannot be used afterwards

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// XXH3-64: a checksum that detects accidental damage (of a chunk on the wire or a record on disk).
// It does not identify content; that is Digest's task.
uint64_t Checksum(std::span<const std::byte> bytes);

template <typename T>
std::span<const std::byte> BytesOf(std::span<T> values) {
  return std::as_bytes(values);
}
inline std::span<const std::byte> BytesOf(absl::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace macaw
