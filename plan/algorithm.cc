#include "plan/algorithm.h"

namespace macaw {

settings::Value ToValue(const ParameterValue& parameter) {
  return std::visit([](const auto& plain) { return settings::Value{plain}; }, parameter);
}

std::optional<ParameterValue> ToParameter(const settings::Value& value) {
  if (const bool* flag = value.As<bool>()) return *flag;
  if (const int64_t* integer = value.As<int64_t>()) return *integer;
  if (const double* real = value.As<double>()) return *real;
  if (const std::string* text = value.As<std::string>()) return *text;
  return std::nullopt;
}

}  // namespace macaw
