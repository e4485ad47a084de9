#include "cli/config/document.h"

#include <filesystem>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "core/files.h"
#include "core/logging.h"
#include "core/status.h"
#include "core/utf8.h"

namespace macaw::cli {
namespace {

std::string FolderOf(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::absolute(path, ignored).parent_path().string();
}

const Value* Find(const Table& table, absl::string_view key) {
  for (const auto& [name, value] : table) {
    if (name == key) return &value;
    const Table* const inner = value.As<Table>();
    absl::string_view rest = key;
    if (inner == nullptr || !absl::ConsumePrefix(&rest, name + ".")) continue;
    if (const Value* found = Find(*inner, rest)) return found;
  }
  return nullptr;
}

}  // namespace

absl::StatusOr<Override> ParseOverride(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--set ", text, ": expected section.key=value"));
  }
  return Override{text.substr(0, equals), text.substr(equals + 1), absl::StrCat("--set ", text)};
}

absl::StatusOr<std::vector<Override>> ParseOverrides(const std::vector<std::string>& texts) {
  std::vector<Override> overrides;
  for (const std::string& text : texts) {
    MACAW_ASSIGN_OR_RETURN(Override override, ParseOverride(text));
    overrides.push_back(std::move(override));
  }
  return overrides;
}

absl::StatusOr<Document> ParseDocument(const std::string& text, const std::string& name,
                                       const std::string& folder) {
  MACAW_RETURN_IF_ERROR(CheckUtf8(text, name));
  MACAW_ASSIGN_OR_RETURN(Value content, ParseToml(text, name));
  Logger("config").Info(absl::StrCat("read file=", name));
  return Document{name, folder, std::move(std::get<Table>(content.data))};
}

absl::StatusOr<Document> OpenDocument(const std::string& path) {
  if (path.empty()) return Document{.folder = FolderOf(path)};
  MACAW_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  return ParseDocument(text, path, FolderOf(path));
}

absl::StatusOr<std::optional<Value>> Lookup(const Document& document,
                                            const std::vector<Override>& overrides,
                                            const std::string& key) {
  for (auto override = overrides.rbegin(); override != overrides.rend(); ++override) {
    absl::string_view rest = key;
    const bool is_table = absl::ConsumePrefix(&rest, override->key + ".");
    if (!is_table && override->key != key) continue;
    MACAW_ASSIGN_OR_RETURN(Value value, ParseTomlValue(override->value, Place{override->place}));
    if (!is_table) return value;
    const Table* const table = value.As<Table>();  // such as --set data={source="csv"}
    const Value* const inner = table == nullptr ? nullptr : Find(*table, rest);
    if (inner != nullptr) return *inner;
  }
  const Value* const found = Find(document.content, key);
  return found == nullptr ? std::nullopt : std::optional<Value>(*found);
}

}  // namespace macaw::cli
