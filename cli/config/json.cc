#include "cli/config/json.h"

#include <string>
#include <type_traits>
#include <variant>

namespace macaw::cli {

nlohmann::ordered_json ToJson(const Value& value) {
  return std::visit(
      [](const auto& data) -> nlohmann::ordered_json {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, Array>) {
          nlohmann::ordered_json array = nlohmann::ordered_json::array();
          for (const Value& item : data) array.push_back(ToJson(item));
          return array;
        } else if constexpr (std::is_same_v<T, Table>) {
          nlohmann::ordered_json table = nlohmann::ordered_json::object();
          for (const auto& [key, item] : data) table[key] = ToJson(item);
          return table;
        } else {
          return data;
        }
      },
      value.data);
}

nlohmann::ordered_json ToJson(const ParameterValue& value) {
  return std::visit([](const auto& plain) -> nlohmann::ordered_json { return plain; }, value);
}

}  // namespace macaw::cli
