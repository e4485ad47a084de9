#include "proto/admin/status.h"

#include <nlohmann/json.hpp>
#include <type_traits>

#include "proto/admin/status_fields.h"

namespace macaw::admin {

using Json = nlohmann::ordered_json;

const char* NameOf(RunState state) {
  static constexpr const char* kNames[] = {"?",      "waiting",  "running", "pausing",
                                           "paused", "draining", "ending",  "ended"};
  const auto index = static_cast<size_t>(state);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

const char* NameOf(Step step) {
  static constexpr const char* kNames[] = {"?",        "gathering",  "preparing", "training",
                                           "applying", "evaluating", "idle",      "awaiting"};
  const auto index = static_cast<size_t>(step);
  return index < std::size(kNames) ? kNames[index] : kNames[0];
}

namespace {

template <HasStatusFields T>
Json JsonOfFields(const T& status);

Json ValueOf(RunState state) { return NameOf(state); }
Json ValueOf(Step step) { return NameOf(step); }
template <typename T>
Json ValueOf(const T& value) {
  return value;
}
template <typename T>
Json ValueOf(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) list.push_back(JsonOfFields(item));
  return list;
}

// null: it is not JSON.
Json Parsed(const std::string& text) {
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return parsed.is_discarded() ? Json() : parsed;
}

template <HasStatusFields T>
Json JsonOfFields(const T& status) {
  Json object = Json::object();
  ForEachField(status, [&]<typename Value>(const auto& field, const Value& value) {
    if constexpr (std::is_same_v<Value, std::string>) {
      object[field.name] = field.is_json ? Parsed(value) : Json(value);
    } else {
      object[field.name] = ValueOf(value);
    }
  });
  return object;
}

}  // namespace

std::string JsonOf(const RunStatus& status) {
  return JsonOfFields(status).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace macaw::admin
