#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "server/log/fields.h"

namespace macaw::server::fixtures {

// Fills every field of every kind of record with random values, by the list of fields. A field that
// the codec forgets then shows as a difference, even if the field is added later.
class RandomRecord {
 public:
  explicit RandomRecord(uint64_t seed) : stream_({.seed = seed}) {}

  // One of each kind, in the order of their numbers.
  std::vector<log::Record> OneOfEach() {
    std::vector<log::Record> records;
    std::apply(
        [&](const auto&... kind) {
          (records.push_back(Make<typename std::decay_t<decltype(kind)>::Type>()), ...);
        },
        log::kKinds);
    return records;
  }
  log::Record Any() {
    std::vector<log::Record> records = OneOfEach();
    return records[stream_.Below(records.size())];
  }

 private:
  template <typename T>
  T Make() {
    T record;
    log::ForEachField(record, [&](const auto&, auto& value) { Fill(value); });
    return record;
  }

  // Small numbers, large ones, and the largest.
  uint64_t Number() { return stream_.NextU64() >> stream_.Below(64); }
  template <typename T>
  void Fill(T& value) {
    if constexpr (requires { typename T::rep; }) {
      Fill(value.value);
    } else if constexpr (std::is_enum_v<T>) {
      value = static_cast<T>(stream_.Below(4));
    } else if constexpr (std::is_same_v<T, bool>) {
      value = stream_.Below(2) == 1;
    } else {
      value = static_cast<T>(Number());
    }
  }
  void Fill(double& value) { value = stream_.Normal(); }
  void Fill(std::string& text) {
    text.clear();
    for (uint64_t n = stream_.Below(40); n > 0; --n)
      text.push_back(static_cast<char>(stream_.NextU32()));
  }
  void Fill(Digest& digest) {
    for (uint8_t& byte : digest.bytes) byte = static_cast<uint8_t>(stream_.NextU32());
  }
  void Fill(Attempt& attempt) {
    Fill(attempt.client);
    Fill(attempt.fence.epoch);
    Fill(attempt.fence.counter);
  }
  void Fill(log::Operation& operation) {
    operation = static_cast<log::Operation>(1 + stream_.Below(6));
  }
  void Fill(log::Member& member) {
    Fill(member.client);
    member.multiplicity = stream_.Below(2) == 0 ? 1 : stream_.NextU32();
  }
  void Fill(log::GivenUp& given_up) {
    Fill(given_up.attempt);
    Fill(given_up.reason);
    Fill(given_up.message);
    if (stream_.Below(3) == 0) Fill(given_up.tail);
  }
  void Fill(log::Holding& holding) {
    Fill(holding.data);
    Fill(holding.clients);
  }
  template <typename T>
  void Fill(std::vector<T>& list) {
    list.resize(stream_.Below(5));
    for (T& item : list) Fill(item);
  }

  RandomStream stream_;
};

}  // namespace macaw::server::fixtures
