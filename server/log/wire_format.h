#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

// The parts of protobuf's wire format that encode.cc and decode.cc share.
namespace macaw::server::log {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
concept Id = requires {
  typename T::rep;
};
template <typename T>
concept Number = std::unsigned_integral<T> || std::is_enum_v<T>;  // bool is unsigned, too

// Maps small differences of either sign to small numbers. Differences wrap around, so that any
// column can be restored.
inline uint64_t ZigZag(uint64_t difference) { return (difference << 1) ^ (0 - (difference >> 63)); }
inline uint64_t UnZigZag(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

}  // namespace macaw::server::log
