#include "server/log/codec.h"

#include <bit>
#include <concepts>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "core/status.h"
#include "server/log/fields.h"

namespace macaw::server::log {
namespace {

enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

template <typename T>
concept Id = requires {
  typename T::rep;
};
template <typename T>
concept Number = std::unsigned_integral<T> || std::is_enum_v<T>;  // bool, too

// ---- out

void PutVarint(uint64_t value, std::string& out) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

// Small for small differences of either sign; differences wrap, so that any column can be restored.
uint64_t ZigZag(uint64_t difference) { return (difference << 1) ^ (0 - (difference >> 63)); }
uint64_t UnZigZag(uint64_t value) { return (value >> 1) ^ (0 - (value & 1)); }

void PutTag(uint32_t number, WireType type, std::string& out) {
  PutVarint(uint64_t{number} << 3 | type, out);
}

void PutBytes(uint32_t number, absl::string_view bytes, std::string& out) {
  PutTag(number, kBytes, out);
  PutVarint(bytes.size(), out);
  out.append(bytes.data(), bytes.size());
}

// A column: each value as its difference to the one before.
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

// 1: clients, 2: counters of their fences, 3: the epochs, or the one that all have.
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

// 1: clients, 2: multiplicities, absent when all are 1.
void Put(uint32_t number, const std::vector<Member>& cohort, std::string& out) {
  if (cohort.empty()) return;
  std::string columns;
  const auto multiplicity = [](const Member& member) -> uint64_t { return member.multiplicity; };
  PutColumn(
      1, cohort, [](const Member& member) { return member.client.value; }, columns);
  if (!AllAre(cohort, 1, multiplicity)) PutColumn(2, cohort, multiplicity, columns);
  PutBytes(number, columns, out);
}

// 1: attempts, 2: reasons, 3: the different texts, 4 and 5: which of them is message and tail.
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

// ---- in: every function says whether the bytes make sense

bool TakeVarint(absl::string_view& bytes, uint64_t& value) {
  value = 0;
  for (uint32_t shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) return false;
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7Fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

struct Raw {
  uint32_t number = 0;
  uint32_t type = 0;
  uint64_t value = 0;       // of a number
  absl::string_view bytes;  // of anything else
};

bool TakeRaw(absl::string_view& bytes, Raw& raw) {
  uint64_t tag = 0;
  if (!TakeVarint(bytes, tag) || tag >> 3 > std::numeric_limits<uint32_t>::max()) return false;
  raw.number = static_cast<uint32_t>(tag >> 3);
  raw.type = tag & 7;
  const auto fixed = [&](size_t size) {
    if (bytes.size() < size) return false;
    raw.value = 0;
    for (size_t i = 0; i < size; ++i)
      raw.value |= uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
    bytes.remove_prefix(size);
    return true;
  };
  switch (raw.type) {
    case kVarint:
      return TakeVarint(bytes, raw.value);
    case kFixed64:
      return fixed(8);
    case kFixed32:
      return fixed(4);
    case kBytes: {
      uint64_t size = 0;
      if (!TakeVarint(bytes, size) || size > bytes.size()) return false;
      raw.bytes = bytes.substr(0, size);
      bytes.remove_prefix(size);
      return true;
    }
    default:
      return false;
  }
}

// visit(raw) for each field, until it returns false.
template <typename Visitor>
bool TakeAll(absl::string_view bytes, Visitor&& visit) {
  Raw raw;
  while (!bytes.empty()) {
    if (!TakeRaw(bytes, raw) || !visit(raw)) return false;
  }
  return true;
}

bool Take(const Raw& raw, std::vector<uint64_t>& column) {
  if (raw.type != kBytes) return false;
  absl::string_view bytes = raw.bytes;
  uint64_t here = 0, difference = 0;
  while (!bytes.empty()) {
    if (!TakeVarint(bytes, difference)) return false;
    column.push_back(here += UnZigZag(difference));
  }
  return true;
}

template <Number T>
bool Take(const Raw& raw, T& value) {
  if constexpr (std::is_enum_v<T>) {
    std::underlying_type_t<T> number{};
    if (!Take(raw, number)) return false;
    value = static_cast<T>(number);
    return true;
  } else {
    value = static_cast<T>(raw.value);
    return raw.type == kVarint && raw.value <= std::numeric_limits<T>::max();
  }
}

template <Id T>
bool Take(const Raw& raw, T& id) {
  return Take(raw, id.value);
}

bool Take(const Raw& raw, int64_t& value) {
  value = static_cast<int64_t>(UnZigZag(raw.value));
  return raw.type == kVarint;
}

bool Take(const Raw& raw, double& value) {
  value = std::bit_cast<double>(raw.value);
  return raw.type == kFixed64;
}

bool Take(const Raw& raw, std::string& text) {
  text = std::string(raw.bytes);
  return raw.type == kBytes;
}

bool Take(const Raw& raw, Digest& digest) {
  if (raw.type != kBytes || raw.bytes.size() != digest.bytes.size()) return false;
  std::memcpy(digest.bytes.data(), raw.bytes.data(), digest.bytes.size());
  return true;
}

bool Take(const Raw& raw, std::vector<ClientId>& clients) {
  std::vector<uint64_t> column;
  if (!Take(raw, column)) return false;
  for (const uint64_t client : column) clients.emplace_back(client);
  return true;
}

bool Take(const Raw& raw, std::vector<Attempt>& attempts) {
  std::vector<uint64_t> clients, counters, epochs;
  const bool whole = raw.type == kBytes && TakeAll(raw.bytes, [&](const Raw& column) {
                       return column.number == 1   ? Take(column, clients)
                              : column.number == 2 ? Take(column, counters)
                              : column.number == 3 ? Take(column, epochs)
                                                   : true;
                     });
  if (!whole || counters.size() != clients.size() ||
      (epochs.size() != clients.size() && epochs.size() != 1)) {
    return false;
  }
  for (size_t i = 0; i < clients.size(); ++i) {
    const uint64_t epoch = epochs[epochs.size() == 1 ? 0 : i];
    if (epoch > std::numeric_limits<uint32_t>::max()) return false;
    attempts.push_back({ClientId(clients[i]), {static_cast<uint32_t>(epoch), counters[i]}});
  }
  return true;
}

bool Take(const Raw& raw, std::vector<Member>& cohort) {
  std::vector<uint64_t> clients, multiplicities;
  const bool whole = raw.type == kBytes && TakeAll(raw.bytes, [&](const Raw& column) {
                       return column.number == 1   ? Take(column, clients)
                              : column.number == 2 ? Take(column, multiplicities)
                                                   : true;
                     });
  if (!whole || (!multiplicities.empty() && multiplicities.size() != clients.size())) return false;
  for (size_t i = 0; i < clients.size(); ++i) {
    const uint64_t multiplicity = multiplicities.empty() ? 1 : multiplicities[i];
    if (multiplicity > std::numeric_limits<uint32_t>::max()) return false;
    cohort.push_back({ClientId(clients[i]), static_cast<uint32_t>(multiplicity)});
  }
  return true;
}

bool Take(const Raw& raw, std::vector<GivenUp>& given_up) {
  std::vector<Attempt> attempts;
  std::vector<uint64_t> reasons, messages, tails;
  std::vector<absl::string_view> texts;
  const bool whole = raw.type == kBytes && TakeAll(raw.bytes, [&](const Raw& column) {
                       switch (column.number) {
                         case 1:
                           return Take(column, attempts);
                         case 2:
                           return Take(column, reasons);
                         case 3:
                           texts.push_back(column.bytes);
                           return column.type == kBytes;
                         case 4:
                           return Take(column, messages);
                         case 5:
                           return Take(column, tails);
                         default:
                           return true;
                       }
                     });
  if (!whole || reasons.size() != attempts.size() || messages.size() != attempts.size() ||
      tails.size() != attempts.size()) {
    return false;
  }
  for (size_t i = 0; i < attempts.size(); ++i) {
    if (messages[i] >= texts.size() || tails[i] >= texts.size() || reasons[i] > 0xFF) return false;
    given_up.push_back({.attempt = attempts[i],
                        .reason = static_cast<fleet::LeftOutReason>(reasons[i]),
                        .message = std::string(texts[messages[i]]),
                        .tail = std::string(texts[tails[i]])});
  }
  return true;
}

bool Take(const Raw& raw, std::vector<Holding>& holdings);

template <typename T>
bool TakeFields(absl::string_view bytes, T& record) {
  return TakeAll(bytes, [&](const Raw& raw) {
    bool makes_sense = true;
    ForEachField(record, [&](const auto& field, auto& value) {
      if (field.number == raw.number) makes_sense = Take(raw, value);
    });
    return makes_sense;
  });
}

bool Take(const Raw& raw, std::vector<Holding>& holdings) {
  return raw.type == kBytes && TakeFields(raw.bytes, holdings.emplace_back());
}

template <typename T>
void TakeKind(const Kind<T>& kind, const Raw& raw, std::optional<Record>& record,
              bool& makes_sense) {
  if (kind.number != raw.number) return;
  makes_sense = raw.type == kBytes && TakeFields(raw.bytes, record.emplace().emplace<T>());
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

absl::StatusOr<Entry> Decode(absl::string_view bytes, uint64_t sequence) {
  Entry entry{.sequence = sequence};
  std::optional<Record> known;
  uint32_t unknown = 0;
  const bool whole = TakeAll(bytes, [&](const Raw& raw) {
    bool makes_sense = true;
    if (raw.number == kTimeField) {
      entry.ns = static_cast<int64_t>(raw.value);
      return raw.type == kVarint;
    }
    std::apply([&](const auto&... kind) { (TakeKind(kind, raw, known, makes_sense), ...); },
               kKinds);
    if (!known.has_value()) unknown = raw.number;
    return makes_sense;
  });
  if (!whole || (!known.has_value() && unknown == 0))
    return absl::DataLossError("its bytes are not those of a record");
  entry.record = known.has_value() ? *std::move(known) : Record(Unknown{.kind = unknown});
  return entry;
}

}  // namespace macaw::server::log
