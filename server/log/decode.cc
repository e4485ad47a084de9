#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "core/status.h"
#include "server/log/codec.h"
#include "server/log/fields.h"
#include "server/log/wire_format.h"

namespace macaw::server::log {
namespace {

// Every function returns whether the bytes are valid.

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

// Calls visit(raw) for each field until it returns false.
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
