#include "proto/fleet/client_table.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/utf8.h"

namespace macaw::fleet {
namespace {

// Flags in the first 8 bytes of a table say what it holds beside the rows. Then come the columns,
// and the names, one per line.
constexpr uint64_t kTokens = 1, kNames = 2, kTestRows = 4, kValidationRows = 8;

// Calls `visit` with the flag of each column that a table may have and the column.
template <typename Table, typename Visit>
void VisitColumns(Table& table, Visit visit) {
  visit(kTokens, table.tokens);
  visit(kTestRows, table.test_rows);
  visit(kValidationRows, table.validation_rows);
}

bool IsControl(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

// What is wrong with a name; "": nothing.
std::string Fault(const std::string& name) {
  if (name.empty()) return "is empty";
  if (std::ranges::any_of(name, IsControl))
    return "has a control character, such as a line break or a tab";
  return name.size() > kLongestClientName ? absl::StrCat("has ", name.size(), " bytes") : "";
}

}  // namespace

absl::Status CheckNames(const std::vector<std::string>& names) {
  constexpr size_t kShown = 40;
  absl::flat_hash_set<absl::string_view> seen;
  for (size_t place = 0; place < names.size(); ++place) {
    const std::string& name = names[place];
    if (const std::string fault = Fault(name); !fault.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "the name of client ", place, ", \"", EscapeToUtf8(HeadOf(name, kShown)),
          name.size() > kShown ? "…" : "", "\", ", fault, "; a server takes names of 1 to ",
          kLongestClientName, " bytes without control characters: give the client another"));
    }
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("two clients of the table are named \"", name, "\""));
    }
  }
  return absl::OkStatus();
}

std::string ClientTable::NameOf(uint64_t place) const {
  return names.empty() ? absl::StrCat(place) : names[place];
}

AlignedBuffer ClientTable::Encode() const {
  uint64_t flags = names.empty() ? 0 : kNames;
  size_t size = sizeof(flags) + rows.size() * sizeof(uint32_t);
  VisitColumns(*this, [&](uint64_t flag, const std::vector<uint32_t>& column) {
    if (!column.empty()) flags |= flag;
    size += column.size() * sizeof(uint32_t);
  });
  for (const std::string& name : names) size += name.size() + 1;
  AlignedBuffer buffer(size);
  std::byte* to = buffer.bytes().data();
  const auto write = [&to](const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(to, from, bytes);
    to += bytes;
  };
  write(&flags, sizeof(flags));
  write(rows.data(), rows.size() * sizeof(uint32_t));
  VisitColumns(*this, [&](uint64_t, const std::vector<uint32_t>& column) {
    write(column.data(), column.size() * sizeof(uint32_t));
  });
  for (const std::string& name : names) {
    write(name.data(), name.size());
    write("\n", 1);
  }
  return buffer;
}

absl::StatusOr<ClientTable> ClientTable::Decode(std::span<const std::byte> bytes,
                                                uint64_t clients) {
  const auto refuse = [&](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("the table of its ", clients, " clients ", why));
  };
  uint64_t flags = 0;
  if (bytes.size() < sizeof(flags)) return refuse("is empty");
  std::memcpy(&flags, bytes.data(), sizeof(flags));
  bytes = bytes.subspan(sizeof(flags));
  if ((flags & ~(kTokens | kNames | kTestRows | kValidationRows)) != 0)
    return refuse("has parts that are not known");
  if (clients == 0 && flags != 0) return refuse("has columns, but no clients");
  const uint64_t columns = 1 + static_cast<uint64_t>(std::popcount(flags & ~kNames));
  if (bytes.size() / sizeof(uint32_t) / columns < clients) return refuse("is too short");
  ClientTable table;
  const auto read = [&](std::vector<uint32_t>& column) {
    column.resize(clients);
    if (clients > 0) std::memcpy(column.data(), bytes.data(), clients * sizeof(uint32_t));
    bytes = bytes.subspan(clients * sizeof(uint32_t));
  };
  read(table.rows);
  VisitColumns(table, [&](uint64_t flag, std::vector<uint32_t>& column) {
    if ((flags & flag) != 0) read(column);
  });
  if ((flags & kNames) != 0) {
    const absl::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    if (text.empty() || text.back() != '\n' ||
        static_cast<uint64_t>(std::ranges::count(text, '\n')) != clients) {
      return refuse("does not name them all");
    }
    table.names = absl::StrSplit(text.substr(0, text.size() - 1), '\n');
    const absl::Status named = CheckNames(table.names);
    if (!named.ok()) return named;
    bytes = {};
  }
  if (!bytes.empty()) return refuse("is too long");
  return table;
}

}  // namespace macaw::fleet
