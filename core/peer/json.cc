#include "core/peer/json.h"

#include <type_traits>
#include <variant>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/utf8.h"

namespace macaw::peer {

std::string LineOf(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Json> ObjectIn(absl::string_view line, absl::string_view name) {
  Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return NotUnderstood(line, name, "not a JSON object");
  return json;
}

absl::Status NotUnderstood(absl::string_view line, absl::string_view name, absl::string_view why) {
  constexpr size_t kShown = 200;
  const absl::string_view shown = HeadOf(line, kShown);
  return absl::InternalError(absl::StrCat(name, " answered what cannot be understood (", why,
                                          "): ", IsUtf8(shown) ? shown : EscapeToUtf8(shown)));
}

Json ToJson(const settings::Value& value) {
  return std::visit(
      [](const auto& data) -> Json {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, settings::Array>) {
          Json array = Json::array();
          for (const settings::Value& item : data) array.push_back(ToJson(item));
          return array;
        } else if constexpr (std::is_same_v<T, std::monostate> ||
                             std::is_same_v<T, settings::Table>) {
          return nullptr;  // no key of a section has such a value
        } else {
          return data;
        }
      },
      value.data);
}

}  // namespace macaw::peer
