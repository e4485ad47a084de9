#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "core/digest.h"
#include "core/ids.h"

namespace macaw::server {

// Writes numbers and texts as little-endian bytes without field names. For files that only this
// program reads.
class ByteWriter {
 public:
  void Put(uint64_t value) {
    for (int shift = 0; shift < 64; shift += 8) out_.push_back(static_cast<char>(value >> shift));
  }
  void Put(double value) { Put(std::bit_cast<uint64_t>(value)); }
  void Put(absl::string_view text) {
    Put(uint64_t{text.size()});
    out_.append(text.data(), text.size());
  }
  void Put(const Digest& digest) {
    out_.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  }
  void Put(const Attempt& attempt) {
    Put(attempt.client.value);
    Put(uint64_t{attempt.fence.epoch});
    Put(attempt.fence.counter);
  }
  template <typename T, typename Item>
  void PutAll(const T& items, const Item& item) {
    Put(uint64_t{items.size()});
    for (const auto& one : items) item(one);
  }
  std::string Take() && { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what ByteWriter wrote. Beyond the end of the bytes every value reads as zero, and ok() is
// false from then on.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }
  size_t left() const { return rest_.size(); }

  uint64_t Number() {
    const absl::string_view bytes = Take(8);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    return value;
  }
  template <typename T>
  T Small() {  // a number of a smaller type, or an enumerator
    return static_cast<T>(Number());
  }
  double Real() { return std::bit_cast<double>(Number()); }
  std::string Text() { return std::string(Take(Number())); }
  Digest Name() {
    Digest digest;
    const absl::string_view bytes = Take(digest.bytes.size());
    std::copy(bytes.begin(), bytes.end(), digest.bytes.begin());
    return digest;
  }
  Attempt Try() {
    Attempt attempt;
    attempt.client = ClientId(Number());
    attempt.fence.epoch = Small<uint32_t>();
    attempt.fence.counter = Number();
    return attempt;
  }
  // Calls item() once for each item that PutAll wrote. Each item must take at least one byte.
  template <typename Item>
  void All(const Item& item) {
    const uint64_t count = Number();
    if (count > rest_.size()) ok_ = false;
    for (uint64_t i = 0; ok_ && i < count; ++i) item();
  }

 private:
  absl::string_view Take(uint64_t size) {
    if (size > rest_.size()) ok_ = false;
    if (!ok_) return {};
    const absl::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  absl::string_view rest_;
  bool ok_ = true;
};

}  // namespace macaw::server
