#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "server/log/codec.h"
#include "server/log/fields.h"
#include "server/log/wire_format.h"

namespace macaw::server::log {
namespace {

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

void PutTag(uint32_t number, WireType type, std::string& out) {
  PutVarint(uint64_t{number} << 3 | type, out);
}

void PutBytes(uint32_t number, absl::string_view bytes, std::string& out) {
  PutTag(number, kBytes, out);
  PutVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

// A column: each value is written as its difference to the previous one.
template <typename Values, typename Get>
void PutColumn(uint32_t number, const Values& values, Get get, std::string& out) {
  std::string column;
  uint64_t before = 0;
  for (const auto& value : values) {
    const uint64_t here = get(value);
    PutVarint(ZigZag(here - std::exchange(before, here)), column);
  }
  if (!column.empty()) PutBytes(number, column, out);
}

template <typename Values, typename Get>
bool AllAre(const Values& values, uint64_t wanted, Get get) {
  for (const auto& value : values) {
    if (get(value) != wanted) return false;
  }
  return true;
}

template <Number T>
void Put(uint32_t number, const T& value, std::string& out) {
  if (value == T{}) return;
  PutTag(number, kVarint, out);
  PutVarint(static_cast<uint64_t>(value), out);
}

template <Id T>
void Put(uint32_t number, const T& id, std::string& out) {
  Put(number, id.value, out);
}

void Put(uint32_t number, int64_t value, std::string& out) {
  if (value == 0) return;
  PutTag(number, kVarint, out);
  PutVarint(ZigZag(static_cast<uint64_t>(value)), out);
}

void Put(uint32_t number, double value, std::string& out) {
  const auto bits = std::bit_cast<uint64_t>(value);
  if (bits == 0) return;
  PutTag(number, kFixed64, out);
  for (int shift = 0; shift < 64; shift += 8) out.push_back(static_cast<char>(bits >> shift));
}

void Put(uint32_t number, const std::string& text, std::string& out) {
  if (!text.empty()) PutBytes(number, text, out);
}

void Put(uint32_t number, const Digest& digest, std::string& out) {
  if (digest.IsZero()) return;
  PutBytes(number, {reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()}, out);
}

void Put(uint32_t number, const std::vector<ClientId>& clients, std::string& out) {
  PutColumn(
      number, clients, [](ClientId client) { return client.value; }, out);
}

void Put(uint32_t number, const std::vector<uint64_t>& values, std::string& out) {
  PutColumn(
      number, values, [](uint64_t value) { return value; }, out);
}

// Fields: 1 clients, 2 counters of their fences, 3 the epochs, or one epoch if all are equal.
template <typename Items, typename Get>
void PutAttempts(uint32_t number, const Items& items, Get get, std::string& out) {
  if (items.empty()) return;
  std::string columns;
  const auto epoch = [&](const auto& item) -> uint64_t { return get(item).fence.epoch; };
  PutColumn(
      1, items, [&](const auto& item) { return get(item).client.value; }, columns);
  PutColumn(
      2, items, [&](const auto& item) { return get(item).fence.counter; }, columns);
  if (AllAre(items, epoch(items.front()), epoch)) {
    PutColumn(3, std::span(items).first(1), epoch, columns);
  } else {
    PutColumn(3, items, epoch, columns);
  }
  PutBytes(number, columns, out);
}

void Put(uint32_t number, const std::vector<Attempt>& attempts, std::string& out) {
  PutAttempts(
      number, attempts, [](const Attempt& attempt) { return attempt; }, out);
}

// Fields: 1 clients, 2 multiplicities; field 2 is absent when all are 1.
void Put(uint32_t number, const std::vector<Member>& cohort, std::string& out) {
  if (cohort.empty()) return;
  std::string columns;
  const auto multiplicity = [](const Member& member) -> uint64_t { return member.multiplicity; };
  PutColumn(
      1, cohort, [](const Member& member) { return member.client.value; }, columns);
  if (!AllAre(cohort, 1, multiplicity)) PutColumn(2, cohort, multiplicity, columns);
  PutBytes(number, columns, out);
}

// Fields: 1 attempts, 2 reasons, 3 the distinct texts, 4 and 5 the indices in field 3 of message
// and tail.
void Put(uint32_t number, const std::vector<GivenUp>& given_up, std::string& out) {
  if (given_up.empty()) return;
  std::string columns, texts;
  PutAttempts(
      1, given_up, [](const GivenUp& g) { return g.attempt; }, columns);
  PutColumn(
      2, given_up, [](const GivenUp& g) { return static_cast<uint64_t>(g.reason); }, columns);
  absl::flat_hash_map<absl::string_view, uint64_t> places;
  const auto place = [&](const std::string& text) {
    const auto [it, fresh] = places.try_emplace(text, places.size());
    if (fresh) PutBytes(3, text, texts);
    return it->second;
  };
  std::string which;
  PutColumn(
      4, given_up, [&](const GivenUp& g) { return place(g.message); }, which);
  PutColumn(
      5, given_up, [&](const GivenUp& g) { return place(g.tail); }, which);
  PutBytes(number, columns + texts + which, out);
}

void Put(uint32_t number, const std::vector<Holding>& holdings, std::string& out);

template <typename T>
void PutFields(const T& record, std::string& out) {
  ForEachField(record,
               [&](const auto& field, const auto& value) { Put(field.number, value, out); });
}

void Put(uint32_t number, const std::vector<Holding>& holdings, std::string& out) {
  for (const Holding& holding : holdings) {
    std::string bytes;
    PutFields(holding, bytes);
    PutBytes(number, bytes, out);
  }
}

}  // namespace

void Encode(const Entry& entry, std::string& out) {
  PutTag(kTimeField, kVarint, out);
  PutVarint(static_cast<uint64_t>(entry.ns), out);
  std::visit(
      [&]<typename T>(const T& record) {
        if constexpr (!std::is_same_v<T, Unknown>) {
          std::string bytes;
          PutFields(record, bytes);
          PutBytes(KindOf<T>().number, bytes, out);
        } else {
          PutBytes(record.kind, "", out);
        }
      },
      entry.record);
}

}  // namespace macaw::server::log
