#include "cli/config/parameters.h"

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/config/wrong_key.h"
#include "core/spelling.h"
#include "core/status.h"

namespace macaw::cli {
namespace {

std::string TypeName(const ParameterValue& value) {
  switch (value.index()) {
    case 0:
      return "true or false";
    case 1:
      return "an integer";
    case 2:
      return "a number";
    default:
      return "a string";
  }
}

// A parameter has the type of its default; an integer is accepted for a number.
std::optional<ParameterValue> AsParameter(const Value& value, const ParameterValue& like) {
  if (std::holds_alternative<double>(like)) {
    if (const int64_t* number = value.As<int64_t>()) return static_cast<double>(*number);
    if (const double* number = value.As<double>()) return *number;
  } else if (std::holds_alternative<int64_t>(like)) {
    if (const int64_t* number = value.As<int64_t>()) return *number;
  } else if (std::holds_alternative<bool>(like)) {
    if (const bool* flag = value.As<bool>()) return *flag;
  } else if (const std::string* text = value.As<std::string>()) {
    return *text;
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<const algorithms::Description*> AlgorithmAt(const algorithms::Registry& registry,
                                                           const std::string& name,
                                                           const Place& place) {
  absl::StatusOr<const algorithms::Description*> found = registry.Find(name);
  if (!found.ok())
    return At(place, absl::StrCat("[algorithm.", name, "]: ", found.status().message()));
  return found;
}

absl::StatusOr<ParameterValue> ReadParameter(const algorithms::Registry& registry,
                                             const std::string& name, const std::string& key,
                                             const Value& value) {
  MACAW_ASSIGN_OR_RETURN(const algorithms::Description* algorithm,
                         AlgorithmAt(registry, name, value.place));
  const std::string path = absl::StrCat("algorithm.", name, ".", key);
  std::vector<std::string> known;
  for (const algorithms::ParameterSpec& spec : algorithm->parameters) {
    known.push_back(spec.name);
    if (spec.name != key) continue;
    const std::optional<ParameterValue> parameter = AsParameter(value, spec.default_value);
    if (!parameter.has_value()) {
      return WrongKey(value.place, path, "",
                      absl::StrCat(path, " must be ", TypeName(spec.default_value), ", found ",
                                   Describe(value)));
    }
    // Asks the registry about this parameter alone, so that the error can name its line.
    const absl::Status checked = registry.Complete({name, {{key, *parameter}}}).status();
    if (!checked.ok()) return WrongKey(value.place, path, "", checked.message());
    return *parameter;
  }
  std::string meant = NearestWord(key, known);
  if (!meant.empty()) meant = absl::StrCat("algorithm.", name, ".", meant);
  return WrongKey(
      value.place, path, meant,
      absl::StrCat("unknown key ", path, DidYouMean(meant), "; ", name,
                   known.empty() ? " has no parameters" : " has ", absl::StrJoin(known, ", ")));
}

}  // namespace macaw::cli
