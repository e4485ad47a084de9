#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "core/digest.h"
#include "core/ids.h"
#include "proto/fleet/fields.h"
#include "server/journal/format.h"

// The journal's bytes: values as little-endian numbers and texts without names, messages by the
// lists of their fields (proto/fleet/fields.h). The names are in the format before them.
namespace macaw::server {

template <typename T>
concept JournalNumber = std::is_integral_v<T> || std::is_enum_v<T>;
template <typename T>
concept JournalId = requires(T id) {
  typename T::rep;
  id.value;
};

template <typename T>
concept JournalList = requires(T list) {
  typename T::allocator_type;
  list.emplace_back();
};

// Of a T that is neither a message nor a list.
template <typename T>
constexpr Format::Kind KindOf() {
  using Kind = Format::Kind;
  if constexpr (JournalNumber<T> || JournalId<T>) return Kind::kNumber;
  if constexpr (std::is_same_v<T, double>) return Kind::kReal;
  if constexpr (std::is_same_v<T, std::string>) return Kind::kText;
  if constexpr (std::is_same_v<T, Digest> || std::is_same_v<T, fleet::Blob>) return Kind::kDigest;
  if constexpr (std::is_same_v<T, Fence>) return Kind::kFence;
  if constexpr (std::is_same_v<T, Attempt>) return Kind::kAttempt;
}

class ByteWriter {
 public:
  void PutNumber(uint64_t value) {
    char bytes[8];
    for (int i = 0; i < 8; ++i) bytes[i] = static_cast<char>(value >> (8 * i));
    out_.append(bytes, sizeof(bytes));
  }
  template <JournalNumber T>
  void Put(T value) {
    PutNumber(static_cast<uint64_t>(value));
  }
  void Put(double value) { PutNumber(std::bit_cast<uint64_t>(value)); }
  template <JournalId T>
  void Put(const T& id) {
    PutNumber(id.value);
  }
  void Put(const std::string& text) {
    PutNumber(text.size());
    out_.append(text);
  }
  void Put(const Digest& digest) {
    out_.append(reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size());
  }
  void Put(const Fence& fence) {
    PutNumber(fence.epoch);
    PutNumber(fence.counter);
  }
  void Put(const Attempt& attempt) {
    Put(attempt.client);
    Put(attempt.fence);
  }
  void Put(const fleet::Blob& blob) { Put(blob.digest); }  // its bytes are beside the head
  template <typename T>
  void Put(const std::vector<T>& items) {
    PutNumber(items.size());
    for (const T& item : items) Put(item);
  }
  template <fleet::HasFields T>
  void Put(const T& message) {
    fleet::ForEachField(message, [this](const auto&, const auto& value) { Put(value); });
  }
  template <fleet::HasColumns T>
  void Put(const T& row) {
    fleet::ForEachColumn(fleet::Of<T>(), [&](const auto& column) { Put(column.get(row)); });
  }
  std::string Take() && { return std::move(out_); }

 private:
  std::string out_;
};

// Reads what ByteWriter wrote. Beyond the end of the bytes every value reads as zero, and ok() is
// false from then on.
//
// Get(value) reads what this program has written. Get(value, written) reads what a program of
// another release has written in that format: fields that only this program has keep their values,
// fields that it does not know are skipped, and ok() is false if a field is of another kind.
class ByteReader {
 public:
  explicit ByteReader(absl::string_view bytes) : rest_(bytes) {}
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

  uint64_t Number() {
    const absl::string_view bytes = Take(8);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes.size(); ++i)
      value |= uint64_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    return value;
  }
  template <JournalNumber T>
  void Get(T& value) {
    value = static_cast<T>(Number());
  }
  void Get(double& value) { value = std::bit_cast<double>(Number()); }
  template <JournalId T>
  void Get(T& id) {
    Get(id.value);
  }
  void Get(std::string& text) { text = std::string(Take(Number())); }
  void Get(Digest& digest) { std::ranges::copy(Take(digest.bytes.size()), digest.bytes.begin()); }
  void Get(Fence& fence) {
    Get(fence.epoch);
    Get(fence.counter);
  }
  void Get(Attempt& attempt) {
    Get(attempt.client);
    Get(attempt.fence);
  }
  void Get(fleet::Blob& blob) { Get(blob.digest); }
  template <typename T>
  void Get(std::vector<T>& items) {
    EachItem([&] { Get(items.emplace_back()); });
  }
  template <fleet::HasFields T>
  void Get(T& message) {
    fleet::ForEachField(message, [this](const auto&, auto& value) { Get(value); });
  }
  template <fleet::HasColumns T>
  void Get(T& row) {
    fleet::ForEachColumn(fleet::Of<T>(), [&](const auto& column) { Get(column.get(row)); });
  }

  template <typename T>
  void Get(T& value, const Format& written) {
    if (!IsOf<T>(written)) {
      ok_ = false;
      return;
    }
    if constexpr (JournalList<T>) {
      EachItem([&] { Get(value.emplace_back(), written.parts.front()); });
    } else if constexpr (fleet::HasFields<T> || fleet::HasColumns<T>) {
      for (size_t i = 0; ok_ && i < written.names.size(); ++i)
        GetField(value, written.names[i], written.parts[i]);
    } else {
      Get(value);
    }
  }

 private:
  template <typename T>
  static bool IsOf(const Format& written) {
    if constexpr (fleet::HasFields<T> || fleet::HasColumns<T>) {
      return written.kind == Format::Kind::kMessage;
    } else if constexpr (JournalList<T>) {
      return written.kind == Format::Kind::kList;
    } else {
      return written.kind == KindOf<T>();
    }
  }
  template <typename T>
  void GetField(T& message, absl::string_view name, const Format& written) {
    bool known = false;
    const auto get = [&](const auto& field, auto& value) {
      if (known || field.name != name) return;
      known = true;
      Get(value, written);
    };
    if constexpr (fleet::HasFields<T>) {
      fleet::ForEachField(message, get);
    } else {
      fleet::ForEachColumn(fleet::Of<T>(), [&](const auto& one) { get(one, one.get(message)); });
    }
    if (!known) Skip(written);
  }
  void Skip(const Format& written) {
    switch (written.kind) {
      case Format::Kind::kNumber:
      case Format::Kind::kReal:
        Take(8);
        break;
      case Format::Kind::kText:
        Take(Number());
        break;
      case Format::Kind::kDigest:
        Take(Digest().bytes.size());
        break;
      case Format::Kind::kFence:
        Take(16);
        break;
      case Format::Kind::kAttempt:
        Take(24);
        break;
      case Format::Kind::kList:
        EachItem([&] { Skip(written.parts.front()); });
        break;
      case Format::Kind::kMessage:
        for (const Format& part : written.parts) Skip(part);
        break;
    }
  }
  template <typename Each>
  void EachItem(const Each& each) {
    const uint64_t count = Number();
    if (count > rest_.size()) ok_ = false;  // each takes a byte at least
    for (uint64_t i = 0; ok_ && i < count; ++i) each();
  }
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

// The format of the bytes of a T.
template <typename T>
Format FormatOf() {
  using Kind = Format::Kind;
  Format format;
  const auto add = [&]<typename Value>(const auto& field, const Value&) {
    format.names.emplace_back(field.name);
    format.parts.push_back(FormatOf<Value>());
  };
  if constexpr (fleet::HasFields<T>) {
    format.kind = Kind::kMessage;
    fleet::ForEachField(T(), add);
  } else if constexpr (fleet::HasColumns<T>) {
    format.kind = Kind::kMessage;
    T row;
    fleet::ForEachColumn(fleet::Of<T>(), [&](const auto& one) { add(one, one.get(row)); });
  } else if constexpr (JournalList<T>) {
    format.kind = Kind::kList;
    format.parts.push_back(FormatOf<typename T::value_type>());
  } else {
    format.kind = KindOf<T>();
  }
  return format;
}

}  // namespace macaw::server
