#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "core/settings/section.h"

namespace macaw::peer {

using Json = nlohmann::json;

// One line, in UTF-8 whatever the texts hold: what is not UTF-8 is replaced.
std::string LineOf(const Json& json);

// The object that an answer is. `name`: of the peer, for the error.
absl::StatusOr<Json> ObjectIn(absl::string_view line, absl::string_view name);

// "its process answered what cannot be understood (no id): {…", an Internal error in UTF-8.
absl::Status NotUnderstood(absl::string_view line, absl::string_view name, absl::string_view why);

Json ToJson(const settings::Value& value);

// The keys of a section with what they are in `config`. `unset`: stands for a key without a value.
// Keys that begin with `left_out` are not told.
template <typename T>
Json ToJson(const settings::Section<T>& section, const T& config, const Json& unset,
            absl::string_view left_out = "") {
  Json json = Json::object();
  for (const settings::Field<T>& field : section.fields()) {
    if (!left_out.empty() && absl::StartsWith(field.key, left_out)) continue;
    const std::optional<settings::Value> value = field.get(config);
    json[field.key] = value.has_value() ? ToJson(*value) : unset;
  }
  return json;
}

}  // namespace macaw::peer
